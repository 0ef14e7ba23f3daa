"""The live view of ``calving run``: progress, speed, freshness of tables, and problems. It stays below the log lines
while the sink runs.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from calving.model.text import counted, printable
from calving.secrets import MaskingFormatter
from calving.status.health import health, of_tables, reasons
from calving.status.remedies import Trouble, advice
from calving.status.values import Status, WorkerStatus
from calving.terminal.texts import ago, count, duration, pace, percent, speed

_TABLES, _REASONS = 10, 5
_STYLES = {"OK": "bold green", "DEGRADED": "bold red", "STARTING": "bold yellow"}
_BAR = 24


def view(status: Status, now: float, url: str | None) -> RenderableType:
    """The live view."""
    parts: list[RenderableType] = [_head(status, now, url), _figures(status, now), _progress(status.worker, now)]
    if status.log.tables:
        parts.append(_tables(status, now))
    reasons_now = reasons(status, now)
    for r in reasons_now[:_REASONS]:
        parts.append(Text(f"{r.cause.value}: {printable(r.text)}", "red"))
        parts.append(Text(f"  {advice(r.cause)}", "dim"))
    if len(reasons_now) > _REASONS:
        parts.append(Text(f"and {len(reasons_now) - _REASONS} more reasons", "red"))
    return Group(*parts)


def _head(status: Status, now: float, url: str | None) -> Text:
    worker = status.worker
    does = "paused" if worker.paused else "running" if worker.joined else "starting"
    text = Text.assemble((printable(status.sink.name), "bold"), f"  {does}{', leads' if worker.leads else ''}  ")
    state = health(status, now)
    text.append(state, _STYLES[state])
    text.append(f"  {counted(len(worker.partitions), 'partition')}, up {duration(now - status.sink.started_at)}", "dim")
    if worker.error is not None and not worker.joined:
        text.append(f"\nstarts over: {printable(worker.error)}; {advice(Trouble.STARTS_OVER)}", "yellow")
    if url is not None:
        text.append(f"  {url}", "cyan")
    return text


def _figures(status: Status, now: float) -> Columns:
    worker, coordinator = status.worker, status.coordinator
    last = next((c for c in coordinator.recent if c.tables), None)
    # After many cycles with nothing to commit, the last cycle with tables is no longer among the recent cycles.
    before = max((at for table in status.log.tables.values() if (at := table.committed_at) is not None), default=None)
    commit = ago(before, now) if last is None else f"{ago(last.ended_at, now)}, {last.commit_seconds:.2f} s"
    through = status.log.valid_through_us
    known = worker.backlog.behind is not None
    dead = sum(worker.batches.records.dead_lettered.values())
    cells = {
        "not visible": _not_visible(worker, now) if known else "-",
        "to read": count(worker.behind + worker.hidden) if known else "-",
        "records/s": speed(worker.backlog.rate(now)),
        "read": count(worker.batches.read),
        "committed": f"{count(coordinator.records)} in {counted(coordinator.files, 'file')}",
        "last commit": commit if worker.leads else ago(status.log.cycle_at, now),
        "valid through": "-" if through is None else ago(through / 1e6, now),
        **({"dead letters": count(dead)} if dead else {}),
    }
    return Columns([Text.assemble((name, "dim"), " ", value) for name, value in cells.items()], padding=(0, 3))


def _not_visible(worker: WorkerStatus, now: float) -> str:
    since = worker.waiting_since
    oldest = "" if since is None else f", for {duration(now - since)}"
    return f"{count(worker.not_visible)}{oldest}"


def _progress(worker: WorkerStatus, now: float) -> Table:
    backlog, shown = worker.backlog, Table.grid(padding=(0, 2, 0, 0))
    bar = ProgressBar(total=1.0, completed=backlog.share or 0.0, width=_BAR)
    shown.add_row(bar, percent(backlog.share), pace(backlog, worker.not_visible, now))
    return shown


def _tables(status: Status, now: float) -> Table:
    wrong = {reason.subject for reason in of_tables(status, now)}
    tables = sorted(status.log.tables.items(), key=lambda item: (item[0] not in wrong, item[0]))
    shown = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    shown.add_column("table", overflow="ellipsis", no_wrap=True)
    for name in ("last commit", "valid through", "files", "buffered", "failures"):
        shown.add_column(name, justify="right", no_wrap=True)
    for name, table in tables[:_TABLES]:
        totals, failure = status.coordinator.totals.get(name), status.led.failing.get(name)
        through = table.valid_through_us
        shown.add_row(
            Text(printable(name), "red" if name in wrong else ""),
            ago(table.committed_at, now),
            "-" if through is None else ago(through / 1e6, now),
            "-" if totals is None or totals.total_files is None else count(totals.total_files),
            count(table.buffered_files),
            count(failure.times if failure is not None else 0),
        )
    if len(tables) > _TABLES:
        shown.add_row(Text(f"and {len(tables) - _TABLES} more", "dim"))
    return shown


class _Lines(logging.Handler):
    """Writes log lines above the live view."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self.setFormatter(MaskingFormatter("%(asctime)s %(levelname)s %(message)s", "%H:%M:%S"))

    def emit(self, record: logging.LogRecord) -> None:
        self._console.print(self.format(record), markup=False, highlight=False, soft_wrap=True)


@contextlib.contextmanager
def showing(console: Console, status: Callable[[], Status], url: Callable[[], str | None]) -> Iterator[None]:
    """Show the live view. Above it only warnings are logged, unless CALVING_LOG_LEVEL asks for more."""

    def now() -> RenderableType:
        return view(status(), time.time(), url())

    root = logging.getLogger()
    handlers, lines = list(root.handlers), _Lines(console)
    if "CALVING_LOG_LEVEL" not in os.environ:
        lines.setLevel(logging.WARNING)
    root.handlers[:] = [lines, *(h for h in handlers if isinstance(h, logging.FileHandler))]
    try:
        with Live(console=console, get_renderable=now, refresh_per_second=4):
            yield
    finally:
        root.handlers[:] = handlers
