"""The status of a sink as ``calving status`` finds it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any
from uuid import uuid4

from calving.backend.interface import Session
from calving.cli.health import (
    Maintained,
    TableHealth,
    commit_seconds_of,
    health,
    last_cycle_of,
    maintained_of,
    read_token,
    reasons_of,
)
from calving.cli.inspect import PartitionState, beyond_end_text, positions_of
from calving.model.events import Leader, WorkerEnd
from calving.model.offsets import SourceOffsets, TopicPartition, named, text_of
from calving.model.sink import strangers
from calving.model.text import counted, listed
from calving.protocol.positions import text_of as moved_text
from calving.protocol.rollback import RolledBack
from calving.runtime import components
from calving.runtime.log_view import ControlLogView, hear, resumed
from calving.runtime.positions import Resumed, unread
from calving.settings.load import Sink
from calving.status.health import end_text, hanging_text, longest_cycle, paused_text, stopped_text
from calving.status.remedies import REMEDIES, Cause, Trouble, section

COMMIT = "commit-ms"
"""The time that the catalog took, among the counts of a commit that changed rows."""


@dataclass(frozen=True, slots=True)
class SinkStatus:
    """A sink as seen from outside. ``told``: cause, subject and sentence of each reason from the leader; None if no
    leader answers.
    """

    sink: Sink
    positions: tuple[PartitionState, ...]
    tables: tuple[TableHealth, ...]
    workers: int
    leader: Leader | None
    """The leader that the control log names; None if no worker runs."""
    told: tuple[tuple[str, str, str], ...] | None = None
    commit_seconds: Mapping[tuple[str, str], float] | None = None
    """By table and commit id, from the leader; None if no leader answers. A commit's summary is written too early."""
    unreadable: tuple[str, ...] = ()
    """Sentences on entries of the control log that stop every coordinator."""
    oldest_at: float | None = None
    """The timestamp of the oldest record that is not visible, in seconds since the epoch; None if it is unknown, or if
    there is none.
    """
    moved: tuple[str, ...] = ()
    """Sentences on records that nobody has read, because somebody else has moved a position."""
    strangers: tuple[str, ...] = ()
    """The client ids of members of the consumer group that are no workers."""
    end: WorkerEnd | None = None
    """The last worker that has ended with an error, if no commit cycle has ended since."""
    unsigned: str = ""
    """A sentence on the last entry of the group that is not signed; empty if there is none."""
    silent: float = 0.0
    """Seconds since the last commit cycle ended, or since the one began that has not ended; 0 if it is not known."""
    differing: tuple[str, ...] = ()
    """Sentences on workers with other settings than most."""
    paused: Mapping[TopicPartition, float] = field(default_factory=dict)
    """The partitions whose workers are paused, and since when, in seconds since the epoch."""
    versions: tuple[str, ...] = ()
    """The versions of the workers that have answered last, as far as the control log tells them."""
    measured_rate: float | None = None
    """Records that all workers together have read a second, by the control log; None if it does not tell."""
    maintained: Mapping[str, Maintained] | None = None
    """By table, from the leader; None if no leader answers, or none maintains tables."""
    stopped: bool = False
    """Whether somebody has stopped the sink."""
    last_cycle: Mapping[str, Any] | None = None
    """The leader's last commit cycle; None if no leader tells it."""

    @property
    def health(self) -> str:
        """``OK``, ``DEGRADED``, or ``STARTING`` while workers run and no commit cycle has ended yet."""
        if self.reasons:
            return "DEGRADED"
        begins = self.workers and all(p.answered is None for p in self.positions)
        return "STARTING" if begins else "OK"

    @property
    def not_visible(self) -> int:
        """Records that no reader of the tables sees yet."""
        return sum(p.not_visible for p in self.positions)

    @property
    def beyond_end(self) -> list[PartitionState]:
        """The partitions whose stored position is beyond their end. Their records are not counted."""
        return [p for p in self.positions if p.is_beyond_end]

    @property
    def to_read(self) -> int:
        """Records whose files are not published yet."""
        return sum(p.lag for p in self.positions)

    @property
    def share(self) -> float | None:
        """Which part of the records that the topics hold now is read, from 0 to 1; None if they hold none."""
        known = [p for p in self.positions if not p.is_beyond_end]
        held = sum(p.end - p.begin for p in known)
        # Retention may have removed records that are still to be read: they are not held.
        left = sum(min(p.lag, p.end - p.begin) for p in known)
        return (held - left) / held if held else None

    @property
    def is_paused(self) -> bool:
        """Whether nothing is read, because the workers of all partitions with records to read are paused."""
        return self.to_read > 0 and all(p.partition in self.paused for p in self.positions if p.lag)

    @property
    def rate(self) -> float | None:
        """Records that all workers together read a second; None if it is not known, or while they are paused."""
        return None if self.is_paused else self.measured_rate

    @property
    def seconds_left(self) -> float | None:
        """After how many seconds all is read, if no more records come; None if the speed is not known."""
        return self.to_read / self.rate if self.rate and self.workers else None

    @property
    def reasons(self) -> list[str]:
        """Why the sink is DEGRADED, in the leader's words if it has any; empty if it is not. A sink without workers is
        DEGRADED if anything waits for one.
        """
        return list(self.causes)

    @property
    def causes(self) -> dict[str, str]:
        """The cause of each reason."""
        causes: dict[str, str] = {}
        for text, cause in (*self._of_control(), *self._told_and_of_tables()):
            causes.setdefault(text, cause)
        return causes

    def _of_control(self) -> Iterator[tuple[str, str]]:
        by_cause: dict[str, Iterable[str]] = {
            Trouble.NO_WORKER: self._nobody(),
            Trouble.WORKERS_HANG: self._silent(),
            Cause.PAUSED: self._waits_for_paused(),
            Cause.WORKER_ENDED: [] if self.end is None else [end_text(self.end)],
            Cause.SETTINGS_DIFFER: self.differing,
            Trouble.UNREADABLE_ENTRY: self.unreadable,
            Cause.UNSIGNED_ENTRY: [self.unsigned] if self.unsigned else [],
            Cause.POSITION_MOVED: self.moved,
            Trouble.POSITION_BEYOND_END: map(beyond_end_text, self.beyond_end),
        }
        yield from ((text, cause) for cause, texts in by_cause.items() for text in texts)

    def _told_and_of_tables(self) -> Iterator[tuple[str, str]]:
        told = self.told or ()
        yield from ((text, cause) for cause, _, text in told)
        known = {subject for _, subject, _ in told}
        for table in self.tables:
            if table.state == "DEGRADED" and table.name not in known:
                yield _trouble(table), Cause.TABLE_FAILING if table.rolled_back is None else Cause.ROLLED_BACK
        silent = [p.partition for p in self.positions if p.answered is False]
        if silent:
            yield f"the last commit lacks answers for {listed(silent)}", Cause.CYCLE_INCOMPLETE

    def _silent(self) -> list[str]:
        keys = self.sink.keys
        limit = longest_cycle(keys.commit_interval_ms / 1000, keys.commit_timeout_ms / 1000)
        hang = self.workers and self.told is None and self.silent > limit  # the leader's own words count more
        return [hanging_text(self.workers, self.silent)] if hang else []

    def _waits_for_paused(self) -> Iterator[str]:
        if self.stopped:
            yield stopped_text(self.sink.keys.name)
        waiting = Counter[float]()
        for p in (p for p in self.positions if self.workers and p.partition in self.paused):
            waiting[self.paused[p.partition]] += p.not_visible
        yield from (paused_text(since, records) for since, records in sorted(waiting.items()) if records)

    def _nobody(self) -> list[str]:
        tables = sum(bool(t.files or t.parked) for t in self.tables)
        if self.workers or self.stopped or not (self.not_visible or tables):
            return []
        waits = counted(self.not_visible, "record") if self.not_visible else f"files of {counted(tables, 'table')}"
        clients = f"has other members, with the client ids {listed(self.strangers)}"
        others = f"; consumer group {self.sink.group} {clients}" if self.strangers else ""
        return [f"no worker runs, and {waits} wait{others}"]


def status(sink: Sink) -> SinkStatus:
    """The status of a sink, whether the sink runs or not."""
    catalog, source = components.catalog(sink), components.source(sink)
    session = components.backend(sink).open(str(uuid4()))
    try:
        heard = hear(session)
        partitions = positions_of(sink, session)
        topics = {p.partition.topic for p in partitions}
        tables = health(sink, catalog, heard, topics)
        by_tables = partial(resumed, catalog, sink, source)
        stored = {p.partition: p.stored for p in partitions if p.stored is not None}
        sentences = tuple(_moved(session, heard, stored, source.identities(topics), by_tables))
    finally:
        session.close()
    positions = [
        replace(p, committed=heard.committed.get(p.partition), answered=heard.answered(p.partition)) for p in partitions
    ]
    members = source.members(sink.group)
    others = tuple(strangers(members))
    workers = len(members) - len(others)
    leader = heard.leader if workers else None
    token = read_token(leader, sink.keys)
    told = None if (reasons := reasons_of(leader, sink.keys.name, token)) is None else tuple(reasons)
    answering = leader if told is not None else None
    seconds = commit_seconds_of(answering, token) if any(t.mutations for t in tables) else None
    times = source.first_times({p.partition: p.visible for p in positions if p.not_visible})
    at = min((ms / 1000 for ms in times.values()), default=None)
    silent = 0.0 if heard.cycle_at is None else time.time() - heard.cycle_at
    facts = workers, leader, told, seconds, heard.unreadable, at, sentences, others
    log = heard.end, heard.unsigned, silent, heard.differing if workers else (), heard.paused, heard.versions
    rate = heard.published.rate(time.time(), sink.keys.commit_interval_ms / 1000)
    maintained = maintained_of(sink, answering, token)
    more = rate, maintained, heard.stopped, last_cycle_of(answering, token)
    return SinkStatus(sink, tuple(positions), tuple(tables), *facts, *log, *more)


def _moved(
    session: Session, heard: ControlLogView, stored: SourceOffsets, topic_ids: Mapping[str, str], by_tables: Resumed
) -> Iterator[str]:
    """Sentences on records that nobody has read, with those at positions from which the sink has not read on yet."""
    for tp, spans in sorted(heard.unread.items()):
        yield from (moved_text(named(tp), span) for span in spans)
    for tp, each in unread(session, stored, topic_ids, by_tables).items():
        yield moved_text(tp, each.span)


def as_json(status: SinkStatus, now: float) -> dict[str, Any]:
    """The status for scripts. Times are seconds since the epoch."""
    return {
        "sink": status.sink.keys.name,
        "group": status.sink.group,
        "health": status.health,
        "reasons": status.reasons,
        "remedies": [_remedy_json(cause) for cause in status.causes.values()],
        "progress": {
            "remaining": status.to_read,
            "share": status.share,
            "rate": status.rate,
            "seconds_left": status.seconds_left,
        },
        "not_visible": status.not_visible,
        "oldest_not_visible_at": status.oldest_at,
        "workers": status.workers,
        "versions": list(status.versions),
        "leader": None if status.leader is None else {**status.leader._asdict(), "url": status.leader.url or None},
        "last_cycle": status.last_cycle,
        "partitions": [_position_json(p) for p in status.positions],
        "tables": [
            {**_table_json(t, now, changes_of(status, t)), "maintenance": _maintenance_json(status, t.name)}
            for t in status.tables
        ],
    }


def _remedy_json(cause: str) -> dict[str, str | None]:
    remedy = REMEDIES.get(cause)
    meaning, command = (None, None) if remedy is None else (remedy.meaning, remedy.command)
    return {"cause": cause, "meaning": meaning, "command": command, "help": section(cause)}


def _position_json(p: PartitionState) -> dict[str, Any]:
    return {
        "topic": p.partition.topic,
        "partition": p.partition.partition,
        "stored": p.stored,
        "end": p.end,
        "committed": p.committed,
        "source_lag": p.lag,
        "commit_lag": p.to_commit,
        "not_visible": p.not_visible,
        "hidden": p.hidden,
        "answered": p.answered,
    }


def _table_json(t: TableHealth, now: float, changes: Mapping[str, int | None]) -> dict[str, Any]:
    return {
        "table": t.name,
        "state": t.state,
        "records": t.records or 0,
        "committed_at": t.committed_at,
        "seconds_since_commit": None if t.committed_at is None else round(now - t.committed_at, 3),
        "valid_through": valid_through(t),
        "buffered_files": t.files,
        "buffered_since": t.buffered_since,
        "cycles": t.cycles,
        "parked": t.parked,
        "missing": text_of(t.missing) if t.missing else None,
        "rolled_back": None if t.rolled_back is None else _rolled_back_json(t.rolled_back),
        "mutations": dict(changes) or None,
    }


def _maintenance_json(status: SinkStatus, table: str) -> dict[str, Any] | None:
    found = (status.maintained or {}).get(table)
    return None if found is None else asdict(found)


def _rolled_back_json(found: RolledBack) -> dict[str, Any]:
    return {"gone_records": found.offsets, "gone": text_of(found.gone) or None, "sure": found.doubt is None}


def valid_through(table: TableHealth) -> float | None:
    try:
        return datetime.fromisoformat(table.valid_through).timestamp()
    except (ValueError, OverflowError):  # not said, or a year that the Java sink has from a record's odd timestamp
        return None


def changes_of(status: SinkStatus, table: TableHealth) -> dict[str, int | None]:
    """The row mutations of the table's last commit, and the time that the catalog took: None if no leader tells it."""
    seconds = (status.commit_seconds or {}).get((table.name, table.changed_by))
    return {**table.mutations, COMMIT: None if seconds is None else round(seconds * 1000)} if table.mutations else {}


def waits_of(table: TableHealth) -> str:
    """Text on the uncommitted files of a table."""
    cycles = f" for {counted(table.cycles, 'cycle')}" if table.cycles else ""
    files = [f"{counted(table.files, 'file')}{cycles}"] if table.files else []
    parked = [counted(table.parked, "parked entry", "parked entries")] if table.parked else []
    return ", ".join([*files, *parked])


def _trouble(table: TableHealth) -> str:
    missing = f"it lacks {text_of(table.missing)}" if table.missing else ""
    wait = "waits" if table.files + table.parked == 1 else "wait"
    waits = f"{waits_of(table)} {wait}" if waits_of(table) else ""
    if table.rolled_back is not None:
        return "; ".join(part for part in (table.rolled_back.text(table.name), waits, missing) if part)
    why = table.why or f"table {table.name}"
    return ": ".join(part for part in (why, "; ".join(part for part in (waits, missing) if part)) if part)
