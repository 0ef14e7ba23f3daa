"""The proxy before an object store: what it passes on is unchanged, and the rest fails as it is told to."""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest

from harness.http_proxy import Fate, HttpProxy, Request


class _Echo(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    heard: list[bytes]

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.heard.append(body)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Host-Was", self.headers["Host"])
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def store() -> Iterator[ThreadingHTTPServer]:
    _Echo.heard = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Echo)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@contextlib.contextmanager
def asking(store: ThreadingHTTPServer, fate: Fate) -> Iterator[http.client.HTTPConnection]:
    proxy = HttpProxy(
        store.server_address[1], lambda request: fate if request == Request("PUT", "/a?b=c", 4) else "reset"
    )
    address = urlsplit(proxy.uri).netloc
    connection = http.client.HTTPConnection(address, timeout=10)
    try:
        connection.request("PUT", "/a?b=c", b"body", {"Expect": "100-continue"})
        yield connection
    finally:
        connection.close()
        proxy.close()


def test_an_answer_passes_with_its_body_and_the_request_keeps_its_host(store: ThreadingHTTPServer) -> None:
    with asking(store, "answered") as connection:
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (200, b"body")
        assert answer.headers["Host-Was"] == f"{connection.host}:{connection.port}"


def test_a_busy_store_answers_503_and_does_nothing(store: ThreadingHTTPServer) -> None:
    with asking(store, "busy") as connection:
        answer = connection.getresponse()
        assert (answer.status, b"<Code>SlowDown</Code>" in answer.read()) == (503, True)
    assert _Echo.heard == []


@pytest.mark.parametrize(("fate", "heard"), [("reset", []), ("answer lost", [b"body"])])
def test_a_connection_is_reset_before_or_after_the_store_has_heard(
    store: ThreadingHTTPServer, fate: Fate, heard: list[bytes]
) -> None:
    with asking(store, fate) as connection, pytest.raises(ConnectionResetError):
        connection.getresponse()
    assert _Echo.heard == heard
