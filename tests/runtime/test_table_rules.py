"""Which settings a table is created with."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from calving.iceberg.catalog import open_catalog
from calving.iceberg.rules import TableSettings
from calving.iceberg.tables import Tables
from calving.model.tables import SchemaChange
from calving.runtime.parts import table_rules
from calving.settings.load import parse
from calving.source.interface import Source

SETTINGS = {
    "name": "s",
    "topics": "t",
    "iceberg.tables": "db.t",
    "iceberg.tables.default-id-columns": "id",
    "iceberg.tables.default-partition-by": "day(ts)",
    "iceberg.tables.default-columns": "reason long",
    "iceberg.tables.cdc-field": "op",
    "errors.tolerance": "all",
    "errors.deadletterqueue.table": "db.dead",
    "kafka.bootstrap.servers": "localhost:9092",
}
NO_TOPICS = cast(Source, None)
"""They are asked only for what a table has left out."""


def test_the_dead_letter_table_takes_none_of_the_defaults_of_tables_of_records() -> None:
    assert table_rules(parse(SETTINGS), NO_TOPICS).of("db.dead") == TableSettings()


def test_the_dead_letter_table_has_partitions_and_a_location_of_its_own() -> None:
    own = {"iceberg.table.db.dead.partition-by": "day(timestamp)", "iceberg.table.db.dead.location": "file:///x"}
    found = table_rules(parse({**SETTINGS, **own}), NO_TOPICS).of("db.dead")
    assert found == TableSettings(("day(timestamp)",), location="file:///x")


def test_a_table_s_own_unit_takes_precedence() -> None:
    keys = {
        "iceberg.tables.default-columns": "a timestamp from ns, b time from s, c timestamp from s",
        "iceberg.table.db.t.columns": "a timestamp from us, c timestamp",
        "iceberg.tables.timestamp-range": "any",
    }
    rules = table_rules(parse({**SETTINGS, **keys}), NO_TOPICS)
    assert rules.of("db.t").units == {"a": "us", "b": "s"}
    assert rules.of("db.other").units == {"a": "ns", "b": "s", "c": "s"}
    assert rules.of("db.t").declared["a"] == "timestamp" and rules.any_year
    assert not table_rules(parse(SETTINGS), NO_TOPICS).any_year


def test_a_table_lands_as_its_own_key_says_or_else_as_the_sink_s() -> None:
    keys = {"iceberg.tables.landing": "unpartitioned", "iceberg.table.db.t.landing": "partitioned"}
    rules = table_rules(parse({**SETTINGS, **keys}), NO_TOPICS)
    assert [rules.of(name).landing for name in ("db.t", "db.dead", "db.other")] == [
        "partitioned",
        "unpartitioned",
        "unpartitioned",
    ]


def test_a_table_that_the_sink_creates_names_it(tmp_path: Path) -> None:
    catalog = open_catalog("c", {"type": "embedded", "warehouse": str(tmp_path)})
    rules = table_rules(parse(SETTINGS), NO_TOPICS)
    Tables(catalog, "c", rules).apply([SchemaChange("db.dead", "create", type={"struct": {"id": "long"}})])
    assert catalog.load_table("db.dead").properties["calving.created-by"] == "control-iceberg.connect-s"
