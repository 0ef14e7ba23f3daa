"""The output of ``calving status``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import uuid4

from rich.table import Table as RichTable

from calving.cli.health import TableHealth, health, is_well
from calving.cli.inspect import Position, positions_of, positions_table
from calving.iceberg.catalog import open_catalog
from calving.model.coverage import text_of
from calving.model.events import Leader
from calving.model.text import counted, listed
from calving.runtime.heard import hear
from calving.settings.load import Sink
from calving.source.opening import open_source
from calving.terminal.texts import ago


@dataclass(frozen=True, slots=True)
class Status:
    """A sink as it is seen from outside. ``well``: no table is DEGRADED, and the last commit cycle had answers for all
    partitions.
    """

    sink: Sink
    positions: tuple[Position, ...]
    tables: tuple[TableHealth, ...]
    workers: int
    leader: Leader | None
    """As the control log names it; None if no worker runs."""

    @property
    def well(self) -> bool:
        return is_well(self.tables, {p.partition: p.answered for p in self.positions})

    @property
    def reasons(self) -> list[str]:
        """Why it is DEGRADED; empty where it is well."""
        silent = [p.partition for p in self.positions if p.answered is False]
        last = [f"the last commit cycle had no answer for {listed(silent)}"] if silent else []
        return [*(f"table {t.name}: {_trouble(t)}" for t in self.tables if t.state == "DEGRADED"), *last]


def status(sink: Sink) -> Status:
    """Of a sink, whether it runs or not."""
    catalog = open_catalog(sink.keys.catalog_name, sink.catalog)
    session = sink.backend(sink.identity, sink.backend_settings).open(str(uuid4()))
    try:
        heard = hear(session)
        found = positions_of(sink, session)
        tables = health(sink, catalog, heard, {p.partition.topic for p in found})
    finally:
        session.close()
    positions = [
        replace(p, committed=heard.committed.get(p.partition), answered=heard.answered(p.partition)) for p in found
    ]
    source = open_source(sink.kafka, sink.keys.topics, sink.keys.topics_regex)
    workers = len(source.members(sink.group))
    return Status(sink, tuple(positions), tuple(tables), workers, heard.leader if workers else None)


def as_text(status: Status, now: float) -> Iterator[RichTable | str]:
    """For people."""
    yield positions_table(status.sink, status.positions, heard=True)
    yield _tables(status.tables, now)
    if any(t.mutations for t in status.tables):
        yield _mutations(status.tables)
    yield from (f"DEGRADED: {reason}" for reason in status.reasons)
    yield _workers(status)


def as_json(status: Status, now: float) -> dict[str, Any]:
    """For scripts. Times are seconds since the epoch."""
    return {
        "sink": status.sink.keys.name,
        "group": status.sink.group,
        "health": "OK" if status.well else "DEGRADED",
        "reasons": status.reasons,
        "workers": status.workers,
        "leader": None if status.leader is None else {**status.leader._asdict(), "url": status.leader.url or None},
        "partitions": [_position_json(p) for p in status.positions],
        "tables": [_table_json(t, now) for t in status.tables],
    }


def _position_json(p: Position) -> dict[str, Any]:
    return {
        "topic": p.partition.topic,
        "partition": p.partition.partition,
        "stored": p.stored,
        "end": p.end,
        "committed": p.committed,
        "source_lag": p.lag,
        "commit_lag": p.to_commit,
        "answered": p.answered,
    }


def _table_json(t: TableHealth, now: float) -> dict[str, Any]:
    return {
        "table": t.name,
        "state": t.state,
        "records": int(t.records or 0),
        "committed_at": t.committed_at,
        "seconds_since_commit": None if t.committed_at is None else round(now - t.committed_at, 3),
        "valid_through": _valid_through(t),
        "buffered_files": t.files,
        "cycles": t.cycles,
        "parked": t.parked,
        "missing": text_of(t.missing) if t.missing else None,
        "mutations": dict(t.mutations) or None,
    }


def _valid_through(table: TableHealth) -> float | None:
    said = table.valid_through
    return None if said in ("", "-") else datetime.fromisoformat(said).timestamp()


def _workers(status: Status) -> str:
    if not status.workers:
        return "no worker runs"
    run = f"{counted(status.workers, 'worker')} {'runs' if status.workers == 1 else 'run'}"
    if status.leader is None:
        return f"{run}; the control log does not name the leader"
    where = f"{status.leader.host} ({status.leader.url})" if status.leader.url else status.leader.host
    return f"{run}; {status.leader.member} on {where} leads"


def _tables(tables: Iterable[TableHealth], now: float) -> RichTable:
    names = ("table", "state", "records", "last commit", "valid through", "waits", "missing")
    shown = RichTable(*names, title="Tables")
    for t in tables:
        missing = text_of(t.missing) if t.missing else "-"
        times = ago(t.committed_at, now), ago(_valid_through(t), now)
        shown.add_row(t.name, t.state, t.records, *times, _waits(t) or "-", missing)
    return shown


_MUTATIONS = {
    "keys": "keys",
    "rows": "superseded",
    "no row": "unmatched",
    "positions": "positions",
    "files": "files",
    "cached": "cached",
    "load": "load-ms",
    "resolve": "resolve-ms",
    "write": "write-ms",
}
"""The shown counts, by column heading."""


def _mutations(tables: Iterable[TableHealth]) -> RichTable:
    shown = RichTable("table", *_MUTATIONS, title="Row mutations of the last commit")
    for t in tables:
        if t.mutations:
            found = [(key, t.mutations.get(key)) for key in _MUTATIONS.values()]
            values = ("-" if n is None else f"{n} ms" if key.endswith("-ms") else str(n) for key, n in found)
            shown.add_row(t.name, *values)
    return shown


def _waits(table: TableHealth) -> str:
    """Text on the uncommitted files of a table."""
    cycles = f" for {counted(table.cycles, 'cycle')}" if table.cycles else ""
    files = [f"{counted(table.files, 'file')}{cycles}"] if table.files else []
    parked = [f"{table.parked} parked entries"] if table.parked else []
    return ", ".join([*files, *parked])


def _trouble(table: TableHealth) -> str:
    missing = f"it lacks {text_of(table.missing)}" if table.missing else ""
    waits = f"{_waits(table)} wait" if _waits(table) else ""
    return "; ".join(part for part in (waits, missing) if part)
