"""The output of ``calving status`` for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.progress_bar import ProgressBar
from rich.table import Table as RichTable
from rich.text import Text

from calving.cli.health import Maintained, TableHealth
from calving.cli.inspect import PartitionState, positions_table
from calving.cli.status import COMMIT, SinkStatus, changes_of, valid_through, waits_of
from calving.model.offsets import TopicPartition, text_of
from calving.model.text import bytes_text, counted, listed, printable
from calving.status.remedies import Trouble, advice
from calving.terminal.texts import ago, duration, percent, records, speed

_FRAMES = 16
"""How many lines of a screen do not show partitions, tables or reasons."""


def as_text(status: SinkStatus, now: float, lines: int | None = None) -> Iterator[RichTable | Text]:
    """The status for people. ``lines``: the height of the screen. Partitions furthest behind and tables in trouble come
    first, and the rest is cut.
    """
    partitions, tables = status.positions, status.tables
    if lines is not None:
        room = max(4, lines - _FRAMES - 4 * len(status.reasons))
        partitions = tuple(sorted(partitions, key=_behind))[: max(3, room - len(tables))]
        tables = tuple(sorted(tables, key=_in_trouble))[: max(3, room - len(partitions))]
    yield positions_table(status.sink, partitions, heard=True)
    yield _tables(tables, now)
    hidden = len(status.positions) - len(partitions), len(status.tables) - len(tables)
    if any(hidden):
        yield Text(f"and {counted(hidden[0], 'partition')}, {counted(hidden[1], 'table')} more", "dim")
    if lines is None and any(t.mutations for t in tables):
        yield from _mutations(status)
    if lines is None and status.maintained:
        yield _maintained(status.maintained, now)
    for reason, cause in status.causes.items():
        yield Text(f"DEGRADED: {printable(reason)}", "red")
        yield Text(f"  {advice(cause)}", "dim")
    if status.health == "STARTING":
        yield Text(f"STARTING: no commit cycle has ended yet; {advice(Trouble.STARTING)}", "yellow")
    if status.to_read:
        yield _progress(status)
    yield Text(_freshness(status, now))
    yield from (Text(printable(text), "dim") for text in _oldest_file(status, now))
    yield Text(printable(_workers(status)))


def _progress(status: SinkStatus) -> RichTable:
    shown = RichTable.grid(padding=(0, 2, 0, 0))
    unknown = "paused" if status.is_paused else "at an unknown speed"
    pace = unknown if status.rate is None else f"{speed(status.rate)} records/s"
    left = f", about {duration(status.seconds_left)} left if no more come" if status.seconds_left is not None else ""
    text = f"{records(status.to_read)} to read, {pace}{left}" if status.workers else "nobody reads"
    shown.add_row(ProgressBar(total=1.0, completed=status.share or 0.0, width=20), percent(status.share), text)
    return shown


def _freshness(status: SinkStatus, now: float) -> str:
    if not status.not_visible:
        beyond = [p.partition for p in status.beyond_end]
        return "all records are visible" + (f", but for {listed(beyond)} it is not known" if beyond else "")
    oldest = "" if status.oldest_at is None else f"; the oldest was produced {ago(status.oldest_at, now)}"
    return f"{counted(status.not_visible, 'record is', 'records are')} not visible yet{oldest}"


def _oldest_file(status: SinkStatus, now: float) -> Iterator[str]:
    """On the file that has waited longest for a commit. Other engines take it for an orphan file once it is old."""
    since = [(t.buffered_since, t.name) for t in status.tables if t.buffered_since is not None]
    if since:
        at, name = min(since)
        yield f"the oldest buffered file, for table {name}, was announced {ago(at, now)}"


def _behind(position: PartitionState) -> tuple[bool, bool, int, TopicPartition]:
    return not position.is_beyond_end, position.answered is not False, -position.not_visible, position.partition


def _in_trouble(table: TableHealth) -> tuple[bool, bool, str]:
    return table.state != "DEGRADED", table.state == "ok", table.name


def _workers(status: SinkStatus) -> str:
    if not status.workers:
        return "no worker runs"
    versions = f" (versions {listed(status.versions)})" if len(status.versions) > 1 else ""
    run = f"{counted(status.workers, 'worker')}{versions} {'runs' if status.workers == 1 else 'run'}"
    if status.leader is None:
        return f"{run}; the control log does not name the leader"
    where = f"{status.leader.host} ({status.leader.url})" if status.leader.url else status.leader.host
    return f"{run}; {status.leader.member} on {where} leads"


def _tables(tables: Sequence[TableHealth], now: float) -> RichTable:
    names = ["table", "state", "records", "last commit", "valid through", "waits"]
    lacking = any(t.missing for t in tables)
    shown = RichTable(*names, *(["missing"] if lacking else []), title="Tables")
    for t in tables:
        times = ago(t.committed_at, now), ago(valid_through(t), now)
        missing = [printable(text_of(t.missing)) if t.missing else "-"] if lacking else []
        state = Text(t.state, "red" if t.state == "DEGRADED" else "")
        name, records_there = Text(printable(t.name)), Text("" if t.records is None else str(t.records))
        shown.add_row(name, state, records_there, *times, waits_of(t) or "-", *map(Text, missing))
    return shown


def _maintained(tables: Mapping[str, Maintained], now: float) -> RichTable:
    is_due = any(table.due_since is not None for table in tables.values())
    names = ("table", "task", "last", "ended", *(("due",) if is_due else ()))
    shown = RichTable(*names, title="Maintenance by the worker that leads")
    for name, table in sorted(tables.items()):
        running = "" if table.running_since is None else "; one runs now"
        last = f"{table.outcome}: {table.text}{running}" if table.task else f"nothing was due{running}"
        texts = (Text(printable(each)) for each in (name, table.task or "-", last))
        shown.add_row(*texts, ago(table.ended_at, now), *((_due(table, now),) if is_due else ()))
    return shown


def _due(table: Maintained, now: float) -> str:
    if table.due_since is None:
        return "-"
    much = f"{counted(table.due_files, 'file')} ({bytes_text(table.due_bytes)}), " if table.due_files else ""
    return f"{much}for {duration(now - table.due_since)}"


_SHOWN = {
    "Row mutations of the last commit": {
        "keys": "keys",
        "rows": "superseded",
        "no row": "unmatched",
        "positions": "positions",
        "files": "files",
        "cached": "cached",
    },
    "Time of that commit": {"load": "load-ms", "resolve": "resolve-ms", "write": "write-ms", "commit": COMMIT},
}
"""For each table to show, by its title: the counts by column heading."""


def _mutations(status: SinkStatus) -> Iterator[RichTable | Text]:
    for title, names in _SHOWN.items():
        shown = RichTable("table", *names, title=title)
        for t in status.tables:
            if changes := changes_of(status, t):
                counts = [(key, changes.get(key)) for key in names.values()]
                values = ("-" if n is None else f"{n} ms" if key.endswith("-ms") else str(n) for key, n in counts)
                shown.add_row(Text(printable(t.name)), *values)
        yield shown
    if untimed := _untimed(status):
        yield Text(printable(untimed), "dim")


def _untimed(status: SinkStatus) -> str:
    """A text on why the time of commit is not known; empty if it is known."""
    changed = ((t.name, changes_of(status, t)) for t in status.tables)
    names = [name for name, changes in changed if changes and changes[COMMIT] is None]
    if not names:
        return ""
    if status.commit_seconds is not None:
        why = "the worker that leads did not make this commit, or has restarted since"
    else:
        silent = "it did not" if status.workers else "no worker runs"
        why = f"only the leader's status server tells it, and {silent}"
    return f"the time of commit is not known for {listed(names)}: {why}"
