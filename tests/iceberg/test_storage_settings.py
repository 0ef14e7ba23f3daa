"""Whoever may write to a table decides neither with which class, nor at which address, its files are reached."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField

from calving.iceberg.catalog import find_table, open_catalog

HOSTILE = {
    "py-io-impl": "builtins.exit",
    "s3.endpoint": "http://evil.example.com",
    "s3.proxy-uri": "http://evil.example.com",
    "s3.signer.uri": "http://evil.example.com",
    "s3.retry-strategy-impl": "builtins.exit",
    "gcs.service.host": "http://evil.example.com",
    "token": "another",
}
SCHEMA = Schema(NestedField(1, "id", LongType(), required=False))


def is_harmless(table: Table) -> bool:
    """Whether nothing that the table itself says is in what reaches its files."""
    return not any(value in table.io.properties.values() for value in HOSTILE.values())


@pytest.fixture
def table(catalog: Catalog) -> Table:
    catalog.create_namespace("db")
    return catalog.create_table("db.t", SCHEMA, properties=HOSTILE)


def test_a_new_table_is_reached_by_the_settings_alone(table: Table) -> None:
    assert table.metadata.properties.items() >= HOSTILE.items()
    assert is_harmless(table)


def test_a_table_is_reached_by_the_settings_alone(catalog: Catalog, table: Table) -> None:
    found = find_table(catalog, ("db", "t"))
    assert found is not None
    assert is_harmless(found)
    assert found.io.properties["warehouse"] == catalog.properties["warehouse"]


def test_a_table_is_reached_by_the_settings_alone_after_a_commit(table: Table) -> None:
    table.transaction().set_properties({"x": "y"}).commit_transaction()
    assert is_harmless(table)
    assert is_harmless(table.refresh())


class Server(BaseHTTPRequestHandler):
    """A REST catalog with one table, which gives settings for it and lends credentials."""

    metadata: ClassVar[dict[str, Any]]

    def do_GET(self) -> None:
        answer: dict[str, Any] = {"defaults": {}, "overrides": {"s3.region": "of-server"}}
        if not self.path.startswith("/v1/config"):
            answer = {
                "metadata-location": "s3://b/t/metadata/1.metadata.json",
                "metadata": self.metadata,
                "config": {"s3.endpoint": "http://of-answer", "s3.access-key-id": "k"},
                "storage-credentials": [{"prefix": "s3://b/t", "config": {"s3.access-key-id": "lent"}}],
            }
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def uri(table: Table) -> Iterator[str]:
    Server.metadata = json.loads(table.metadata.model_dump_json())
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def test_a_table_of_a_rest_catalog_is_reached_by_the_settings_and_the_server_alone(uri: str) -> None:
    rest = open_catalog("c", {"type": "rest", "uri": uri, "token": "own", "s3.connect-timeout": "7"})
    found = find_table(rest, ("db", "t"))
    assert found is not None
    assert found.metadata.properties.items() >= HOSTILE.items()
    assert is_harmless(found)
    given = {
        "token": "own",
        "s3.connect-timeout": "7",
        "s3.region": "of-server",
        "s3.endpoint": "http://of-answer",
        "s3.access-key-id": "lent",
    }
    assert found.io.properties.items() >= given.items()
