"""Mirrors a table from Debezium's records through Kafka, and compares its rows in pyiceberg, DuckDB and Spark:
``python -m bench.mirror --records 1000000 --keys 100000``. With ``--source partial`` the updates lack values that did
not change, as Postgres leaves out large ones; with ``--source mongo`` they are MongoDB's, with only the changed fields.
Spark needs the release that Iceberg's runtime is made for: ``--spark`` names a Python that has it; without one, Spark
is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyiceberg.table import Table

from calving.engine.interface import LocalEngine
from calving.iceberg.catalog import open_catalog
from calving.runtime.app import App
from calving.services.kafka import kafka
from calving.settings.load import load
from calving.source.client import client_config
from harness.documents import FIELDS, WHOLE, Collection, plain
from harness.duckdb_extensions import duckdb_rows
from harness.shop import COLUMNS, Shop
from harness.structure import check

TOPIC, TABLE, PARTITIONS, ROUNDS = "server.public.customers", "shop.customers", 2, 5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--source", choices=["postgres", "partial", "mongo"], default="postgres")
    parser.add_argument("--spark", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="calving-mirror-") as name, kafka(Path(name) / "kafka") as servers:
        return _mirror(Path(name), servers, args)


def _mirror(folder: Path, servers: str, args: argparse.Namespace) -> int:
    client = client_config({"bootstrap.servers": servers})
    admin = AdminClient(client)
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result()
    catalog_keys = {"type": "embedded", "warehouse": str(folder / "warehouse")}
    config = folder / "mirror.json"
    config.write_text(json.dumps(_settings(servers, catalog_keys, args.source)))
    source = _Mongo(args.seed, args.keys) if args.source == "mongo" else _Postgres(args.seed, args.keys, args.source)
    records = source.records(args.records)
    used = 0.0
    for number in range(ROUNDS):  # each a run of the sink on what came since
        _send(Producer(client), list(islice(records, args.records // ROUNDS + 1)))
        with _cpu() as seconds:
            App(load(config), LocalEngine()).run(until_caught_up=True)
        used += seconds[0]
        print(f"run {number + 1}: {seconds[0]:.1f} CPU seconds", flush=True)
    table = open_catalog("iceberg", catalog_keys).load_table(TABLE)
    check(table)
    wrong = list(_differences(table, source, catalog_keys["warehouse"], args.spark))
    commits = len(table.metadata.snapshots)
    print(
        f"{args.records} records over {args.keys} keys: {len(source.expected())} rows, {commits} commits,"
        f" {used:.1f} CPU seconds ({used / args.records * 1e6:.1f} us a record); {wrong or 'all readers agree'}"
    )
    return 1 if wrong else 0


class _Postgres:
    """A table of a shop."""

    columns = COLUMNS

    def __init__(self, seed: int, keys: int, source: str) -> None:
        self._shop = Shop(seed, keys, source == "partial")
        self.records = self._shop.records
        self.expected = self._shop.expected

    def rows(self, found: Iterable[Sequence[Any]]) -> list[tuple[Any, ...]]:
        """The rows of the table in a form that all readers share."""
        return sorted(map(tuple, found))


class _Mongo:
    """A collection of documents. An empty array or document counts as none, because a reader of lists of structs takes
    a null for an empty one.
    """

    columns = FIELDS

    def __init__(self, seed: int, keys: int) -> None:
        self._collection = Collection(seed, keys)

    def records(self, count: int) -> Iterator[tuple[bytes, bytes | None]]:
        first = self._collection.event(-1, "r", after=json.dumps({"_id": -1, **WHOLE}))
        changes = (self._collection.change() for _ in range(count - 2))
        for key, value in chain([first, self._collection.event(-1, "d")], changes):
            yield json.dumps(key).encode(), json.dumps(value).encode()

    def expected(self) -> list[tuple[Any, ...]]:
        return self._collection.rows(empty=False)

    def rows(self, found: Iterable[Sequence[Any]]) -> list[tuple[Any, ...]]:
        """The rows of the table in a form that all readers share."""
        return sorted((tuple(plain(value, False) for value in row) for row in found), key=repr)


def _settings(servers: str, catalog: dict[str, str], source: str) -> dict[str, str]:
    own: dict[str, str] = {"iceberg.tables.tombstones": "delete"}
    if source == "partial":
        own["iceberg.tables.on-unavailable-value"] = "keep"
    if source == "mongo":
        own = {
            "iceberg.tables.on-unavailable-value": "keep",
            "iceberg.tables.evolve-schema-enabled": "true",
            "transforms": "documents,unwrap",
            "transforms.documents.type": "MongoDebeziumTransform",
            f"iceberg.table.{TABLE}.id-columns": "_id",
        }
    return {
        "name": "mirror",
        "topics": TOPIC,
        "key.converter": "json",
        "transforms": "unwrap",
        "transforms.unwrap.type": "DebeziumTransform",
        "iceberg.tables": TABLE,
        "iceberg.tables.auto-create-enabled": "true",
        "iceberg.tables.cdc-field": "_cdc.op",
        f"iceberg.table.{TABLE}.id-columns": "id",
        "iceberg.control.commit.interval-ms": "2000",
        "iceberg.batch.max-records": "50000",
        "kafka.bootstrap.servers": servers,
        **{f"iceberg.catalog.{name}": value for name, value in catalog.items()},
        **own,
    }


def _send(producer: Producer, records: list[tuple[bytes, bytes | None]]) -> None:
    """A key lives in one partition, as Kafka's clients do it."""
    for key, value in records:
        while True:
            try:
                producer.produce(TOPIC, value, key)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


@contextmanager
def _cpu() -> Iterator[list[float]]:
    """CPU seconds of this process and the ended ones that it started."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    before = sum(sum(resource.getrusage(kind)[:2]) for kind in kinds)
    found: list[float] = []
    started = time.monotonic()
    yield found
    found += [sum(sum(resource.getrusage(kind)[:2]) for kind in kinds) - before, time.monotonic() - started]


def _differences(table: Table, source: _Postgres | _Mongo, warehouse: str, spark: Path | None) -> Iterator[str]:
    """Readers whose rows are not the expected ones."""
    names, expected = source.columns, source.expected()
    columns = ", ".join(f'"{name}"' for name in names)
    scanned = table.scan(selected_fields=names).to_arrow().to_pylist()
    if source.rows([row[name] for name in names] for row in scanned) != expected:
        yield "pyiceberg reads other rows"
    if source.rows(duckdb_rows(table, columns)) != expected:
        yield "DuckDB reads other rows"
    if spark is not None and source.rows(_by_spark(spark, warehouse, names)) != expected:
        yield "Spark reads other rows"


def _by_spark(python: Path, warehouse: str, names: Sequence[str]) -> list[tuple[Any, ...]]:
    query = f"select {', '.join(f'`{name}`' for name in names)} from iceberg.{TABLE}"
    command = [str(python), "-m", "harness.spark_reader", warehouse, query]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=dict(os.environ))
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("ROWS ")]
    return [tuple(row[name] for name in names) for row in json.loads(line[5:])]


if __name__ == "__main__":
    sys.exit(main())
