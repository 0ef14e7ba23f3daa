"""The cost of rollbacks: what it takes to notice one with each commit, and to plan and give an answer."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from uuid import UUID

from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField
from rich.console import Console
from rich.table import Table as Grid

from calving.iceberg.catalog import open_catalog
from calving.iceberg.history import line_of
from calving.iceberg.rollback import TableRollback
from calving.iceberg.tables import DEFAULT_PROPERTIES
from calving.iceberg.target import IcebergTarget
from calving.model.events import DataWritten, Envelope, TableReference
from calving.model.files import DataFile
from calving.model.offsets import Span, TopicPartition
from calving.model.tables import RollbackAnswer
from calving.protocol.answers import AsItIs, RollbackTarget, ToSnapshot
from calving.protocol.commit import CommitLoop
from calving.protocol.ledger import SourceProgress
from calving.protocol.ledger_key import LedgerKey
from calving.protocol.ledger_updates import committed
from calving.protocol.rollback import RolledBack

_SNAPSHOTS, _FILES, _PARTITIONS, _TIMES = 200, 1000, 6, 200
_KEY = LedgerKey("control", "connect-bench", "log")
_NAME = ("bench", "events")


def measure(folder: Path, console: Console) -> dict[str, object]:
    """ms a commit at 200 snapshots; seconds of each step of a rollback by 100 snapshots with 1,000 files."""
    catalog = open_catalog("iceberg", {"type": "embedded", "warehouse": str(folder)})
    catalog.create_namespace("bench")
    schema = Schema(NestedField(1, "id", LongType(), required=False))
    made = catalog.create_table(_NAME, schema, properties=DEFAULT_PROPERTIES)
    data = Path(made.location().removeprefix("file://")) / "data"
    data.mkdir(parents=True, exist_ok=True)
    half, each = _SNAPSHOTS // 2, _FILES // (_SNAPSHOTS // 2)
    for number in range(_SNAPSHOTS):
        _commit(catalog, data, number, each)
    table = catalog.load_table(_NAME)
    noticing = _milliseconds(partial(_noticed, table))
    # What any commit does, whoever may roll back: it reads the newest ledger.
    reading = _milliseconds(partial(_read, table))
    target = ToSnapshot(table.metadata.snapshots[half - 1].snapshot_id)
    forget, restore = RollbackAnswer.FORGET, RollbackAnswer.RESTORE
    seconds: dict[str, float] = {
        "plan to forget": _seconds(_rollback(catalog, target, forget).plan),
        "forget": _seconds(_rollback(catalog, target, forget).commit),
    }
    # Another snapshot, so that the table cannot just go forward again.
    _commit(catalog, data, _SNAPSHOTS, 1)
    seconds["plan to restore"] = _seconds(_rollback(catalog, AsItIs(), restore).plan)
    seconds["restore"] = _seconds(_rollback(catalog, AsItIs(), restore).commit)
    head = catalog.load_table(_NAME).current_snapshot()
    files = head.summary.additional_properties["total-data-files"] if head is not None and head.summary else "0"
    if int(files) != 2 * _FILES + 1:
        raise AssertionError(f"{files} files after the restoration")
    load = os.getloadavg()[0]
    grid = Grid("noticing", "with the ledger", *seconds, title=f"Rollbacks, local disk, SQLite, load {load:.1f}")
    grid.add_row(f"{noticing - reading:.2f} ms", f"{noticing:.2f} ms", *(f"{s:.2f} s" for s in seconds.values()))
    console.print(grid)
    return {
        "noticing_ms": round(noticing - reading, 3),
        "noticing_with_ledger_ms": round(noticing, 3),
        "seconds": {name: round(s, 3) for name, s in seconds.items()},
        "load": round(load, 1),
    }


def _commit(catalog: Catalog, data: Path, number: int, files: int) -> None:
    """Every file is there, and empty: nothing reads it."""
    added = []
    for file in range(files):
        path = data / f"{number}-{file}.parquet"
        path.touch()
        added.append(DataFile(f"file://{path}", "PARQUET", 1000, 100_000))
    event = DataWritten(UUID(int=1), TableReference("iceberg", _NAME[:-1], _NAME[-1]), tuple(added))
    start, end = number * 100, number * 100 + 100
    partitions = [TopicPartition("orders", p, "id") for p in range(_PARTITIONS)]
    progress = SourceProgress(
        dict.fromkeys(partitions, (Span(0, end),)), dict.fromkeys(partitions, (Span(0, start),) if start else ())
    )
    entry = Envelope(0, number, event, dict.fromkeys(partitions, (Span(start, end),)))
    target = IcebergTarget(catalog, _NAME, "main", _KEY, {"kafka.connect.commit-id": str(number)})
    CommitLoop(target, _KEY, 5).settle([entry], {0: number + 1}, progress)


def _rollback(catalog: Catalog, target: RollbackTarget, answer: RollbackAnswer) -> TableRollback:
    return TableRollback(catalog, _NAME, _KEY, target, answer, changes_rows=False)


def _noticed(table: Table) -> None:
    """What a commit does on a loaded table to notice a rollback, and to keep its ledger."""
    line, properties = line_of(table, "main"), table.metadata.properties
    ledger = _KEY.read(line, properties)
    RolledBack.of(ledger.unanswered, ledger.doubt)
    head = line.head
    if head is not None:
        committed(_KEY, line, properties, ledger, head.place)


def _read(table: Table) -> None:
    """The same without what only rollbacks need."""
    line = line_of(table, "main")
    own = _KEY.own(line.snapshots)
    if own is not None:
        _KEY.properties(_KEY._of_source(own.summary, str), own.place)


def _milliseconds(action: Callable[[], object]) -> float:
    """Of one of many."""
    times = []
    for _ in range(_TIMES):
        started = time.perf_counter()
        action()
        times.append(time.perf_counter() - started)
    return statistics.median(times) * 1000


def _seconds(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started
