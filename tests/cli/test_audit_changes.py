"""``calving audit --full`` over tables whose rows change: the records are replayed by key."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import TopicPartition as KafkaPartition
from pyiceberg.table import Table

from calving.audit.table import TableAudit
from calving.cli.audit import AuditOrder, audit
from calving.iceberg.catalog import open_catalog
from calving.settings.load import load
from harness.topic import Topic
from tests.audit.sabotage import Sabotage, local
from tests.cli.commands import Cli

MODES: dict[str, dict[str, Any]] = {
    "positions": {},
    "equality": {"iceberg.table.db.t.row-deletes": "equality"},
    "inserts append": {"iceberg.table.db.t.inserts": "append"},
    "soft": {"iceberg.table.db.t.delete-mode": "soft", "iceberg.tables.evolve-schema-enabled": True},
    "ordered": {"iceberg.table.db.t.order-field": "at"},
    "partitioned": {"iceberg.table.db.t.partition-by": "g"},
}


@pytest.fixture
def cli(tmp_path: Path, topic: Callable[..., Topic], unique: str) -> Cli:
    made = Cli(tmp_path, topic(partitions=2), unique)
    made.keys |= {"iceberg.table.db.t.id-columns": "id", "iceberg.tables.cdc-field": "op"}
    return made


def change(cli: Cli, seed: int, count: int = 150) -> None:
    """A run over inserts, updates and deletes of 30 keys, each in its partition."""
    chance = random.Random(seed)
    for number in range(count):
        key = chance.randrange(30)
        record = {"id": key, "op": chance.choice("cuud"), "name": f"v{chance.random()}", "g": chance.randrange(3)}
        value = json.dumps(record | {"at": seed * 1000 + number}).encode()
        cli.topic.producer.produce(cli.topic.name, value, str(key).encode(), key % 2)
    cli.topic.producer.flush()
    cli.run_here()


def full(cli: Cli, at: int | None = None) -> TableAudit:
    (found,) = audit(load(cli.config), AuditOrder(["db.t"], at, full=True))
    return found


def table_of(cli: Cli) -> Table:
    return open_catalog("iceberg", cli.catalog_keys).load_table("db.t")


@pytest.mark.parametrize("mode", MODES)
def test_the_rows_that_changes_leave_are_compared_with_the_table(cli: Cli, mode: str) -> None:
    cli.keys |= MODES[mode]
    for seed in (1, 2, 3):
        change(cli, seed)
    found = full(cli)
    assert found.findings == []
    assert "of 450 records" in found.notes[0] and "keys have a row" in found.notes[0]
    assert len(found.notes) == 1


def test_the_rows_of_a_truncated_source_are_expected_to_be_gone(cli: Cli) -> None:
    cli.keys |= {"iceberg.tables.on-truncate": "delete", "iceberg.tables.truncate-field": "g"}
    rows = [{"id": key, "op": "c", "g": key % 3} for key in range(12)]
    for record in (*rows, {"op": "t", "g": 1}, {"id": 1, "op": "c", "g": 1}):
        cli.topic.producer.produce(cli.topic.name, json.dumps(record).encode(), b"", 0)
    cli.topic.producer.flush()
    cli.run_here()
    assert sorted(cli.ids()) == [0, 1, 2, 3, 5, 6, 8, 9, 11]
    found = full(cli)
    assert (found.findings, len(found.notes)) == ([], 1)
    assert "9 keys have a row" in found.notes[0]


KEEP = {"iceberg.tables.unset-fields": "keep", "iceberg.tables.on-unavailable-value": "keep"}


def lack(cli: Cli, seed: int) -> None:
    """A run over inserts, and updates and deletes that lack values, of 20 keys, each in its partition."""
    chance = random.Random(seed)
    for _ in range(150):
        key, op = chance.randrange(20), chance.choice("cuuud")
        row = {"name": f"v{chance.random()}", "g": chance.randrange(9), "in": {"x": chance.randrange(9), "y": "a"}}
        if op == "u":
            row = {name: value for name, value in row.items() if chance.random() < 0.5}
            row |= {"name": "__debezium_unavailable_value"} if chance.random() < 0.3 else {}
            row |= {"in": {"y": f"y{chance.random()}"}} if chance.random() < 0.3 else {}
        value = json.dumps({"id": key, "op": op, **row}).encode()
        cli.topic.producer.produce(cli.topic.name, value, str(key).encode(), key % 2)
    cli.topic.producer.flush()
    cli.run_here()


@pytest.mark.parametrize("missing", ["insert", "skip"])
def test_updates_that_lack_values_keep_those_of_the_rows_before_them(cli: Cli, missing: str) -> None:
    cli.keys |= KEEP | {"iceberg.tables.on-missing-row": missing}
    cli.keys["iceberg.table.db.t.columns"] = "id long, op string, name string, g long, in struct<x: long, y: string>"
    for seed in (1, 2, 3):
        lack(cli, seed)
    found = full(cli)
    assert (found.findings, len(found.notes)) == ([], 1)
    assert "keys have a row" in found.notes[0]
    Sabotage(table_of(cli)).change_rows(lambda rows: [{**rows[0], "g": None}, *rows[1:]])
    assert any("the rows of offsets" in each.text for each in full(cli).findings)


@pytest.mark.parametrize("keys", [{}, {"iceberg.table.db.t.order-field": "at"}], ids=["by time", "by order"])
def test_the_versions_that_changes_leave_are_compared_with_the_table(cli: Cli, keys: dict[str, str]) -> None:
    cli.keys |= {"iceberg.table.db.t.history": "on", **keys}
    for seed in (1, 2):
        change(cli, seed)
    found = full(cli)
    assert (found.findings, len(found.notes)) == ([], 1)
    assert re.search(r"of 300 records 2\d\d versions of rows", found.notes[0])
    Sabotage(table_of(cli)).change_rows(lambda rows: [{**rows[0], "valid_to": None, "is_current": True}, *rows[1:]])
    assert any("the rows of offsets" in each.text for each in full(cli).findings)


def test_versions_of_which_records_are_gone_are_said_not_to_be_compared(cli: Cli) -> None:
    cli.keys |= {"iceberg.table.db.t.history": "on"}
    change(cli, 1)
    for each in cli.topic.admin.delete_records([KafkaPartition(cli.topic.name, 0, 5)]).values():
        each.result()
    found = full(cli)
    assert found.findings == []
    assert "it keeps versions, and some of its records are gone" in found.notes[0]


def test_the_rows_of_an_older_snapshot_are_those_of_the_records_that_it_has_taken(cli: Cli) -> None:
    for seed in (1, 2):
        change(cli, seed)
    found = full(cli, table_of(cli).metadata.snapshots[0].snapshot_id)
    assert found.findings == [] and "of 450 records" not in found.notes[0]


@pytest.mark.parametrize("mode", ["positions", "equality"])
def test_a_row_that_was_changed_within_the_bounds_of_its_file_is_found(cli: Cli, mode: str) -> None:
    cli.keys |= MODES[mode]
    change(cli, 1)
    Sabotage(table_of(cli)).change_rows(lambda rows: [{**rows[0], "g": (rows[0]["g"] + 1) % 3}, *rows[1:]])
    found = full(cli)
    assert {each.kind for each in found.findings} == {"records"}
    assert any("the rows of offsets" in each.text for each in found.findings)


def test_a_deleted_row_that_is_back_for_another_that_is_gone_is_found(cli: Cli) -> None:
    """The delete file has as many positions as before, all of them in the data file."""
    change(cli, 1)
    change(cli, 2, 5)
    sabotage = Sabotage(table_of(cli))
    records = {file["file_path"]: file["record_count"] for _, _, file in sabotage.files()}
    manifest, place, file = sabotage.files(content=1)[0]
    there = pq.read_table(local(file["file_path"]))
    of, positions = there.column("file_path")[0].as_py(), there.column("pos").to_pylist()
    free = min({*range(records[of])} - {*positions})
    changed = pa.array(sorted([*positions[1:], free]), pa.int64())
    pq.write_table(there.set_column(1, there.schema.field(1), changed), local(file["file_path"]))
    size = local(file["file_path"]).stat().st_size
    sabotage.change_entry(manifest, lambda entry: entry["data_file"].update(file_size_in_bytes=size), place)
    texts = " ".join(each.text for each in full(cli).findings)
    assert "should be replaced or deleted" in texts and "the rows of offsets" in texts


def test_changes_that_a_topic_has_deleted_are_said_not_to_be_compared(cli: Cli) -> None:
    for seed in (1, 2):
        change(cli, seed)
    for each in cli.topic.admin.delete_records([KafkaPartition(cli.topic.name, n, 50) for n in (0, 1)]).values():
        each.result()
    found = full(cli)
    assert found.findings == []
    assert any("offsets 0 to 50" in note for note in found.notes)
