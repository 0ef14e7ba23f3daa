"""A status in the text form that Prometheus reads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import (
    Metric as Family,
)
from prometheus_client.registry import Collector

from calving.serving.metrics import METRICS, Metric
from calving.status.histogram import Histogram
from calving.status.values import Status


class _Collector(Collector):
    def __init__(self, status: Callable[[], Status]) -> None:
        self._status = status

    def collect(self) -> Iterator[Family]:
        status, now = self._status(), time.time()
        for metric in METRICS:
            yield _family(metric, status, now)

    def describe(self) -> list[Family]:
        return []


def exposition(status: Callable[[], Status]) -> Callable[[str], tuple[bytes, str]]:
    """A function from a client's Accept header to the text and its media type."""
    registry = CollectorRegistry()
    registry.register(_Collector(status))

    def expose(accept: str) -> tuple[bytes, str]:
        try:
            encode, media_type = choose_encoder(accept)
        except (TypeError, ValueError):  # it takes the version that a client names for numbers
            encode, media_type = choose_encoder("")
        return encode(registry), media_type

    return expose


def _family(metric: Metric, status: Status, now: float) -> Family:
    made: CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily
    if metric.kind == "counter":
        made = CounterMetricFamily(metric.name, metric.text, labels=metric.series_labels)
    elif metric.kind == "histogram":
        made = HistogramMetricFamily(metric.name, metric.text, labels=metric.series_labels)
    else:
        made = GaugeMetricFamily(metric.name, metric.text, labels=metric.series_labels)
    for labels, value in metric.series(status, now):
        if isinstance(value, Histogram) and isinstance(made, HistogramMetricFamily):
            made.add_metric(labels, _buckets(value), value.sum)
        elif isinstance(value, int | float) and not isinstance(made, HistogramMetricFamily):
            made.add_metric(labels, value)
    return made


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    buckets, total = [], 0
    for bound, count in zip((*map(str, histogram.bounds), "+Inf"), histogram.counts, strict=True):
        total += count
        buckets.append((bound, float(total)))
    return buckets
