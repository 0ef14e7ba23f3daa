"""Each way to change rows, from a broker into a table, compared with a dict that was told the same."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from calving.iceberg.catalog import open_catalog
from calving.settings.load import load
from harness.duckdb_extensions import duckdb_rows
from harness.structure import check
from harness.topic import Topic
from tests.cli.commands import Cli
from tests.cli.maintaining import lines

pytestmark = pytest.mark.services

Rows = dict[int, tuple[Any, ...]]


@pytest.fixture
def sink(tmp_path: Path, topic: Callable[..., Topic], unique: str) -> Cli:
    made = Cli(tmp_path, topic(partitions=2), unique)
    made.keys |= {"iceberg.table.db.t.id-columns": "id", "iceberg.batch.max-records": "40"}
    return made


def send(sink: Cli, key: int, record: dict[str, Any]) -> None:
    """A key lives in one partition."""
    sink.topic.producer.produce(sink.topic.name, json.dumps(record).encode(), str(key).encode(), key % 2)


def table_of(sink: Cli) -> list[tuple[Any, ...]]:
    table = open_catalog("iceberg", sink.catalog_keys).load_table("db.t")
    check(table)
    rows = sorted((row["id"], row["name"]) for row in table.scan().to_arrow().to_pylist())
    assert rows == sorted(duckdb_rows(table, "id, name"))
    return rows


def upsert(sink: Cli, chance: random.Random, expected: Rows) -> None:
    """One run over 150 records of 60 keys; ``expected`` gets the rows that they leave."""
    for _ in range(150):
        key = chance.randrange(60)
        expected[key] = (key, f"v{chance.random()}")
        send(sink, key, {"id": key, "name": expected[key][1]})
    sink.topic.producer.flush()
    sink.run_here()


def test_upserts_leave_the_last_record_of_each_key(sink: Cli) -> None:
    sink.keys["iceberg.tables.upsert-mode-enabled"] = "true"
    chance, expected = random.Random(1), Rows()
    for _ in range(4):
        upsert(sink, chance, expected)
        assert table_of(sink) == sorted(expected.values())


def change(sink: Cli, chance: random.Random, expected: Rows) -> None:
    """One run over changes."""
    send_changes(sink, chance, expected)
    sink.run_here()


def send_changes(sink: Cli, chance: random.Random, expected: Rows) -> None:
    """200 inserts, updates and deletes of 40 keys; ``expected`` gets the rows that they leave."""
    for _ in range(200):
        key = chance.randrange(40)
        operation = "c" if key not in expected else chance.choice("uud")
        if operation == "d":
            del expected[key]
        else:
            expected[key] = (key, f"v{chance.random()}")
        send(sink, key, {"id": key, "op": operation, "name": expected.get(key, (0, "gone"))[1]})
    sink.topic.producer.flush()


def test_the_operation_of_a_record_decides_what_becomes_of_its_row(sink: Cli) -> None:
    sink.keys["iceberg.tables.cdc-field"] = "op"
    chance, expected = random.Random(2), Rows()
    for _ in range(3):
        change(sink, chance, expected)
        assert table_of(sink) == sorted(expected.values())


def test_the_operation_of_a_record_decides_with_equality_too(sink: Cli) -> None:
    """An insert writes no key there, unless the batch has changed its row before."""
    sink.keys |= {"iceberg.tables.cdc-field": "op", "iceberg.table.db.t.row-deletes": "equality"}
    chance, expected = random.Random(5), Rows()
    for _ in range(3):
        change(sink, chance, expected)
        table = open_catalog("iceberg", sink.catalog_keys).load_table("db.t")
        check(table, equality=True)
        assert sorted(duckdb_rows(table, "id, name")) == sorted(expected.values())


@pytest.mark.parametrize("fault", ["deletes:before:1", "deletes:after:1", "table:after:1"])
def test_a_worker_killed_while_it_commits_deletes_loses_no_change_and_brings_no_row_back(sink: Cli, fault: str) -> None:
    """Before it writes the delete files of the rows it has found, before the catalog's commit, or after it."""
    sink.keys["iceberg.tables.cdc-field"] = "op"
    chance, expected = random.Random(7), Rows()
    change(sink, chance, expected)
    send_changes(sink, chance, expected)
    sink.run_until_killed(fault)
    sink.run_here()
    assert table_of(sink) == sorted(expected.values())


def test_rows_of_the_branch_in_the_settings_change_and_those_of_main_stay(sink: Cli) -> None:
    sink.keys["iceberg.tables.cdc-field"] = "op"
    chance, expected = random.Random(6), Rows()
    change(sink, chance, expected)
    main = sorted(expected.values())
    sink.keys["iceberg.table.db.t.commit-branch"] = "audit"
    for _ in range(2):
        change(sink, chance, expected)
    assert table_of(sink) == main
    table = open_catalog("iceberg", sink.catalog_keys).load_table("db.t")
    rows = table.scan().use_ref("audit").to_arrow().to_pylist()
    assert sorted((row["id"], row["name"]) for row in rows) == sorted(expected.values())


@pytest.mark.parametrize("terms", ["", "bucket(id, 3)"])
def test_with_an_order_field_the_greatest_wins_from_whichever_partition(sink: Cli, terms: str) -> None:
    sink.keys |= {
        "iceberg.tables.upsert-mode-enabled": "true",
        "iceberg.table.db.t.order-field": "at",
        "iceberg.table.db.t.partition-by": terms,
    }
    chance, expected = random.Random(3), dict[int, tuple[int, int]]()
    for _ in range(3):
        for at in chance.sample(range(1_000_000), 150):
            key = chance.randrange(50)
            expected[key] = max(expected.get(key, (0, 0)), (at, key))
            record = json.dumps({"id": key, "name": f"v{at}", "at": at}).encode()
            sink.topic.producer.produce(sink.topic.name, record, partition=chance.randrange(2))
        sink.topic.producer.flush()
        sink.run_here()
        assert table_of(sink) == sorted((key, f"v{at}") for key, (at, _) in expected.items())


def versions_of(sink: Cli) -> list[tuple[Any, ...]]:
    columns = "id", "name", "valid_from", "valid_to", "is_current"
    table = open_catalog("iceberg", sink.catalog_keys).load_table("db.t")
    check(table)
    rows = sorted((tuple(row[name] for name in columns) for row in table.scan().to_arrow().to_pylist()), key=repr)
    assert rows == sorted(duckdb_rows(table, ", ".join(columns)), key=repr)
    return rows


@pytest.mark.parametrize("fault", ["deletes:before:1", "table:before:1", "table:after:1"])
def test_a_worker_killed_while_it_ends_versions_leaves_each_version_once(sink: Cli, fault: str) -> None:
    """Rows come late; deletes come last, so that each of them ends a version."""
    sink.keys |= {
        "iceberg.tables.cdc-field": "op",
        "iceberg.table.db.t.order-field": "at",
        "iceberg.table.db.t.history": "on",
    }
    chance = random.Random(8)
    changes: dict[int, dict[int, str | None]] = {key: {} for key in range(20)}
    for run in range(3):
        times = range(run * 1_000 + 1, run * 1_000 + 900) if run < 2 else range(900)
        for at in chance.sample(times, 120):
            key = chance.choice([*changes])
            if at not in changes[key]:
                changes[key][at] = f"v{run}-{at}"
                send(sink, key, {"id": key, "op": "u", "at": at, "name": changes[key][at]})
        alive = [key for key, of_key in changes.items() if of_key and of_key[max(of_key)] is not None]
        for key in chance.sample(alive, 5) if run < 2 else ():
            changes[key][run * 1_000 + 950] = None
            send(sink, key, {"id": key, "op": "d", "at": run * 1_000 + 950})
        sink.topic.producer.flush()
        if run:
            sink.run_until_killed(fault)
        sink.run_here()
        expected = []
        for key, of_key in changes.items():
            moments: list[int | None] = [*sorted(of_key)]
            expected += [
                (key, of_key[begin], begin, end, end is None)
                for begin, end in pairwise([*moments, None])
                if begin is not None and of_key[begin] is not None
            ]
        assert versions_of(sink) == sorted(expected, key=repr)


def test_keys_stay_keys_with_equality_until_they_are_turned_into_positions(sink: Cli) -> None:
    sink.keys |= {"iceberg.tables.upsert-mode-enabled": "true", "iceberg.table.db.t.row-deletes": "equality"}
    chance, expected = random.Random(4), Rows()
    for _ in range(2):
        upsert(sink, chance, expected)
        table = open_catalog("iceberg", sink.catalog_keys).load_table("db.t")
        check(table, equality=True)
        assert sorted(duckdb_rows(table, "id, name")) == sorted(expected.values())
    seen = sink.run("maintain", "--dry-run")
    assert "equality-delete files with " in seen
    check(open_catalog("iceberg", sink.catalog_keys).load_table("db.t"), equality=True)
    said = sink.run("maintain")
    assert "table db.t: " in said and " became " in said
    assert table_of(sink) == sorted(expected.values())
    upsert(sink, chance, expected)
    assert "became" in lines(load(sink.config), ["db.t"])[0]
    assert table_of(sink) == sorted(expected.values())
    assert lines(load(sink.config), [], ["deletes"]) == ["table db.t: no deletes to convert or to merge"]


def test_a_table_that_is_only_appended_to_may_have_deletes_of_others(sink: Cli) -> None:
    sink.topic.send(b'{"id": 1, "name": "a", "at": 1}')
    sink.run_here()
    said = sink.run("maintain", "--table", "db.t", "--task", "deletes")
    assert "table db.t: no deletes to convert or to merge" in said
