"""The cost of commits: many files in one, and one more after thousands."""

from __future__ import annotations

import time
from pathlib import Path
from uuid import UUID

from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from rich.console import Console
from rich.table import Table

from calving.iceberg.catalog import open_catalog
from calving.iceberg.locations import FileRules
from calving.iceberg.tables import DEFAULT_PROPERTIES
from calving.iceberg.target import IcebergTarget
from calving.model.events import DataWritten, Envelope, TableReference
from calving.model.files import DataFile
from calving.protocol.commit import CommitLoop
from calving.protocol.ledger_key import LedgerKey

_COLUMNS = 20
_MARKS = (100, 500, 1000, 1500, 2000)
_KEY = LedgerKey("control", "connect-bench", "log")
_TABLE = TableReference("iceberg", ("bench",), "commits")


def measure(folder: Path, console: Console) -> dict[str, object]:
    """Seconds for 1,000 files in one commit, and ms per commit near several marks."""
    catalog = open_catalog("iceberg", {"type": "embedded", "warehouse": str(folder)})
    catalog.create_namespace("bench")
    columns = [NestedField(i, f"c{i}", LongType(), required=False) for i in range(1, _COLUMNS + 1)]
    catalog.create_table("bench.many", Schema(*columns), properties=DEFAULT_PROPERTIES)
    catalog.create_table("bench.commits", Schema(*columns), properties=DEFAULT_PROPERTIES)

    def commit(table: str, offset: int, files: int) -> None:
        event = DataWritten(UUID(int=1), _TABLE, tuple(_file(offset * 10_000 + i) for i in range(files)))
        target = IcebergTarget(catalog, ("bench", table), "main", _KEY, {}, files=FileRules(("file:///bench",)))
        CommitLoop(target, _KEY, 5).settle([Envelope(0, offset, event)], {0: offset + 1})

    started = time.perf_counter()
    commit("many", 0, 1000)
    thousand = time.perf_counter() - started
    near: dict[int, float] = {}
    before = 0
    for mark in _MARKS:
        window = mark - 50
        for number in range(before, window):
            commit("commits", number, 1)
        started = time.perf_counter()
        for number in range(window, mark):
            commit("commits", number, 1)
        near[mark] = (time.perf_counter() - started) / 50 * 1000
        before = mark
    table = Table(
        "1,000 files in one commit", *(f"near commit {m:,}" for m in near), title="Commits, local disk, SQLite"
    )
    table.add_row(f"{thousand:.2f} s", *(f"{ms:.0f} ms" for ms in near.values()))
    console.print(table)
    return {"thousand_files_seconds": round(thousand, 3), "ms_per_commit": {k: round(v, 1) for k, v in near.items()}}


def _file(number: int) -> DataFile:
    ids = range(1, _COLUMNS + 1)
    bound = number.to_bytes(8, "little")
    return DataFile(
        f"file:///bench/data/{number}.parquet",
        "PARQUET",
        1000,
        100_000,
        column_sizes=dict.fromkeys(ids, 5000),
        value_counts=dict.fromkeys(ids, 1000),
        null_value_counts=dict.fromkeys(ids, 0),
        lower_bounds=dict.fromkeys(ids, bound),
        upper_bounds=dict.fromkeys(ids, bound),
        split_offsets=(4,),
    )
