"""What shows the status of a worker to others: its status server, its webhook, and its export to a collector."""

from __future__ import annotations

from typing import TYPE_CHECKING

from calving.settings.load import Sink

if TYPE_CHECKING:
    from calving.serving.otel import Exporter
    from calving.serving.routes import Controls
    from calving.serving.server import StatusServer
    from calving.serving.webhook import Webhook


class Presenters:
    """Those that the settings ask for. A sink without one of them does not import it."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.server: StatusServer | None = None
        self._webhook: Webhook | None = None
        self._otel: Exporter | None = None

    @property
    def url(self) -> str | None:
        """The URL of the status page; None if it is not served."""
        return None if self.server is None else self.server.url

    @property
    def advertised(self) -> str:
        """The URL of the status server for others; empty if there is none."""
        return "" if self.server is None else self.server.advertised

    def start(self, controls: Controls) -> None:
        """:raises ConfigError: the status server cannot listen."""
        keys = self._sink.keys
        if keys.http_port is not None:
            from calving.serving.server import StatusServer

            self.server = StatusServer(self._sink, controls)
        if keys.webhook_url is not None:
            from calving.serving.webhook import Webhook

            self._webhook = Webhook(keys.webhook_url, lambda: controls.status)
        if keys.otel_endpoint is not None:
            from calving.serving import otel

            if not otel.disabled():
                self._otel = otel.Exporter(keys.otel_endpoint, lambda: controls.status)

    def close(self) -> None:
        for part in (self.server, self._webhook, self._otel):
            if part is not None:
                part.close()
