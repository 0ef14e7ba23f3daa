"""A collector of OpenTelemetry that keeps what it gets."""

from __future__ import annotations

import contextlib
import gzip
import http.server
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from harness.waiting import wait_for


@dataclass
class Collector:
    """Decodes what it gets, and answers with ``code``."""

    code: int = 200
    requests: list[ExportMetricsServiceRequest] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    url: str = ""

    def wait_for(self, count: int) -> None:
        wait_for(lambda: len(self.requests) >= count, 120, 0.02)

    @property
    def resource(self) -> dict[str, str]:
        (found,) = self.requests[-1].resource_metrics
        return {a.key: a.value.string_value for a in found.resource.attributes}

    @property
    def metrics(self) -> dict[str, Any]:
        (found,) = self.requests[-1].resource_metrics
        (scope,) = found.scope_metrics
        return {metric.name: metric for metric in scope.metrics}


@contextlib.contextmanager
def collecting() -> Iterator[Collector]:
    found = Collector()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            found.headers.append({name.lower(): value for name, value in self.headers.items()} | {"path": self.path})
            found.requests.append(ExportMetricsServiceRequest.FromString(body))
            self.send_response(found.code)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    found.url = f"http://127.0.0.1:{server.server_port}/v1/metrics"
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()


def values(metric: Any) -> dict[tuple[str, ...], float]:
    """By the attributes beside the sink's name."""
    points = getattr(metric, metric.WhichOneof("data")).data_points
    return {
        tuple(a.value.string_value for a in p.attributes if a.key != "sink"): p.as_double or p.as_int for p in points
    }


def sinks_of(metric: Any) -> set[str]:
    """The names of sinks in the points' attributes; an empty name for a point without one."""
    points = getattr(metric, metric.WhichOneof("data")).data_points
    return {next((a.value.string_value for a in p.attributes if a.key == "sink"), "") for p in points}
