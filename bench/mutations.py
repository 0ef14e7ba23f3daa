"""The cost of row mutations: a commit of random keys into a large table, and what readers pay for it."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb
import duckdb_extension_avro
import duckdb_extension_iceberg
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType
from rich import table as rich
from rich.console import Console

from calving.iceberg.catalog import open_catalog, table_id
from calving.iceberg.partition_terms import partition_spec
from calving.iceberg.resolution import Resolver
from calving.iceberg.rules import TableRules
from calving.iceberg.summary import mutations_in
from calving.iceberg.tables import DEFAULT_PROPERTIES, Tables
from calving.iceberg.target import IcebergTarget
from calving.model.files import DataFile, FileContent
from calving.model.record_path import Limits
from calving.model.tables import TableSpec
from calving.mutations.cache import KeyCache
from calving.protocol.admission import Admitted, Step
from calving.protocol.ledger import NO_LEDGER, LedgerKey
from calving.records.fields import arrow_schema
from calving.writing.table import TableWriter

ROWS_A_FILE, KEYS, COMMITS = 100_000, 10_000, 20
_KEY = LedgerKey("control", "connect-bench", "log")
_SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType(), required=False),
    NestedField(3, "amount", LongType(), required=False),
    identifier_field_ids=[1],
)


def measure(folder: Path, console: Console, millions: Iterable[int] = (4, 20)) -> dict[str, object]:
    """Commits of 10,000 random keys, and reading afterwards, for tables of several sizes."""
    catalog = open_catalog("iceberg", {"type": "embedded", "warehouse": str(folder)})
    catalog.create_namespace("bench")
    shown = rich.Table(
        "rows", "keys", "layout", "cold", "warm", "warm CPU", "resolve", "read: before", "after 20 commits"
    )
    found: dict[str, object] = {}
    for size in millions:
        for layout in ("none", "bucket(id, 16)"):
            for keys in (500, KEYS):
                taken = _case(catalog, size * 1_000_000, [] if layout == "none" else [layout], keys)
                found[f"{size}M {layout} {keys}"] = taken
                shown.add_row(f"{size} M", f"{keys:,}", layout, *(f"{value:.3f} s" for value in taken.values()))
    console.print(shown)
    return found


def _case(catalog: Catalog, rows: int, terms: list[str], keys: int) -> dict[str, float]:
    name = f"bench.t{uuid4().hex}"
    catalog.create_table(
        name, _SCHEMA, partition_spec=partition_spec(terms, _SCHEMA, name), properties=DEFAULT_PROPERTIES
    )
    spec, chance = _spec(catalog, name), random.Random(1)
    starts = range(0, rows, ROWS_A_FILE * (16 if terms else 1))
    files = tuple(f for at in starts for f in _written(spec, range(at, min(rows, at + starts.step))))
    _commit(catalog, name, Resolver(), Step(files, ()))
    before = _read(catalog.load_table(name))
    resolver = Resolver(None, KeyCache(4 * 1024**3))
    times, cpu, resolve = [], [], []
    for _ in range(COMMITS):
        numbers = sorted(chance.sample(range(rows), keys))
        step = Step(_written(spec, numbers), (_key_file(catalog.load_table(name), numbers),))
        started, used = time.perf_counter(), time.process_time()
        target = _commit(catalog, name, resolver, step)
        times.append(time.perf_counter() - started)
        cpu.append(time.process_time() - used)
        assert target.counts is not None and target.counts.superseded == keys
        resolve.append(mutations_in(target.head)["resolve-ms"] / 1000)
    after = _read(catalog.load_table(name))
    middle = COMMITS // 2
    warm = [sorted(each[1:])[middle] for each in (times, cpu, resolve)]
    return dict(
        zip(
            ("cold", "warm", "warm_cpu", "resolve", "read_before", "read_after"),
            (times[0], *warm, before, after),
            strict=True,
        )
    )


def _spec(catalog: Catalog, name: str) -> TableSpec:
    tables = Tables(catalog, "iceberg", TableRules())
    tables.refresh([name])
    return tables.specs()[name]


def _written(spec: TableSpec, numbers: range | list[int]) -> tuple[DataFile, ...]:
    ids = pa.array(numbers, pa.int64())
    columns = [ids, pa.array([f"name of {number}" for number in numbers]), ids]
    writer = TableWriter(spec, 0, Limits())
    writer.write(pa.RecordBatch.from_arrays(columns, schema=arrow_schema(_SCHEMA)))
    return tuple(writer.close())


def _key_file(table: Table, numbers: list[int]) -> DataFile:
    rows = pa.table([pa.array(numbers, pa.int64())], schema=arrow_schema(_SCHEMA.select("id")))
    path = f"{table.location()}/data/{uuid4()}-keys.parquet"
    with table.io.new_output(path).create() as out:
        pq.write_table(rows, out)
        size = out.tell()
    return DataFile(path, "PARQUET", len(numbers), size, FileContent.EQUALITY_DELETES, equality_ids=(1,))


def _commit(catalog: Catalog, name: str, resolver: Resolver, step: Step) -> IcebergTarget:
    target = IcebergTarget(catalog, table_id(name), "main", _KEY, {}, resolver=resolver)
    target.attempt(target.load(), Admitted(step.data_files, step.delete_files, NO_LEDGER, steps=(step,)))
    return target


def _read(table: Table) -> float:
    """CPU seconds in which DuckDB sums a column, the best of three."""
    connection: Any = duckdb.connect()
    for package in (duckdb_extension_avro, duckdb_extension_iceberg):
        (path,) = Path(package.__file__).parent.rglob("*.duckdb_extension")
        connection.execute(f"load '{path}'")
    query = f"select count(*), sum(amount) from iceberg_scan('{table.metadata_location.removeprefix('file://')}')"
    best = float("inf")
    for _ in range(3):
        used = time.process_time()
        connection.execute(query).fetchall()
        best = min(best, time.process_time() - used)
    return best
