"""Metrics for OpenTelemetry's collectors, as one gets them over HTTP."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from calving.errors import ConfigError
from calving.serving.metrics import METRICS
from calving.serving.otel import Exporter
from harness.waiting import wait_for
from tests.serving.collector import Collector, collecting, sinks_of, values
from tests.serving.sinks import sink, status


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as found:
        yield found


@pytest.fixture
def export(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Exporter]]:
    made: list[Exporter] = []

    def start(url: str, **variables: str) -> Exporter:
        for name, value in {"OTEL_METRIC_EXPORT_INTERVAL": "50", **variables}.items():
            monkeypatch.setenv(name, value)
        found = status()
        made.append(Exporter(url, lambda: found))
        return made[0]

    yield start
    for each in made:
        each.close()


def test_a_collector_gets_every_metric_that_prometheus_does(
    collector: Collector, export: Callable[..., Exporter]
) -> None:
    export(collector.url)
    collector.wait_for(1)
    assert collector.headers[0]["path"] == "/v1/metrics"
    found = collector.metrics
    with_values = {m.name for m in METRICS if list(m.read(status(), time.time()))}
    assert found.keys() == with_values
    assert {m.name: m.description for m in found.values()} == {m.name: m.text for m in METRICS if m.name in found}
    assert values(found["calving_records_read_total"]) == {("orders",): 1_000_000}
    assert values(found["calving_source_lag_records"])["orders", "0"] == 10_000


def test_every_point_names_its_sink(collector: Collector, export: Callable[..., Exporter]) -> None:
    export(collector.url)
    collector.wait_for(1)
    assert {name for metric in collector.metrics.values() for name in sinks_of(metric)} == {"orders"}


def test_counters_are_sums_and_histograms_keep_their_buckets(
    collector: Collector, export: Callable[..., Exporter]
) -> None:
    export(collector.url)
    collector.wait_for(1)
    kinds = {m.name: m.WhichOneof("data") for m in collector.metrics.values()}
    expected = {"counter": "sum", "histogram": "histogram", "gauge": "gauge", "info": "gauge"}
    assert kinds == {m.name: expected[m.kind] for m in METRICS if m.name in kinds}
    read = collector.metrics["calving_records_read_total"].sum
    assert read.is_monotonic and read.aggregation_temporality == 2
    assert read.data_points[0].start_time_unix_nano == int(status().sink.started_at * 1e9)
    batches = collector.metrics["calving_batch_duration_seconds"]
    (point,) = batches.histogram.data_points
    own = status().worker.batches.seconds
    assert (tuple(point.bucket_counts), tuple(point.explicit_bounds)) == (own.counts, own.bounds)
    assert (point.count, point.sum, point.HasField("max"), batches.unit) == (own.count, own.sum, False, "s")


def test_the_environment_means_what_it_means_to_opentelemetry(
    collector: Collector, export: Callable[..., Exporter], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "calving")
    export(
        collector.url,
        OTEL_EXPORTER_OTLP_HEADERS="api-key=hunter2",
        OTEL_EXPORTER_OTLP_COMPRESSION="gzip",
        OTEL_SERVICE_NAME="our-calving",
        OTEL_RESOURCE_ATTRIBUTES="deployment.environment=test",
    )
    collector.wait_for(1)
    assert (collector.headers[0]["api-key"], collector.headers[0]["content-encoding"]) == ("hunter2", "gzip")
    resource = collector.resource
    assert (resource["service.name"], resource["deployment.environment"]) == ("our-calving", "test")
    assert (resource["service.namespace"], resource["service.instance.id"]) == ("orders", "m-1")
    assert "hunter2" not in caplog.text


def test_a_collector_that_refuses_is_told_once_and_once_it_takes_them_again(
    collector: Collector, export: Callable[..., Exporter], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    collector.code = 403
    export(collector.url)
    collector.wait_for(4)
    collector.code = 200
    wait_for(lambda: len(caplog.messages) > 1, 120, 0.02)
    assert caplog.messages == [
        "the collector at 127.0.0.1 does not accept metrics: HTTP 403; retrying",
        "the collector at 127.0.0.1 accepts metrics again",
    ]


def test_a_collector_that_is_not_there_is_told_once_and_holds_up_no_end(
    export: Callable[..., Exporter], caplog: pytest.LogCaptureFixture
) -> None:
    exporter = export("http://127.0.0.1:1/v1/metrics", OTEL_EXPORTER_OTLP_TIMEOUT="1")
    wait_for(lambda: bool(caplog.messages), 120, 0.02)
    time.sleep(0.3)
    started = time.monotonic()
    exporter.close()
    assert time.monotonic() - started < 4
    assert caplog.messages == ["the collector at 127.0.0.1 does not accept metrics: no answer; retrying"]


@pytest.mark.parametrize("end", ["", "/", "/v1/metrics"])
def test_a_collectors_path_for_metrics_need_not_be_written(
    collector: Collector, export: Callable[..., Exporter], end: str
) -> None:
    export(collector.url.removesuffix("/v1/metrics") + end, OTEL_METRIC_EXPORT_INTERVAL="3600000").close()
    assert collector.headers[0]["path"] == "/v1/metrics"


def test_the_last_values_are_sent_at_the_end(collector: Collector, export: Callable[..., Exporter]) -> None:
    export(collector.url, OTEL_METRIC_EXPORT_INTERVAL="3600000").close()
    assert len(collector.requests) == 1


def test_an_interval_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "often")
    with pytest.raises(ConfigError, match="OTEL_METRIC_EXPORT_INTERVAL = 'often' is not a number of milliseconds"):
        Exporter("http://127.0.0.1:1/v1/metrics", status)


def test_an_endpoint_that_is_no_address_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"iceberg\.otel\.endpoint"):
        sink(**{"iceberg.otel.endpoint": "collector:4318"})


def test_a_login_in_the_endpoint_is_not_shown() -> None:
    key = "iceberg.otel.endpoint"
    given = sink(**{key: "https://calving:hunter2@collector/v1/metrics"}).given
    assert given[key] == "https://***@collector/v1/metrics"


def test_a_sink_that_exports_nothing_does_not_import_it() -> None:
    """Nor does anything else that a worker imports."""
    code = (
        "import sys, calving.runtime.app, calving.runtime.parts, calving.serving.server;"
        "assert not [m for m in sys.modules if m.startswith('opentelemetry')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
