"""A preview shows what would become of records, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from calving.cli.preview import as_text, preview
from calving.iceberg.catalog import open_catalog
from calving.settings.load import load
from harness.topic import Topic
from tests.cli.commands import Cli
from tests.tasks.conftest import encode

pytestmark = pytest.mark.services


@pytest.fixture
def cli(tmp_path: Path, topic: Callable[..., Topic], unique: str) -> Cli:
    made = topic(partitions=2)
    made.send(*encode(*({"id": i, "ts": 1_714_996_800_000 + i * 86_400_000} for i in range(300))))
    made.send(*encode({"id": "x", "ts": "2024-05-06"}, {"id": 7, "ts": "soon"}), partition=1)
    found = Cli(tmp_path, made, unique)
    found.keys["iceberg.tables.default-partition-by"] = "day(ts)"
    return found


def test_a_table_that_would_be_created_is_shown_with_partitions_and_bad_records(cli: Cli) -> None:
    text = cli.run("preview", "--records", "202")
    assert "read 202 records, the newest ones; nothing was written" in text
    assert "table db.t: would be created, rows: 200\n  + id long\n  + ts timestamptz\n  partitions: 200\n" in text
    assert "    ts_day=2024-08-14, rows: 1\n" in text and "    and 190 more\n" in text
    assert "bad records: 2 (errors.tolerance = none: the first of them stops the sink)" in text
    assert f"{cli.topic.name}[1] offset 0: table db.t: field 'id': 'x' is not a long" in text
    assert "field 'ts': 'soon' is not a timestamptz" in text


@pytest.mark.parametrize("key", ["iceberg.tables.landing", "iceberg.table.db.t.landing"])
def test_rows_that_land_are_shown_in_the_partitions_into_which_they_are_moved(cli: Cli, key: str) -> None:
    cli.keys[key] = "unpartitioned"
    assert "  partitions: 200\n    ts_day=" in cli.run("preview", "--records", "202")


def test_nothing_is_written(cli: Cli) -> None:
    cli.run("preview")
    catalog = open_catalog("iceberg", cli.catalog_keys)
    assert catalog.list_namespaces() == []
    topics = AdminClient({"bootstrap.servers": cli.topic.servers}).list_topics(timeout=10).topics
    assert cli.keys["iceberg.control.topic"] not in topics
    assert [*cli.folder.rglob("*.parquet")] == []


def test_a_table_that_exists_is_shown_with_what_would_change(cli: Cli) -> None:
    cli.topic.send(*encode(*({"id": i, "ts": 1_714_996_800_000} for i in range(5))), partition=1)
    cli.keys |= {"iceberg.tables.evolve-schema-enabled": True, "iceberg.tables.default-partition-by": ""}
    catalog = open_catalog("iceberg", cli.catalog_keys)
    catalog.create_namespace("db")
    cli.keys["iceberg.table.db.t.columns"] = "id string, ts string"
    cli.run("run", "--until-caught-up")
    cli.topic.send(*encode({"id": 1, "ts": "2024", "new": {"a": 1}}), partition=1)
    before = catalog.load_table("db.t").metadata_location
    text = cli.run("preview", "--records", "2")
    assert "table db.t: exists, columns that change: 1, rows: 2\n    id string\n    ts string\n  + new struct<" in text
    assert catalog.load_table("db.t").metadata_location == before


def test_records_without_a_table_are_shown_with_the_reason(cli: Cli) -> None:
    cli.keys["iceberg.tables.auto-create-enabled"] = False
    assert "table db.t does not exist" in cli.run("preview", "--records", "5")


def test_a_table_of_format_version_3_that_exists_is_shown_and_stays_as_it_is(cli: Cli, rest_uri: str) -> None:
    own = {key: value for key, value in cli.keys.items() if not key.startswith("iceberg.catalog.")}
    table = f"db.{cli.name}"
    cli.catalog_keys = {"type": "rest", "uri": rest_uri}
    cli.keys = {
        **own,
        "iceberg.tables": table,
        "iceberg.tables.default-partition-by": "",
        "iceberg.tables.evolve-schema-enabled": True,
        **{f"iceberg.catalog.{key}": value for key, value in cli.catalog_keys.items()},
    }
    catalog = open_catalog("iceberg", cli.catalog_keys)
    catalog.create_namespace_if_not_exists("db")
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "ts", LongType()))
    catalog.create_table(table, schema, properties={"format-version": "3"})
    cli.topic.send(*encode({"id": 1, "ts": 2, "new": "x"}))
    before = catalog.load_table(table)
    assert before.metadata.format_version == 3
    text = cli.run("preview", "--records", "1")
    assert f"table {table}: exists, columns that change: 1, rows: 1\n    id long\n    ts long\n  + new string" in text
    assert catalog.load_table(table).metadata_location == before.metadata_location


def test_a_table_whose_rows_change_is_shown_with_the_rows_that_its_records_leave(cli: Cli) -> None:
    cli.keys |= {
        "iceberg.tables.default-id-columns": "id",
        "iceberg.tables.upsert-mode-enabled": True,
        "iceberg.tables.default-partition-by": "",
    }
    twice = [{"id": i, "ts": ts} for i in (1, 2) for ts in (1, 2)]
    cli.topic.send(*encode(*twice), partition=1)
    text = cli.run("preview", "--records", "8")  # four of each partition
    assert "table db.t: would be created, rows: 6\n  + id long required\n  + ts long\n" in text
    assert "bad records" not in text
    assert open_catalog("iceberg", cli.catalog_keys).list_namespaces() == []


@pytest.mark.parametrize("creates", [True, False])
def test_a_table_that_cannot_be_loaded_hides_no_other(cli: Cli, creates: bool) -> None:
    cli.keys |= {
        "iceberg.tables": "",
        "iceberg.tables.dynamic-enabled": True,
        "iceberg.tables.route-field": "to",
        "iceberg.tables.default-partition-by": "",
        "iceberg.tables.auto-create-enabled": creates,
    }
    catalog = open_catalog("iceberg", cli.catalog_keys)
    catalog.create_namespace("db")
    for name in ("broken", "well"):
        catalog.create_table(f"db.{name}", Schema(NestedField(1, "id", LongType(), required=False)))
    (cli.folder / "warehouse" / "db" / "broken" / "metadata").rename(cli.folder / "away")
    cli.topic.send(*encode(*({"id": i, "to": f"db.{name}"} for i in range(3) for name in ("broken", "well"))))
    found = preview(load(cli.config), 8)
    assert [(t.name, t.rows) for t in found.tables] == [("db.well", 3)]
    (broken,) = found.unreadable
    assert (broken.name, broken.records) == ("db.broken", 3)
    assert not any("db.broken" in letter.reason for letter in found.bad)
    assert f"\n{broken.why}; its records were not looked at: 3" in "\n".join(as_text(found, tolerates=True))
    assert broken.why.startswith("table db.broken cannot be loaded: ")
