"""Change events from a broker into tables whose rows they change: as Debezium writes them, and plain ones."""

from __future__ import annotations

import json
import random
import re
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

import calving
from calving.iceberg.catalog import open_catalog
from calving.runtime.app import App
from calving.settings.load import load
from calving.source.client import client_config
from harness.run import Run
from harness.topic import Topic
from harness.waiting import wait_for
from tests.cli.commands import Cli

pytestmark = pytest.mark.services

JSON_KEYS = {"key.converter": "json", "key.converter.schemas.enable": "false"}


@pytest.fixture
def sink(tmp_path: Path, topic: Callable[..., Topic], unique: str) -> Cli:
    made = Cli(tmp_path, topic(), unique)
    made.keys |= JSON_KEYS | {"iceberg.table.db.t.id-columns": "id"}
    return made


def send(sink: Cli, *messages: tuple[Any, Any], partition: int = 0) -> None:
    """Keys and values, None or written as JSON."""
    producer = Producer(client_config({"bootstrap.servers": sink.topic.servers}))
    for key, value in messages:
        found = [None if what is None else json.dumps(what).encode() for what in (key, value)]
        producer.produce(sink.topic.name, found[1], found[0], partition=partition)
    assert producer.flush(30) == 0


def rows(sink: Cli, *columns: str) -> list[tuple[Any, ...]]:
    found = open_catalog("iceberg", sink.catalog_keys).load_table("db.t").scan().to_arrow().to_pylist()
    return sorted(tuple(row[c] for c in columns) for row in found)


def envelope(op: str, before: Any, after: Any, lsn: int) -> tuple[Any, Any]:
    """As Debezium's documentation shows it for PostgreSQL, without schemas."""
    source = {"connector": "postgresql", "db": "shop", "schema": "public", "table": "orders", "lsn": lsn}
    key = {"id": (after or before)["id"]}
    return key, {"before": before, "after": after, "source": source, "op": op, "ts_ms": 1_700_000_000_000 + lsn}


def test_debezium_events_and_their_tombstones_mirror_a_table(sink: Cli) -> None:
    sink.keys |= {
        "transforms": "unwrap",
        "transforms.unwrap.type": "io.tabular.iceberg.connect.transforms.DebeziumTransform",
        "iceberg.tables.cdc-field": "_cdc.op",
        "iceberg.tables.tombstones": "delete",
    }
    send(sink, *(envelope("r", None, {"id": i, "v": "snapshot"}, i) for i in range(5)))
    sink.run_here()
    send(
        sink,
        envelope("u", {"id": 1, "v": "snapshot"}, {"id": 1, "v": "changed"}, 10),
        envelope("d", {"id": 2, "v": None}, None, 11),
        ({"id": 2}, None),
        envelope("c", None, {"id": 9, "v": "new"}, 12),
        envelope("d", {"id": 3, "v": None}, None, 13),
        envelope("c", None, {"id": 3, "v": "again"}, 14),
        ({"id": 4}, None),
    )
    sink.run_here()
    assert rows(sink, "id", "v") == [(0, "snapshot"), (1, "changed"), (3, "again"), (9, "new")]


def test_an_update_without_a_large_value_keeps_that_of_the_stored_row(sink: Cli) -> None:
    sink.keys |= {
        "transforms": "unwrap",
        "transforms.unwrap.type": "io.tabular.iceberg.connect.transforms.DebeziumTransform",
        "iceberg.tables.cdc-field": "_cdc.op",
        "iceberg.tables.on-unavailable-value": "keep",
    }
    large, gap = "x" * 5_000, "__debezium_unavailable_value"
    send(sink, *(envelope("r", None, {"id": i, "v": "snapshot", "note": f"{i} {large}"}, i) for i in range(5)))
    sink.run_here()
    updates = [{"id": i, "v": f"change {n}", "note": gap} for n in range(3) for i in range(4)]
    send(sink, *(envelope("u", None, row, 10 + n) for n, row in enumerate(updates)))
    sink.keys["iceberg.batch.max-records"] = 2  # a row is changed in several batches of a commit
    sink.run_here()
    expected = [(i, "change 2" if i < 4 else "snapshot", f"{i} {large}") for i in range(5)]
    assert rows(sink, "id", "v", "note") == expected


def test_plain_records_replace_each_other_by_key(sink: Cli) -> None:
    sink.keys |= {"iceberg.tables.upsert-mode-enabled": "true"}
    send(sink, *((None, {"id": i % 4, "v": i}) for i in range(20)))
    sink.run_here()
    send(sink, *((None, {"id": i, "v": 100 + i}) for i in (1, 7)))
    sink.run_here()
    assert rows(sink, "id", "v") == [(0, 16), (1, 101), (2, 18), (3, 19), (7, 107)]


def test_status_tells_what_the_last_commit_did_to_rows(sink: Cli) -> None:
    sink.keys |= {"iceberg.tables.cdc-field": "op"}
    send(sink, *((None, {"id": i, "op": "I"}) for i in range(4)))
    sink.run_here()
    send(sink, *((None, {"id": i, "op": "D"}) for i in (2, 8)))
    sink.run_here()
    (table,) = json.loads(sink.run("status", "--json"))["tables"]
    found = table["mutations"]
    assert {name: found[name] for name in ("keys", "located", "superseded", "unmatched", "positions")} == {
        "keys": 2,
        "located": 1,
        "superseded": 1,
        "unmatched": 1,
        "positions": 1,
    }
    assert "Row mutations of the last commit" in sink.run("status")


def test_validate_names_what_is_wrong_with_the_id_columns(sink: Cli) -> None:
    send(sink, (None, {"id": 1, "v": 1.5}))
    sink.run_here()
    sink.keys |= {"iceberg.tables.upsert-mode-enabled": "true", "iceberg.table.db.t.id-columns": "v"}
    assert "table db.t: id column v is double" in sink.run("validate", code=2)


@pytest.mark.parametrize(
    ("settings", "command", "code", "sentence"),
    [
        (
            {"iceberg.tables.auto-create-props.format-version": "1"},
            ["validate"],
            2,
            "table db.t would be created with format version 1; row mutations need 2 or 3",
        ),
        (
            {"iceberg.tables.order-field": "lsn"},
            ["run", "--until-caught-up"],
            1,
            "table db.t: the record has no value for the order-field 'lsn'",
        ),
    ],
)
def test_a_table_whose_rows_could_not_be_changed_is_not_created(
    sink: Cli, settings: dict[str, str], command: list[str], code: int, sentence: str
) -> None:
    sink.keys |= {"iceberg.tables.upsert-mode-enabled": "true", **settings}
    send(sink, (None, {"id": 1}))
    assert sentence in sink.run(*command, code=code)
    assert not open_catalog("iceberg", sink.catalog_keys).table_exists("db.t")


def test_history_of_two_workers_comes_to_what_a_dict_says(
    servers: str, tmp_path: Path, unique: str, keys: dict[str, str]
) -> None:
    """Keys of three partitions, changed again and again, while workers come, go and are killed."""
    run = Run(
        tmp_path,
        servers,
        unique,
        settings={
            "iceberg.tables.dynamic-enabled": None,
            "iceberg.tables.route-field": None,
            "iceberg.tables": "db.t",
            "iceberg.table.db.t.id-columns": "id",
            "iceberg.tables.cdc-field": "op",
            "iceberg.batch.max-records": "50",
            **keys,
        },
        tables=("db.t",),
    )
    rng, expected = random.Random(1), dict[int, int]()
    producer = Producer(client_config({"bootstrap.servers": servers}))
    run.start()

    def change(count: int) -> None:
        for _ in range(count):
            key, op = rng.randrange(40), rng.choice("cuud")
            run.sent += 1
            value = {"id": key, "n": run.sent, "op": op}
            producer.produce(run.topic, json.dumps(value).encode(), str(key).encode(), partition=key % 3)
            expected.pop(key, None)
            if op != "d":
                expected[key] = run.sent
        assert producer.flush(30) == 0

    try:
        change(300)
        run.start("publish:after:2")
        change(300)
        run.start()
        change(300)
        run.workers[0].kill()
        change(100)
        run.start()
        found = _settled(run, expected)
    finally:
        run.close()
    assert found == expected


def test_history_of_two_workers_in_one_process_over_the_memory_backend_comes_to_what_a_dict_says(
    tmp_path: Path, topic: Callable[..., Topic], unique: str
) -> None:
    """The second worker leads once the first has gone, and the third once the second has."""
    made = Cli(tmp_path, topic(partitions=3), unique)
    made.keys |= {
        "iceberg.control.backend": "memory",
        "iceberg.table.db.t.id-columns": "id",
        "iceberg.tables.cdc-field": "op",
        "iceberg.batch.max-records": "50",
    }
    rng, expected = random.Random(3), dict[int, int]()

    def change(first: int, end: int) -> None:
        for n in range(first, end):
            key, op = rng.randrange(40), rng.choice("cuud")
            value = json.dumps({"id": key, "n": n, "op": op}).encode()
            made.topic.producer.produce(made.topic.name, value, partition=key % 3)
            expected.pop(key, None)
            if op != "d":
                expected[key] = n
        assert made.topic.producer.flush(30) == 0

    change(0, 300)
    with calving.Worker(calving.build(made.keys)) as first:
        wait_for(lambda: first.progress.files > 0, 90)
        with calving.Worker(calving.build(made.keys)) as second:
            wait_for(lambda: second.progress.held > 0, 90)
            change(300, 600)
            wait_for(lambda: second.progress.read > 0, 90)
            first.stop()
            change(600, 900)
            wait_for(lambda: second.progress.files > 0, 90)
    calving.Worker(calving.build(made.keys)).run(until_caught_up=True)
    assert rows(made, "id", "n") == sorted(expected.items())


def _settled(run: Run, expected: dict[int, int], seconds: float = 90) -> dict[int, int]:
    """The rows by key, once they are as expected or do not get there."""
    deadline = time.monotonic() + seconds
    found: dict[int, int] = {}
    while time.monotonic() < deadline:
        time.sleep(1)
        run.revive()
        tables = run.catalog.list_tables("db") if run.catalog.namespace_exists("db") else []
        if tables:
            table = run.catalog.load_table("db.t").scan().to_arrow().to_pylist()
            assert len({row["id"] for row in table}) == len(table)
            found = {row["id"]: row["n"] for row in table}
            if found == expected:
                break
    return found


def test_changes_of_a_key_that_several_spark_tasks_have_read_meet(
    tmp_path: Path, topic: Callable[..., Topic], unique: str
) -> None:
    """A partition that is split over tasks, and a second batch over the rows of the first."""
    made = Cli(tmp_path, topic(), unique)
    made.keys |= {
        "iceberg.table.db.t.id-columns": "id",
        "iceberg.tables.cdc-field": "op",
        "iceberg.engine": "spark",
        "spark.master": "local[2]",
    }
    rng, expected = random.Random(2), dict[int, int]()
    for first in (0, 110_000):
        producer = Producer(client_config({"bootstrap.servers": made.topic.servers}))
        for n in range(first, first + 110_000):
            key, op = rng.randrange(3000), rng.choice("cuud")
            producer.produce(made.topic.name, json.dumps({"id": key, "n": n, "op": op}).encode(), partition=0)
            producer.poll(0)
            expected.pop(key, None)
            if op != "d":
                expected[key] = n
        assert producer.flush(60) == 0
        App(load(made.config)).run(until_caught_up=True)
    assert rows(made, "id", "n") == sorted(expected.items())


def of_the_page(section: str) -> dict[str, Any]:
    """The settings of a section of the how-to."""
    page = (Path(__file__).parents[2] / "docs/how-to/mirror-a-table.md").read_text()
    (block,) = re.findall(r"```ini\n(.*?)```", page.partition(f"## {section}")[2].partition("\n## ")[0], re.DOTALL)
    return tomllib.loads(block)


def mirroring(sink: Cli, section: str) -> Cli:
    """The sink with the settings of this section, whose tables have the names of their sources."""
    of_page = {key: value for key, value in of_the_page(section).items() if key != "topics.regex"}
    plain = {key: value for key, value in sink.keys.items() if key not in ("iceberg.tables", *JSON_KEYS)}
    sink.keys = {**plain, **of_page}
    del sink.keys["iceberg.table.db.t.id-columns"]
    return sink


def test_collections_of_mongo_are_mirrored_by_their_changes_as_the_how_to_says(sink: Cli) -> None:
    mirroring(sink, "Mirror the collections of MongoDB")

    def change(collection: str, op: str, key: int, **more: Any) -> tuple[Any, Any]:
        source = {"connector": "mongodb", "db": "shop", "collection": collection}
        identity, sides = json.dumps({"$numberLong": str(key)}), {"before": None, "after": None}
        return {"id": identity}, {"op": op, "ts_ms": 1_700_000_000_000, "source": source, **sides, **more}

    def document(collection: str, key: int, **fields: Any) -> tuple[Any, Any]:
        return change(collection, "r", key, after=json.dumps({"_id": {"$numberLong": str(key)}, **fields}))

    def patch(collection: str, key: int, updated: Any, **more: Any) -> tuple[Any, Any]:
        return change(collection, "u", key, updateDescription={"updatedFields": json.dumps(updated), **more})

    lines = [{"sku": "pear", "n": 1}, {"sku": "plum", "n": 2}]
    send(sink, *(document("orders", key, state="new", to={"city": "Kiel"}, lines=lines) for key in range(4)))
    send(sink, document("people", 1, name="Ada", tags=["a", "b"]))
    sink.run_here()
    sink.keys["iceberg.batch.max-records"] = 2
    send(
        sink,
        patch("orders", 0, {"lines.1.n": 7, "to.zip": "24103"}),
        patch("orders", 0, {"lines.2": {"sku": "fig"}}, removedFields=["state"]),
        patch("orders", 1, {"state": "paid"}, truncatedArrays=[{"field": "lines", "size": 1}]),
        change("orders", "d", 2),
        ({"id": "2"}, None),
        patch("people", 1, {"tags.2": "c"}),
    )
    sink.run_here()
    catalog = open_catalog("iceberg", sink.catalog_keys)
    orders, people = (
        sorted(catalog.load_table(f"shop.{name}").scan().to_arrow().to_pylist(), key=lambda row: row["_id"])
        for name in ("orders", "people")
    )
    fig = {"sku": "fig", "n": None}
    to = {"city": "Kiel", "zip": None}
    assert orders == [
        {"_id": 0, "state": None, "to": {**to, "zip": "24103"}, "lines": [lines[0], {"sku": "plum", "n": 7}, fig]},
        {"_id": 1, "state": "paid", "to": to, "lines": lines[:1]},
        {"_id": 3, "state": "new", "to": to, "lines": lines},
    ]
    assert people == [{"_id": 1, "name": "Ada", "tags": ["a", "b", "c"]}]


def test_one_pattern_mirrors_a_database_as_the_how_to_says(sink: Cli) -> None:
    """Tables with different primary keys, one without, a table that is emptied, and the connector's own records."""
    mirroring(sink, "Mirror a whole database").keys["iceberg.tables.on-truncate"] = "delete"

    def event(table: str, op: str, key: Any, row: Any) -> tuple[Any, Any]:
        source = {"connector": "postgresql", "db": "shop", "schema": "public", "table": table}
        sides = {"before": row if op == "d" else None, "after": row if op in "cur" else None}
        return key, {"op": op, "ts_ms": 1_700_000_000_000, "source": source, **sides}

    lines = [event("lines", "r", {"order": 1, "line": n}, {"order": 1, "line": n, "sku": "pear"}) for n in (1, 2, 3)]
    send(sink, *lines, event("orders", "r", {"id": 1}, {"id": 1, "total": 20}), event("log", "c", None, {"what": "a"}))
    sink.run_here()
    send(
        sink,
        event("lines", "d", {"order": 1, "line": 2}, {"order": 1, "line": 2, "sku": None}),
        ({"order": 1, "line": 2}, None),
        event("lines", "u", {"order": 1, "line": 3}, {"order": 1, "line": 3, "sku": "plum"}),
        event("orders", "c", {"id": 2}, {"id": 2, "total": 5}),
        event("orders", "t", None, None),
        event("orders", "c", {"id": 3}, {"id": 3, "total": 8}),
        event("log", "c", None, {"what": "a"}),
        (None, {"ts_ms": 1_700_000_000_000}),
        (None, {"status": "BEGIN", "id": "571", "ts_ms": 5, "event_count": None, "data_collections": None}),
    )
    sink.run_here()
    catalog = open_catalog("iceberg", sink.catalog_keys)
    tables = {
        name: catalog.load_table(f"shop.{name}").scan().to_arrow().to_pylist() for name in ("lines", "orders", "log")
    }
    assert {name: sorted(found, key=str) for name, found in tables.items()} == {
        "lines": [{"order": 1, "line": 1, "sku": "pear"}, {"order": 1, "line": 3, "sku": "plum"}],
        "orders": [{"id": 3, "total": 8}],
        "log": [{"what": "a", "_cdc": found["_cdc"]} for found in tables["log"]],
    }
    assert len(tables["log"]) == 2


def test_a_table_of_several_shards_loses_the_rows_of_the_truncated_one(sink: Cli) -> None:
    """Each shard is a schema of the source database."""
    sink.keys |= {
        "transforms": "unwrap",
        "transforms.unwrap.type": "DebeziumTransform",
        "iceberg.tables": "db.t",
        "iceberg.tables.cdc-field": "_cdc.op",
        "iceberg.tables.on-truncate": "delete",
        "iceberg.tables.truncate-field": "_cdc.source",
    }

    def event(shard: str, op: str, key: int | None = None) -> tuple[Any, Any]:
        source = {"connector": "postgresql", "db": "shop", "schema": shard, "table": "orders"}
        row = None if key is None else {"id": key}
        return row, {"op": op, "ts_ms": 1_700_000_000_000, "source": source, "before": None, "after": row}

    send(sink, *(event(shard, "r", key) for shard, key in (("a", 1), ("b", 2), ("a", 3))))
    sink.run_here()
    send(sink, event("a", "c", 4), event("b", "c", 5), event("a", "t"), event("a", "c", 6), event("a", "c", 1))
    sink.run_here()
    assert sorted(sink.ids()) == [1, 2, 5, 6]
