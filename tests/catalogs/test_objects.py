"""A REST catalog whose certificate only its own authority vouches for, and which wants a login of pyiceberg's."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from calving.errors import ConfigError
from calving.iceberg.catalog import open_catalog
from calving.secrets import without_secrets
from tests.tls import Authority, Front


@contextmanager
def catalog_server(status: int = 200) -> Iterator[tuple[int, list[str]]]:
    """The port of a catalog that has no tables, and the logins that it was sent."""
    logins: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            logins.append(self.headers.get("Authorization", ""))
            body = json.dumps({"defaults": {}, "overrides": {}}).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1], logins
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_certificate_is_checked_with_the_bundle_of_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):  # requests prefers them
        monkeypatch.delenv(name, raising=False)
    authority = Authority(tmp_path / "own")
    with catalog_server() as (port, logins):
        front = Front(port, authority.issue("catalog"), authority.certificate)
        try:
            keys = {"type": "rest", "uri": f"https://127.0.0.1:{front.port}"}
            with pytest.raises(ConfigError, match=r"opened: set iceberg\.catalog\.ssl\.cabundle to"):
                open_catalog("iceberg", keys)
            assert not logins
            client = authority.issue("sink")
            keys |= {"ssl.cabundle": str(authority.certificate), "ssl.client.cert": str(client.certificate)}
            open_catalog("iceberg", keys | {"ssl.client.key": str(client.key)})
            assert len(logins) == 1
        finally:
            front.close()


def test_a_basic_login_is_sent() -> None:
    with catalog_server() as (port, logins):
        keys = {"type": "rest", "uri": f"http://127.0.0.1:{port}", "auth.type": "basic"}
        open_catalog("iceberg", keys | {"auth.basic.username": "sink", "auth.basic.password": "open-sesame"})
    assert logins == ["Basic c2luazpvcGVuLXNlc2FtZQ=="]


def test_the_password_of_a_login_is_masked_in_answers_of_the_catalog() -> None:
    with catalog_server() as (port, _):
        keys = {"type": "rest", "uri": f"http://127.0.0.1:{port}", "auth.type": "basic"}
        keys |= {"auth.basic.username": "sink", "auth.basic.password": "open-sesame"}
        catalog = open_catalog("iceberg", keys)
    assert without_secrets("you sent open-sesame", catalog.properties) == "you sent ***"


def test_an_address_without_a_catalog_is_named_with_the_likely_mistake() -> None:
    with catalog_server(status=404) as (port, _), pytest.raises(ConfigError, match="no REST catalog is at the address"):
        open_catalog("iceberg", {"type": "rest", "uri": f"http://127.0.0.1:{port}/v1"})
