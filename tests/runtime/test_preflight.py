"""The checks before a start, where one table cannot be read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from calving.errors import ConfigError, UnavailableError
from calving.iceberg.catalog import open_catalog
from calving.iceberg.maintenance import check_forms
from calving.protocol.forms import FORM
from calving.protocol.ledger_key import SOURCE_OFFSETS
from calving.protocol.recovery import AWAITED_OFFSETS
from calving.runtime.preflight import held, on_rollback, others_of, owner_of
from tests.serving.sinks import sink


def test_a_worker_that_starts_over_does_without_one_table_that_it_has_loaded_before(tmp_path: Path) -> None:
    catalog = open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)})
    catalog.create_namespace("db")
    names = ["db.broken", "db.well"]
    known = {
        name: catalog.create_table(name, Schema(NestedField(1, "id", LongType(), required=False))) for name in names
    }
    (tmp_path / "db" / "broken" / "metadata").rename(tmp_path / "away")
    found = dict(held(catalog, sink(), "log", names, known))
    assert found.keys() == set(names)
    # A coordinator takes only what it sees for the table's present state, and loads the other one with its next commit.
    assert found["db.broken"].mark is None and found["db.well"].mark is not None
    with pytest.raises(UnavailableError, match=r"table db\.broken cannot be loaded"):
        dict(held(catalog, sink(), "log", names))


@pytest.mark.parametrize("name", [FORM, SOURCE_OFFSETS, AWAITED_OFFSETS])
@pytest.mark.parametrize("is_own", [True, False])
def test_a_property_that_somebody_has_changed_is_named_with_its_table(tmp_path: Path, name: str, is_own: bool) -> None:
    catalog = open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)})
    catalog.create_namespace("db")
    owner = owner_of(sink()) if is_own else "control.connect-other"
    properties = {f"{SOURCE_OFFSETS}.{owner}": "{}", f"{name}.{owner}": "damaged"}
    schema = Schema(NestedField(1, "id", LongType(), required=False))
    catalog.create_table("db.t", schema, properties=properties)
    sentence = rf"^table db\.t: '{re.escape(name)}\.{re.escape(owner)}' .* is not what calving writes: 'damaged'"
    if name != AWAITED_OFFSETS or is_own:
        with pytest.raises(ConfigError, match=sentence):
            dict(held(catalog, sink(**{"iceberg.tables": "db.t"}), "log", ["db.t"]))
    if name == FORM:
        with pytest.raises(ConfigError, match=sentence):
            check_forms("db.t", properties)


@pytest.mark.parametrize(
    ("keys", "policies"),
    [
        ({}, ["continue", "stop"]),
        ({"iceberg.tables.on-rollback": "stop-on-doubt"}, ["stop-on-doubt", "stop-on-doubt"]),
        ({"iceberg.table.db.a.on-rollback": "stop"}, ["stop", "stop"]),
        (
            {"iceberg.tables.on-rollback": "stop", "iceberg.table.db.b.on-rollback": "continue"},
            ["stop", "continue"],
        ),
    ],
)
def test_a_table_of_changes_stops_after_a_rollback_unless_the_settings_say_otherwise(
    keys: dict[str, str], policies: list[str]
) -> None:
    changes = {"iceberg.table.db.b.upsert-mode-enabled": "true", "iceberg.table.db.b.id-columns": "id"}
    configured = sink(**{"iceberg.tables": "db.a,db.b", **changes, **keys})
    assert [on_rollback(configured, name) for name in ("db.a", "db.b")] == policies


def test_no_backfill_is_taken_for_a_former_name_of_a_sink() -> None:
    properties = {f"{SOURCE_OFFSETS}.{name}": "{}" for name in ("c.a", "c.a.backfill.x", "c.b.backfill.y@dropped")}
    assert others_of(properties, ["main"], []).keys() == {"c.a"}
