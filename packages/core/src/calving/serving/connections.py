"""Connections of the status server, with limits: on their number, and on how long a client may be silent."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

MOST = 100
"""The most open connections. One more closes the one that has been without a whole request for longest."""
HEAD_SECONDS = 10.0
"""The time for a TLS handshake and the head of the first request."""
IDLE_SECONDS = 30.0
"""The time from a request's head to the end of its answer, and from there to the next request's head."""


class HttpConnections:
    """The open connections, the one that has been without a whole request for longest first."""

    def __init__(self) -> None:
        self._open: dict[HttpConnection, None] = {}

    def use(self, connection: HttpConnection) -> None:
        """Note that a connection is new, or has sent a request."""
        self.drop(connection)
        self._open[connection] = None
        if len(self._open) > MOST:
            next(iter(self._open)).abort()

    def drop(self, connection: HttpConnection) -> None:
        self._open.pop(connection, None)


class HttpConnection(H11Protocol):
    """One connection. Its time limits hold for what the client sends, and for what it does not read."""

    def __init__(
        self,
        connections: HttpConnections,
        context: ssl.SSLContext | None,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._connections, self._context = connections, context
        self._raw: asyncio.Transport | None = None
        self._limit: asyncio.TimerHandle | None = None
        self._handshake: asyncio.Task[None] | None = None
        self._is_ready, self._early = False, b""

    def abort(self) -> None:
        """Close the connection, whatever is going on."""
        self._connections.drop(self)
        if self._limit is not None:
            self._limit.cancel()
        if self._raw is not None:
            self._raw.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._raw = transport
        self._connections.use(self)
        self._allow(HEAD_SECONDS)
        if self._context is None:
            self._begin(transport)
        else:
            transport.pause_reading()
            self._handshake = self.loop.create_task(self._secure(transport, self._context))

    async def _secure(self, transport: asyncio.Transport, context: ssl.SSLContext) -> None:
        """Begin TLS. It is not left to the listening socket, which would let any number of clients begin it."""
        try:
            secure = await self.loop.start_tls(
                transport, self, context, server_side=True, ssl_handshake_timeout=HEAD_SECONDS
            )
        except OSError:  # a client without TLS, or one that is gone
            secure = None
        if secure is None:
            self.abort()
            return
        self._begin(secure)
        if self._early:
            super().data_received(self._early)

    def _begin(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._is_ready = True

    def data_received(self, data: bytes) -> None:
        if self._is_ready:
            super().data_received(data)
        else:  # it came with the end of the handshake
            self._early += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.abort()
        if self._is_ready:
            super().connection_lost(exc)

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before and not self.cycle.response_complete:
            self._connections.use(self)
            self._allow(IDLE_SECONDS)

    def on_response_complete(self) -> None:
        self._allow(IDLE_SECONDS)
        super().on_response_complete()

    def _allow(self, seconds: float) -> None:
        if self._limit is not None:
            self._limit.cancel()
        self._limit = self.loop.call_later(seconds, self.abort)


def connection_maker(context: ssl.SSLContext | None) -> Callable[..., HttpConnection]:
    """What makes a server's connections. ``context``: the server's certificate, if it serves HTTPS."""
    connections = HttpConnections()

    def make(**arguments: Any) -> HttpConnection:
        return HttpConnection(connections, context, **arguments)

    return make
