"""Sends a status to OpenTelemetry collectors: metrics over OTLP, as protobuf over HTTP.

OpenTelemetry's instruments cannot report a finished histogram. So data points are made here, from the same declarations
as for Prometheus. OpenTelemetry's exporter does encoding, headers, TLS and retries.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any, cast
from urllib.parse import urlsplit

import requests
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    HistogramDataPoint,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Histogram as HistogramData
from opentelemetry.sdk.metrics.export import Metric as MetricData
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from calving.errors import ConfigError
from calving.serving.metrics import METRICS, Metric, Value
from calving.status.histogram import Histogram
from calving.status.values import SinkFacts, Status

log = logging.getLogger(__name__)

_CUMULATIVE = AggregationTemporality.CUMULATIVE
_UNITS = {"seconds": "s", "bytes": "By"}
_LAST_SECONDS = 2.0
"""The end of the process waits at most this long for the last export."""
_EXPORTERS_LOG = logging.getLogger("opentelemetry.exporter.otlp")


def disabled() -> bool:
    """Whether the environment switches all exports off."""
    return os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"


class Exporter:
    """Exports metrics on its own thread. Samples that the collector does not accept are dropped."""

    def __init__(self, endpoint: str, status: Callable[[], Status]) -> None:
        """:raises ConfigError: an environment variable of OpenTelemetry has an unusable value."""
        self._status, self._host = status, urlsplit(endpoint).hostname or ""
        self._interval = _interval()
        self._resource = _resource(status().sink)
        self._answer: int | None = None
        self._failing = False
        session = requests.Session()
        session.hooks["response"].append(self._answered)
        if _EXPORTERS_LOG.level == logging.NOTSET:  # it logs every failure, with the URL; here only the first
            _EXPORTERS_LOG.setLevel(logging.CRITICAL)
        self._exporter = OTLPMetricExporter(_with_path(endpoint), session=session)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="calving-otel", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop after a last export, if this export does not take long. Safe to call twice."""
        if self._ended.is_set():
            return
        self._ended.set()
        self._thread.join(_LAST_SECONDS)
        self._exporter.shutdown()

    def _run(self) -> None:
        while not self._ended.wait(self._interval):
            self._export()
        self._export()

    def _export(self) -> None:
        self._answer = None
        try:
            done = (
                self._exporter.export(data(self._status(), self._resource, time.time())) is MetricExportResult.SUCCESS
            )
        except Exception:  # the sink continues without it
            log.exception("metrics could not be put together for OpenTelemetry")
            return
        if done == self._failing:  # logged once when it begins, and once when it ends
            self._tell(done)

    def _tell(self, done: bool) -> None:
        self._failing = not done
        if done:
            log.info("the collector at %s accepts metrics again", self._host)
            return
        reason = f"HTTP {self._answer}" if self._answer is not None else "no answer"
        log.warning("the collector at %s does not accept metrics: %s; retrying", self._host, reason)

    def _answered(self, response: requests.Response, *_: Any, **__: Any) -> None:
        self._answer = response.status_code


def data(status: Status, resource: Resource, now: float) -> MetricsData:
    """All metrics of a status. Sums count from the start of the process."""
    started, at = _nanos(status.sink.started_at), _nanos(now)
    metrics = [_metric(metric, status, now, started, at) for metric in METRICS]
    scope = InstrumentationScope("calving", status.sink.version)
    scoped = ScopeMetrics(scope, [metric for metric in metrics if metric.data.data_points], "")
    return MetricsData([ResourceMetrics(resource, [scoped], "")])


def _metric(metric: Metric, status: Status, now: float, started: int, at: int) -> MetricData:
    names = metric.series_labels
    samples = [(dict(zip(names, labels, strict=True)), figure) for labels, figure in metric.series(status, now)]
    unit = next((unit for name, unit in _UNITS.items() if name in metric.name.split("_")), "1")
    if metric.kind == "histogram":
        points = [_histogram(labels, figure, started, at) for labels, figure in samples]
        return MetricData(metric.name, metric.text, unit, HistogramData(points, _CUMULATIVE))
    numbers = [NumberDataPoint(labels, started, at, _number(figure)) for labels, figure in samples]
    if metric.kind == "counter":
        return MetricData(metric.name, metric.text, unit, Sum(numbers, _CUMULATIVE, is_monotonic=True))
    return MetricData(metric.name, metric.text, unit, Gauge(numbers))


def _histogram(labels: dict[str, str], value: Value, started: int, at: int) -> HistogramDataPoint:
    histogram = cast(Histogram, value)
    unknown = cast(float, None)  # for the least and the greatest value, which are optional in OTLP
    return HistogramDataPoint(
        attributes=labels,
        start_time_unix_nano=started,
        time_unix_nano=at,
        count=histogram.count,
        sum=histogram.sum,
        bucket_counts=histogram.counts,
        explicit_bounds=histogram.bounds,
        min=unknown,
        max=unknown,
    )


def _number(value: Value) -> float:
    return cast(float, value)


def _resource(sink: SinkFacts) -> Resource:
    """The resource attributes of the metrics. Environment variables take precedence."""
    own = Resource(
        {
            "service.name": "calving",
            "service.namespace": sink.name,
            "service.instance.id": sink.member,
            "service.version": sink.version,
        }
    )
    return own.merge(OTELResourceDetector().detect())


def _with_path(endpoint: str) -> str:
    parts = urlsplit(endpoint)
    return endpoint if parts.path.strip("/") else parts._replace(path="/v1/metrics").geturl()


def _interval() -> float:
    text = os.environ.get("OTEL_METRIC_EXPORT_INTERVAL") or "60000"
    try:
        seconds = float(text) / 1000
    except ValueError:
        seconds = 0.0
    if seconds <= 0:
        raise ConfigError(f"OTEL_METRIC_EXPORT_INTERVAL = {text!r} is not a number of milliseconds")
    return seconds


def _nanos(seconds: float) -> int:
    return int(seconds * 1e9)
