"""Pictures of the live view of ``calving run``, drawn by the view itself. ``make docs`` writes them."""

from __future__ import annotations

import io
import re
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console

from calving.model.offsets import TopicPartition
from calving.status.backlog import Backlog, Mark
from calving.status.values import (
    Batches,
    CommitCycle,
    CoordinatorStatus,
    LogStatus,
    PartitionStatus,
    RecordCounts,
    SinkFacts,
    Status,
    TableCommit,
    TableStatus,
    WorkerStatus,
)
from calving.terminal.live import view

FOLDER = Path(__file__).parents[1] / "docs" / "images" / "terminal"
_NOW = 1_790_000_000.0
_WIDTH = 100
_LOCAL_FONTS = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
"""Rich's frame, without fonts from another host."""


def pictures() -> dict[str, str]:
    """By the name of its file: the first run of the tutorial, and a sink that runs all day."""
    return {
        "first-run.svg": _drawn("calving run sink.toml --until-caught-up", _first_run(), None),
        "running.svg": _drawn("calving run shop.toml", _running(), "http://127.0.0.1:8083/"),
    }


def _drawn(title: str, status: Status, url: str | None) -> str:
    console = Console(width=_WIDTH, file=io.StringIO(), record=True, force_terminal=True)
    console.print(view(status, _NOW, url))
    return console.export_svg(title=title, code_format=_LOCAL_FONTS, unique_id="live")


def _first_run() -> Status:
    return _status("clicks", 9.0, {"web.clicks": 3}, position=3, end=3, unread=0)


def _running() -> Status:
    tables = {"shop.orders": 41_200_000, "shop.payments": 40_950_000, "shop.visits": 160_310_000}
    return _status("shop", 14 * 3_600.0, tables, position=40_400_000, end=40_403_100, unread=31_700)


def _backlog(age: float, records: int, behind: int) -> Backlog:
    """Half of what was left ten seconds ago is read; nothing was left when the sink started."""
    before = Mark(_NOW - min(age, 10.0), records - behind - records // 2000, 2 * behind)
    return Backlog(records, behind, base=records - records // 300, marks=(before, Mark(_NOW, records, behind)))


def _status(name: str, age: float, rows: dict[str, int], *, position: int, end: int, unread: int) -> Status:
    """``unread``: records that are in no table yet, of one partition of two, or of the only one."""
    facts = SinkFacts(name, f"connect-{name}", "m-1", "", "kafka", "spark", _NOW - age, 10.0, 30.0)
    records, partitions = sum(rows.values()), 1 if len(rows) == 1 else 6
    waiting = _NOW - 4.0 if unread else None
    held = {
        TopicPartition(name, number): PartitionStatus(
            position, end, end - unread // partitions, int((_NOW - 1) * 1e6), waiting
        )
        for number in range(partitions)
    }
    worker = WorkerStatus(
        joined=True,
        prepared=True,
        caught_up=True,
        leads=True,
        partitions=held,
        behind=(end - position) * partitions,
        batches=Batches(records=RecordCounts(read={name: records})),
        backlog=_backlog(age, records, (end - position) * partitions),
    )
    tables = {table: TableStatus(_NOW - 1.2, 1, int((_NOW - 3.4) * 1e6)) for table in rows}
    totals = {table: TableCommit(table, "done", 0.2, total_files=1 + count // 400_000) for table, count in rows.items()}
    cycle = CommitCycle("c-1", _NOW - 1.2, "full", 0.6, 0.21, committed=len(rows), tables=tuple(totals.values()))
    files = sum(commit.total_files or 0 for commit in totals.values())
    coordinator = CoordinatorStatus(recent=(cycle,), files=files, records=records, totals=totals)
    log = LogStatus(tables, _NOW - 1.2, int((_NOW - 3.4) * 1e6), had_all_answers=True)
    return Status(facts, worker, log, coordinator)
