"""The cost of row mutations: a commit of random keys into a large table, and what readers pay for it."""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType
from rich import table as rich
from rich.console import Console

from calving.iceberg.catalog import open_catalog, table_id
from calving.iceberg.resolution import RowChangeResolver
from calving.iceberg.rules import TableRules
from calving.iceberg.summary import mutations_in
from calving.iceberg.tables import DEFAULT_PROPERTIES, Tables
from calving.iceberg.target import IcebergTarget
from calving.model.files import DataFile, FileContent
from calving.model.record_path import Limits
from calving.model.tables import TableSpec
from calving.mutations.cache import KeyCache
from calving.protocol.commit import Admitted, Step
from calving.protocol.ledger import NO_LEDGER
from calving.protocol.ledger_key import LedgerKey
from calving.records.fields import arrow_schema
from calving.services.rest_catalog import RestCatalog
from calving.writing.schemas import partition_spec
from calving.writing.table import TableWriter
from harness.duckdb_extensions import connected

KEYS, COMMITS, _WARM = 10_000, 20, 10
_SORTED_BY_A_COMMIT = 2_000_000
_KEY = LedgerKey("control", "connect-bench", "log")
_READ_SECONDS = 120
"""After these a query over the table is given up."""


@dataclass(frozen=True, slots=True)
class Case:
    """A table of so many million rows, in files of ``rows_a_file``, and the keys of each commit into it."""

    millions: int
    terms: tuple[str, ...] = ()
    keys: int = KEYS
    version: int = 3
    text: bool = False
    """Keys are text of 32 characters, not numbers."""
    equality: bool = False
    """Keys stay keys: nothing is resolved."""
    files: int | None = None
    """How many files the table has; None: by its size."""

    @property
    def rows_a_file(self) -> int:
        if self.files is not None:
            return self.millions * 1_000_000 // self.files
        return 250_000 if self.millions >= 50 else 100_000

    def __str__(self) -> str:
        layout = ", ".join(self.terms) or "not partitioned"
        layout += f" in {self.files:,} files" if self.files is not None else ""
        kind = ("text " if self.text else "") + "keys" + (" that stay keys" if self.equality else "")
        return f"{self.millions} M rows, {layout}, {self.keys:,} {kind}, version {self.version}"

    @property
    def schema(self) -> Schema:
        return Schema(
            NestedField(1, "id", StringType() if self.text else LongType(), required=True),
            NestedField(2, "name", StringType(), required=False),
            NestedField(3, "amount", LongType(), required=False),
            identifier_field_ids=[1],
        )

    def ids(self, numbers: pa.Array) -> pa.Array:
        return pc.utf8_lpad(numbers.cast(pa.string()), 32, "0") if self.text else numbers


def cases(millions: Iterable[int]) -> Iterator[Case]:
    for size in millions:
        for terms in ((), ("bucket(id, 16)",)):
            yield Case(size, terms)
        if size == 4:
            yield from (Case(size, version=2), Case(size, keys=500), Case(size, keys=500, version=2))
            yield from (Case(size, version=2, equality=True), Case(size, keys=500, version=2, equality=True))
            yield Case(size, files=1_000)
        if size == 20:
            yield from (Case(size, version=2), Case(size, version=2, equality=True))
        if size in (4, 20):
            yield Case(size, text=True)


def measure(folder: Path, console: Console, millions: Iterable[int] = (1, 4, 20, 50)) -> dict[str, object]:
    """Commits of random keys, and reading afterwards, for tables of several sizes; each table is deleted at once."""
    server = RestCatalog(folder / "rest")
    catalogs = {
        2: open_catalog("iceberg", {"type": "embedded", "warehouse": str(folder / "embedded")}),
        3: open_catalog("iceberg", {"type": "rest", "uri": server.uri}),
    }
    found: dict[str, object] = {}
    shown = rich.Table("table", "files", *_MEASURED, title="Seconds, CPU seconds, MiB")
    try:
        for case in cases(millions):
            taken = _measured(catalogs[case.version], case)
            found[str(case)] = taken
            console.print(f"{case}: {taken}")
            shown.add_row(str(case), f"{taken['files']:.0f}", *(f"{taken[name]:.3f}" for name in _MEASURED))
    finally:
        server.stop()
    console.print(shown)
    return found


_MEASURED = ("cold", "cold_cpu", "warm", "warm_cpu", "warm_least", "resolve", "read_before", "read_after", "peak_mib")


def _measured(catalog: Catalog, case: Case) -> dict[str, float]:
    """``warm`` figures are the middle of the last commits, when all keys are sorted that are worth it. A table that
    cannot be read in time is read in infinitely many seconds.
    """
    catalog.create_namespace_if_not_exists("bench")
    name, rows = f"bench.t{uuid4().hex}", case.millions * 1_000_000
    spec_of = partition_spec(case.terms, case.schema, name)
    properties = {**DEFAULT_PROPERTIES, "format-version": str(case.version)}
    catalog.create_table(name, case.schema, partition_spec=spec_of, properties=properties)
    try:
        spec, chance = _spec(catalog, name), random.Random(1)
        starts = range(0, rows, case.rows_a_file * (16 if case.terms else 1))
        files = tuple(f for at in starts for f in _written(spec, case, pa.arange(at, min(rows, at + starts.step))))
        _commit(catalog, name, RowChangeResolver(), Step(files, ()))
        before = _read(catalog.load_table(name))
        resolver = None if case.equality else RowChangeResolver(None, KeyCache(4 * 1024**3))
        times, cpu, resolve = [], [], []
        after = 0.0
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak of the resident memory
        for number in range(max(COMMITS, rows // _SORTED_BY_A_COMMIT + _WARM)):
            if number == COMMITS:
                after = _read(catalog.load_table(name))
            numbers = pa.array(sorted(chance.sample(range(rows), case.keys)), pa.int64())
            step = Step(_written(spec, case, numbers), (_key_file(catalog.load_table(name), case, numbers),))
            started, used = time.perf_counter(), time.process_time()
            target = _commit(catalog, name, resolver, step)
            times.append(time.perf_counter() - started)
            cpu.append(time.process_time() - used)
            if not case.equality:
                assert target.counts is not None and target.counts.superseded == case.keys
            resolve.append(mutations_in(target.head).get("resolve-ms", 0) / 1000)
        peak = _peak_mib()
        after = after or _read(catalog.load_table(name))
    finally:
        shutil.rmtree(spec.location.removeprefix("file://"))
    warm = [sorted(each[-_WARM:])[_WARM // 2] for each in (times, cpu, resolve)]
    values = (times[0], cpu[0], *warm[:2], min(times[-_WARM:]), warm[2], before, after, peak)
    return {"files": len(files), **dict(zip(_MEASURED, values, strict=True))}


def _peak_mib() -> float:
    """The largest resident memory of this process, with mapped pages of the key cache."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


def _spec(catalog: Catalog, name: str) -> TableSpec:
    tables = Tables(catalog, "iceberg", TableRules())
    tables.refresh([name])
    return tables.specs()[name]


def _written(spec: TableSpec, case: Case, numbers: pa.Array) -> tuple[DataFile, ...]:
    names = pc.binary_join_element_wise("name of", numbers.cast(pa.string()), " ")
    columns = [case.ids(numbers), names, numbers]
    writer = TableWriter(spec, 0, Limits())
    writer.write(pa.RecordBatch.from_arrays(columns, schema=arrow_schema(case.schema)))
    return tuple(writer.close())


def _key_file(table: Table, case: Case, numbers: pa.Array) -> DataFile:
    rows = pa.table([case.ids(numbers)], schema=arrow_schema(case.schema.select("id")))
    path = f"{table.location()}/data/{uuid4()}-keys.parquet"
    with table.io.new_output(path).create() as out:
        pq.write_table(rows, out)
        size = out.tell()
    return DataFile(path, "PARQUET", len(numbers), size, FileContent.EQUALITY_DELETES, equality_ids=(1,))


def _commit(catalog: Catalog, name: str, resolver: RowChangeResolver | None, step: Step) -> IcebergTarget:
    """Without a resolver keys stay keys."""
    target = IcebergTarget(catalog, table_id(name), "main", _KEY, {}, resolver=resolver, equality=resolver is None)
    target.attempt(target.load(), Admitted(step.data_files, step.delete_files, NO_LEDGER, steps=(step,)))
    return target


def _read(table: Table) -> float:
    """CPU seconds in which DuckDB sums a column, the best of three."""
    connection = connected()
    query = f"select count(*), sum(amount) from iceberg_scan('{table.metadata_location.removeprefix('file://')}')"
    best = float("inf")
    for _ in range(3):
        used = time.process_time()
        late = threading.Timer(_READ_SECONDS, connection.interrupt)
        late.start()
        try:
            connection.execute(query).fetchall()
        except duckdb.InterruptException:
            break
        finally:
            late.cancel()
        best = min(best, time.process_time() - used)
    return best
