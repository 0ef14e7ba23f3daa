"""Tables that are created and changed while others do the same, and catalogs with exceptions of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables
from sqlalchemy import event
from sqlalchemy.exc import IntegrityError, OperationalError

from calving.errors import UnavailableError
from calving.iceberg.catalog import open_catalog
from calving.iceberg.rules import TableRules
from calving.iceberg.tables import Tables
from calving.model.tables import SchemaChange

CREATE = SchemaChange("db.t", "create", (), {"struct": {"id": "long"}})


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)})


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
