"""A sink whose batches land in no partition: killed, beside another one, rolled back, and with another value of the key."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyiceberg.table import Table

from calving.cli.rollback import rollback
from calving.iceberg.catalog import open_catalog
from calving.model.tables import RollbackAnswer
from calving.protocol.answers import ToSnapshot
from calving.settings.load import load
from harness.duckdb_extensions import duckdb_rows
from harness.structure import check
from harness.topic import Topic
from tests.cli.commands import Cli
from tests.e2e.test_mutation_modes import Rows, send_changes

pytestmark = pytest.mark.services


@pytest.fixture
def sink(tmp_path: Path, topic: Callable[..., Topic], unique: str) -> Cli:
    made = Cli(tmp_path, topic(partitions=2), unique)
    made.keys |= {"iceberg.tables.landing": "unpartitioned", "iceberg.table.db.t.partition-by": "bucket(id, 500)"}
    return made


def table_of(sink: Cli) -> Table:
    return open_catalog("iceberg", sink.catalog_keys).load_table("db.t")


def files(table: Table) -> Counter[int]:
    """The data files, by their spec."""
    return Counter(table.inspect.data_files()["spec_id"].to_pylist())


def test_a_commit_of_five_hundred_partitions_is_one_file(sink: Cli) -> None:
    for start in (0, 5_000):
        sink.send(start, start + 5_000)
        sink.run_here()
    assert files(table_of(sink)) == {1: 2}
    sink.assert_exactly_once(10_000)


@pytest.mark.parametrize("fault", ["publish:before:1", "publish:after:1", "table:before:1", "table:after:1"])
def test_a_killed_worker_lands_every_record_once(sink: Cli, fault: str) -> None:
    sink.send(0, 100)
    sink.run_until_killed(fault)
    sink.send(100, 200)
    sink.run_here()
    sink.assert_exactly_once(200)
    assert files(table_of(sink)).keys() == {1}
    assert len(table_of(sink).metadata.partition_specs) == 2


@pytest.mark.parametrize("fault", ["deletes:before:1", "table:after:1"])
def test_a_worker_killed_while_it_changes_landed_rows_loses_no_change_and_brings_no_row_back(
    sink: Cli, fault: str
) -> None:
    sink.keys |= {"iceberg.tables.cdc-field": "op", "iceberg.table.db.t.id-columns": "id"}
    chance, expected = random.Random(3), Rows()
    send_changes(sink, chance, expected)
    sink.run_here()
    send_changes(sink, chance, expected)
    sink.run_until_killed(fault)
    sink.run_here()
    table = table_of(sink)
    check(table)
    rows = sorted((row["id"], row["name"]) for row in table.scan().to_arrow().to_pylist())
    assert rows == sorted(expected.values()) == sorted(duckdb_rows(table, "id, name"))


def test_files_that_have_landed_stay_when_the_key_is_taken_back_and_rows_in_both_change(sink: Cli) -> None:
    sink.keys |= {"iceberg.tables.upsert-mode-enabled": "true", "iceberg.table.db.t.id-columns": "id"}
    sink.send(0, 20)
    sink.run_here()
    sink.keys["iceberg.table.db.t.landing"] = "partitioned"
    sink.send(10, 30)
    sink.run_here()
    landed = files(table_of(sink))
    assert landed[1] == 1 and landed[0] > 1
    del sink.keys["iceberg.table.db.t.landing"]
    sink.send(0, 40)
    sink.run_here()
    sink.assert_exactly_once(40)
    check(table_of(sink))


def test_two_sinks_of_which_one_lands_write_one_table(sink: Cli, topic: Callable[..., Topic], unique: str) -> None:
    other = Cli(sink.folder, topic(), f"other-{unique}")
    other.keys["iceberg.table.db.t.partition-by"] = "bucket(id, 500)"
    for start in (0, 100):
        sink.send(start, start + 50)
        sink.run_here()
        other.send(start + 50, start + 100)
        other.run_here()
    sink.assert_exactly_once(200)
    assert files(table_of(sink)).keys() == {0, 1}


def test_landed_records_are_read_again_after_a_rollback(sink: Cli) -> None:
    for start in (0, 100, 200):
        sink.send(start, start + 100)
        sink.run_here()
    first = table_of(sink).metadata.snapshots[0].snapshot_id
    list(rollback(load(sink.config), ("db.t",), ToSnapshot(first), RollbackAnswer.REREAD, again=False, dry_run=False))
    assert len(sink.ids()) == 100
    sink.run_here()
    sink.assert_exactly_once(300)
    assert files(table_of(sink)).keys() == {1}


def test_landed_records_come_back_after_a_rollback(sink: Cli) -> None:
    for start in (0, 100):
        sink.send(start, start + 100)
        sink.run_here()
    first = table_of(sink).metadata.snapshots[0].snapshot_id
    list(rollback(load(sink.config), ("db.t",), ToSnapshot(first), RollbackAnswer.RESTORE, again=False, dry_run=False))
    sink.assert_exactly_once(200)
