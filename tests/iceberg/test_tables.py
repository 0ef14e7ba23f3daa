"""Which tables a sink keeps looking at: names come from records, and there may be any number."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from calving.errors import UnavailableError
from calving.iceberg.catalog import open_catalog
from calving.iceberg.rules import TableRules
from calving.iceberg.tables import Tables
from calving.model.tables import SchemaChange
from tests.iceberg.refusing import deny

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False))


def test_a_table_that_no_record_has_named_for_ten_minutes_is_not_looked_at(tmp_path: Path) -> None:
    catalog = open_catalog("c", {"type": "embedded", "warehouse": str(tmp_path)})
    catalog.create_namespace("db")
    for name in ("db.busy", "db.idle"):
        catalog.create_table(name, SCHEMA)
    now = [0.0]
    tables = Tables(catalog, "c", TableRules(), lambda: now[0])
    tables.refresh(["db.busy", "db.idle", "db.wrong"])
    for now[0] in (300.0, 700.0):
        tables.reference("db.busy")
        tables.drop_unused()
    assert tables.specs().keys() == {"db.busy"}
    assert not tables.missing


def test_an_idle_table_of_the_settings_that_is_denied_does_not_hold_up_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = open_catalog("c", {"type": "embedded", "warehouse": str(tmp_path)})
    catalog.create_namespace("db")
    names = ["db.busy", "db.idle"]
    for name in names:
        catalog.create_table(name, SCHEMA)
    now = [0.0]
    tables = Tables(catalog, "c", TableRules(), lambda: now[0])
    tables.refresh(names)
    now[0] = 700.0
    tables.drop_unused(names)
    deny(monkeypatch, catalog, "load_table", "db.idle")
    tables.refresh(names)
    assert tables.specs().keys() == {*names}
    assert tables.troubled.keys() == {"db.idle"}


def test_a_table_that_cannot_be_loaded_is_known_as_such_when_a_batch_needs_another_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Credentials that expire while a table cannot be loaded are that trouble's, and one warning is enough."""
    catalog = open_catalog("c", {"type": "embedded", "warehouse": str(tmp_path)})
    catalog.create_namespace("db")
    for name in ("db.away", "db.well", "db.new"):
        catalog.create_table(name, SCHEMA)
    tables = Tables(catalog, "c", TableRules())
    tables.refresh(["db.away", "db.well"])
    deny(monkeypatch, catalog, "load_table", "db.away")
    tables.refresh(["db.away", "db.well"])
    tables.apply([SchemaChange("db.new", "load")])
    assert tables.troubled.keys() == {"db.away"}
    tables.refresh(["db.away", "db.well"])
    assert caplog.text.count("db.away") == 1


def test_no_more_than_a_thousand_names_of_missing_tables_are_kept(tmp_path: Path) -> None:
    catalog = open_catalog("c", {"type": "embedded", "warehouse": str(tmp_path)})
    tables = Tables(catalog, "c", TableRules())
    tables.refresh([f"db.t{n:04d}" for n in range(1_200)])
    tables.drop_unused()
    assert tables.missing.keys() == {f"db.t{n:04d}" for n in range(200, 1_200)}


def test_a_table_that_cannot_be_loaded_does_not_hold_up_the_others(tmp_path: Path) -> None:
    catalog = open_catalog("c", {"type": "embedded", "warehouse": str(tmp_path)})
    catalog.create_namespace("db")
    names = ["db.broken", "db.well"]
    for name in names:
        catalog.create_table(name, SCHEMA)
    tables = Tables(catalog, "c", TableRules())
    tables.refresh(names)
    before = tables.specs()
    (tmp_path / "db" / "broken" / "metadata").rename(tmp_path / "away")
    tables.refresh(names)
    assert tables.specs() == before
    with pytest.raises(UnavailableError, match=r"table db\.broken cannot be loaded"):
        tables.refresh(["db.broken"])  # no other tells that it is not the catalog
    with pytest.raises(UnavailableError, match=r"table db\.broken cannot be loaded"):
        Tables(catalog, "c", TableRules()).refresh(names)  # which has never seen it
