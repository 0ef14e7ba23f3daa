"""Tables that are created and changed while others do the same, and catalogs with exceptions of their own."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables
from sqlalchemy import event
from sqlalchemy.exc import IntegrityError, OperationalError

from calving.errors import ConfigError, UnavailableError
from calving.iceberg.catalog import open_catalog, translate
from calving.iceberg.rules import TableRules
from calving.iceberg.tables import Tables
from calving.model.tables import SchemaChange

CREATE = SchemaChange("db.t", "create", (), {"struct": {"id": "long"}})


def raising(catalog: Catalog, monkeypatch: pytest.MonkeyPatch, name: str, error: Exception, *, first: bool) -> None:
    """The catalog fails with ``error``, after somebody else has done the same thing or (``first``) before anybody."""
    original = getattr(catalog, name)

    def fail(*args: Any, **kwargs: Any) -> None:
        if not first:
            original(*args, **kwargs)
        raise error

    monkeypatch.setattr(catalog, name, fail)


@pytest.mark.parametrize("what", ["create_table", "create_namespace"])
def test_what_somebody_else_created_meanwhile_is_taken_whatever_the_catalog_raises(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    raising(catalog, monkeypatch, what, IntegrityError("insert", {}, Exception("unique constraint")), first=False)
    tables = Tables(catalog, "iceberg", TableRules())
    tables.apply([CREATE])
    assert "db.t" in tables.specs()


@pytest.mark.parametrize("what", ["create_table", "create_namespace"])
def test_what_a_catalog_raises_that_is_away_is_tried_again(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    raising(catalog, monkeypatch, what, OperationalError("insert", {}, Exception("locked")), first=True)
    with pytest.raises(UnavailableError, match=r"db.* was not created: OperationalError"):
        Tables(catalog, "iceberg", TableRules()).apply([CREATE])


def test_a_new_catalog_that_two_workers_open_at_once_is_there_for_both(tmp_path: Path) -> None:
    """The other one makes the catalog's own tables when this one is about to, and has found none."""
    others: list[Catalog] = []

    def meanwhile(*_: object, **__: object) -> None:
        others.append(open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)}))

    event.listen(IcebergTables.__table__, "before_create", meanwhile, once=True)
    open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)}).create_namespace("db")
    assert others[0].list_namespaces() == [("db",)]


@pytest.mark.parametrize("what", ["create_table", "create_namespace"])
def test_what_two_workers_create_at_once_is_there_once(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """The other one does it all just before this one's request, which the catalog itself refuses."""
    other = Tables(open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)}), "iceberg", TableRules())
    original = getattr(catalog, what)

    def late(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.undo()
        other.apply([CREATE])
        return original(*args, **kwargs)

    monkeypatch.setattr(catalog, what, late)
    tables = Tables(catalog, "iceberg", TableRules())
    tables.apply([CREATE])
    assert tables.specs() == other.specs()


@contextlib.contextmanager
def answering(code: int, seconds: float = 0.0) -> Iterator[str]:
    """The address of a REST catalog that answers everything so, after these seconds."""

    class Catalog(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            ended.wait(seconds)
            body = json.dumps({"error": {"message": "not now", "type": "E", "code": code}}).encode()
            with contextlib.suppress(OSError):
                self.send_response(code)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    ended, server = threading.Event(), ThreadingHTTPServer(("127.0.0.1", 0), Catalog)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        ended.set()
        server.shutdown()


def opened(uri: str) -> Catalog:
    return open_catalog("c", {"type": "rest", "uri": uri, "token": "hunter2"})


def test_a_catalog_that_is_not_there_is_tried_again() -> None:
    with pytest.raises(
        UnavailableError,
        match=r"http://127\.0\.0\.1:1: the catalog 'c' does not answer: .*\(\[Errno 111\] C\w+ r\w+\)$",
    ):
        opened("http://127.0.0.1:1")
    with answering(503) as uri, pytest.raises(UnavailableError, match=r"does not answer: .*not now"):
        opened(uri)


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}", "file://localhost{}"])
def test_each_form_of_a_local_warehouse_names_the_same_folder(tmp_path: Path, form: str) -> None:
    folder = tmp_path / "lake"
    translated = translate({"type": "embedded", "warehouse": form.format(folder)})
    assert translated["warehouse"] == f"file://{folder}"
    assert folder.is_dir()


@pytest.mark.parametrize(
    ("kind", "uri"),
    [
        ("sql", "postgresql+psycopg2://u:hunter2@127.0.0.1:1/lake"),
        ("jdbc", "jdbc:postgresql://127.0.0.1:1/lake?user=u&password=hunter2"),
    ],
)
def test_a_database_that_is_not_there_is_tried_again(kind: str, uri: str) -> None:
    with pytest.raises(UnavailableError, match=r"the catalog 'c' does not answer: start it, .*refused\)$") as away:
        open_catalog("c", {"type": kind, "uri": uri, "warehouse": "s3://b/w"})
    assert "hunter2" not in str(away.value)


@pytest.mark.parametrize(
    "said",
    [
        'FATAL:  password authentication failed for user "u"',
        'FATAL:  database "lake" does not exist',
        "(1045, \"Access denied for user 'u'@'h' (using password: YES)\")",
        "(1049, \"Unknown database 'lake'\")",
    ],
)
def test_a_database_that_refuses_the_login_is_not_tried_again(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    def refuse(*_: object, **__: object) -> Catalog:
        raise OperationalError("select", {}, Exception(said))

    monkeypatch.setattr("calving.iceberg.catalog.load_catalog", refuse)
    with pytest.raises(ConfigError, match="cannot be opened"):
        open_catalog("c", {"type": "sql", "uri": "postgresql+psycopg2://h/lake"})


def test_a_catalog_that_hangs_holds_up_a_start_for_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calving.iceberg.catalog.LOOK_SECONDS", 0.5)
    with answering(200, seconds=30.0) as uri, pytest.raises(UnavailableError, match="no answer within"):
        opened(uri)


def test_a_catalog_that_refuses_the_token_is_not_tried_again() -> None:
    with answering(401) as uri, pytest.raises(ConfigError, match=r"cannot be opened: .*not now") as refused:
        opened(uri)
    assert "does not accept the login of iceberg.catalog.token" in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_a_catalog_that_wants_a_login_and_gets_none_says_which_keys_there_are() -> None:
    with answering(401) as uri, pytest.raises(ConfigError, match=r"wants a login .*: set iceberg\.catalog\.token or"):
        open_catalog("c", {"type": "rest", "uri": uri})
