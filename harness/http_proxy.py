"""An HTTP proxy before an object store or a catalog, which treats some requests as a busy one or a bad network does."""

from __future__ import annotations

import json
import re
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, cast

from calving.services.process import LOOPBACK

Fate = Literal["answered", "busy", "reset", "answer lost"]
"""``busy``: 503 SlowDown. ``reset``: the connection is, and the store hears nothing. ``answer lost``: the store does as
it is asked, then the connection is reset.
"""
_SECONDS = 60.0
_SIGNER = re.compile(r"Credential=([^/]+)/")
_BEARER = "Bearer "
_BUSY = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
_OF_ONE_HOP = ("connection", "expect", "transfer-encoding")


@dataclass(frozen=True)
class Request:
    """``path`` with its query; ``size`` of its body; ``signer``: the access key that has signed it; ``token``: that of
    a bearer.
    """

    method: str
    path: str
    size: int
    signer: str = ""
    token: str = ""


@dataclass(frozen=True)
class Answer:
    """The proxy's own, in JSON; the server hears nothing."""

    status: int
    body: Mapping[str, object]


class HttpProxy:
    """Passes requests on to a port, headers and body unchanged, so that signatures hold.

    ``change`` makes the body of an answer.
    """

    def __init__(
        self,
        target: int,
        decide: Callable[[Request], Fate | Answer] = lambda request: "answered",
        change: Callable[[Request, bytes], bytes] = lambda request, body: body,
    ) -> None:
        self._server = _Server((LOOPBACK, 0), _Handler)
        self._server.target, self._server.decide, self._server.change = target, decide, change
        self.uri = f"http://{LOOPBACK}:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, name="http-proxy", daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    target: int
    decide: Callable[[Request], Fate | Answer]
    change: Callable[[Request, bytes], bytes]

    def shutdown_request(self, request: Any) -> None:
        self.close_request(request)  # a shutdown before it would end the connection in order

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone is no error of the proxy."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self._server = cast("_Server", self.server)
        self._far = HTTPConnection(LOOPBACK, self._server.target, timeout=_SECONDS)

    def finish(self) -> None:
        self._far.close()
        super().finish()

    def _serve(self) -> None:
        body = self._body()
        login = self.headers.get("Authorization", "")
        found = _SIGNER.search(login)
        token = login.removeprefix(_BEARER) if login.startswith(_BEARER) else ""
        request = Request(self.command, self.path, len(body), found[1] if found is not None else "", token)
        fate = self._server.decide(request)
        if isinstance(fate, Answer):
            self._answer(fate.status, [("Content-Type", "application/json")], json.dumps(fate.body).encode())
        elif fate == "busy":
            self._answer(503, [("Content-Type", "application/xml"), ("Connection", "close")], _BUSY)
        elif fate == "reset":
            self._reset()
        else:
            try:
                answer = self._asked(body)
                data = answer.read()
            except (OSError, HTTPException):
                self._reset()
                return
            if fate == "answer lost":
                self._reset()
            else:
                self._answer(answer.status, answer.getheaders(), self._server.change(request, data))

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        found = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            found += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return found

    def _asked(self, body: bytes) -> HTTPResponse:
        """The store's answer to this request."""
        self._far.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in _OF_ONE_HOP:
                self._far.putheader(name, value)
        if is_chunked := "Transfer-Encoding" in self.headers:
            self._far.putheader("Transfer-Encoding", "chunked")
        self._far.endheaders(body, encode_chunked=is_chunked)
        return self._far.getresponse()

    def _answer(self, status: int, headers: list[tuple[str, str]], data: bytes) -> None:
        self.send_response_only(status)
        length = str(len(data))
        for name, value in headers:
            if name.lower() == "content-length":
                length = value if self.command == "HEAD" else length  # that of the object
            elif name.lower() not in _OF_ONE_HOP[1:]:
                self.send_header(name, value)
                self.close_connection |= (name.lower(), value.lower()) == ("connection", "close")
        if status not in (204, 304):
            self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else data)

    def _reset(self) -> None:
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def log_message(self, format: str, *args: Any) -> None:
        """Each request would be a line on standard error."""
