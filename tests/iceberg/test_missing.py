"""Only a table that does not exist counts as missing: records for it may be skipped."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from calving.errors import UnavailableError
from calving.iceberg.catalog import find_table, open_catalog


class Lost(BaseHTTPRequestHandler):
    """A proxy that does not know where the catalog is: every path but the configuration is a 404 of its own."""

    def do_GET(self) -> None:
        known = self.path.startswith("/v1/config")
        body = b'{"defaults":{},"overrides":{}}' if known else b"<h1>404 page not found</h1>"
        self.send_response(200 if known else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def lost_uri() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Lost)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def test_a_404_that_does_not_name_the_table_says_nothing_of_it(lost_uri: str) -> None:
    catalog = open_catalog("c", {"type": "rest", "uri": lost_uri})
    with pytest.raises(UnavailableError, match="answers 404 without saying"):
        find_table(catalog, ("db", "t"))


def test_a_catalog_that_names_the_table_or_the_namespace_is_believed(rest_uri: str, unique: str) -> None:
    catalog = open_catalog("c", {"type": "rest", "uri": rest_uri})
    assert find_table(catalog, (f"{unique}missing", "t")) is None
    catalog.create_namespace(unique)
    assert find_table(catalog, (unique, "t")) is None
