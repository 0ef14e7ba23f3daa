"""The status server, on its own thread. Its connections are limited in their number, and in how long a client may be
silent.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any

import h11
import uvicorn
from anyio import to_thread
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from calving.errors import ConfigError
from calving.serving.history import LOOK_SECONDS, SECONDS, Events, History
from calving.serving.offsets import PATIENCE
from calving.serving.routes import Controls, Endpoints
from calving.serving.tls import tls_context
from calving.settings.load import Sink

MOST = 100
"""The most open connections. One more closes the one that has been without a whole request for longest."""
HEAD_SECONDS = 10.0
"""The time for a TLS handshake and the head of the first request."""
IDLE_SECONDS = 30.0
"""The time from a request's head to the end of its answer, and from there to the next request's head."""
WORK_SECONDS = 900.0
"""The same where an operator's request waits for services: a client that got no answer would send it again."""


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
            self.cycle.scope["state"][PATIENCE] = lambda: self._allow(WORK_SECONDS)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP. It may be in the body of a request, which then gets no other answer; one that has
        begun is not followed by a second one. uvicorn would log a failure of its own, and anybody can cause it.
        """
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()

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


log = logging.getLogger(__name__)

_BACKLOG = 100
"""The most clients whose connections the server has not accepted yet, and accepts at once."""
_LOOKS = round(SECONDS / LOOK_SECONDS)
"""How many looks for events there are from one sample for the charts to the next."""
_EVERY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104 - to be known, not listened on


class _Uvicorn(uvicorn.Server):
    """A server that sleeps until it is closed. Checking ten times a second would be most of its CPU in an idle sink."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._closed = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def main_loop(self) -> None:
        self._loop = asyncio.get_running_loop()
        # Answers need the interpreter, and nothing else. More threads would only take it from the sink's own.
        to_thread.current_default_thread_limiter().total_tokens = 1
        await self.on_tick(0)
        if not self.should_exit:
            await self._closed.wait()

    def close(self) -> None:
        """Close the server. Any thread may call it; it does not wait."""
        self.should_exit = self.force_exit = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended already
                self._loop.call_soon_threadsafe(self._closed.set)


def _is_error(record: logging.LogRecord) -> bool:
    """Requests that the server cuts off when it closes are no errors: anybody can have many of them wait."""
    return record.exc_info is None or not isinstance(record.exc_info[1], asyncio.CancelledError)


logging.getLogger("uvicorn.error").addFilter(_is_error)


class StatusServer:
    def __init__(self, sink: Sink, controls: Controls, history: History | None = None) -> None:
        """Start to listen. ``history``: earlier samples.

        :raises ConfigError: the server cannot listen on the address.
        """
        keys = sink.keys
        bound = _bound(keys.http_host, keys.http_port or 0)
        host = f"[{keys.http_host}]" if ":" in keys.http_host else keys.http_host
        port = bound.getsockname()[1]
        self.address = f"{host}:{port}"
        scheme = "http" if keys.http_certificate is None else "https"
        self.url = f"{scheme}://{self.address}/"
        self.advertised = keys.http_advertised or self.url
        """The URL for other hosts."""
        if keys.http_advertised is None and keys.http_host in _EVERY_ADDRESS:
            self.advertised = f"{scheme}://{socket.gethostname()}:{port}/"
        self._history, self._controls, self._events = history or History(), controls, Events()
        config = uvicorn.Config(
            Endpoints(sink, controls, self._history, self._events, self.address, self.advertised).app(),
            http=connection_maker(tls_context(keys)),  # type: ignore[arg-type]  # it is called as the class would be
            log_config=None,
            log_level="error",  # anybody can cause warnings
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            date_header=False,
            backlog=_BACKLOG,
        )
        self._server = _Uvicorn(config)
        self._ended = threading.Event()
        threading.Thread(target=self._serve, args=(bound,), name="calving-http", daemon=True).start()
        threading.Thread(target=self._sample, name="calving-history", daemon=True).start()
        log.info("status page: %s", self.url)

    def close(self) -> None:
        """Stop the server, without waiting for clients that still read."""
        self._ended.set()
        self._server.close()

    def _serve(self, bound: socket.socket) -> None:
        try:
            self._server.run(sockets=[bound])
        except Exception:  # the sink continues without it
            log.exception("the status server has ended")
        finally:
            bound.close()

    def _sample(self) -> None:
        looks = 0
        while not self._ended.is_set():
            status, now = self._controls.status, time.time()
            if looks % _LOOKS == 0:
                self._history.sample(status, now)
            self._events.look(status, now)
            looks += 1
            self._ended.wait(LOOK_SECONDS)


def _bound(host: str, port: int) -> socket.socket:
    try:
        (family, kind, protocol, _, address), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)  # a client that connects before the server runs waits
    except OSError as error:
        raise ConfigError(
            f"iceberg.http.port: the server cannot listen on {host}:{port}: {error.strerror or error}"
        ) from error
    return listener
