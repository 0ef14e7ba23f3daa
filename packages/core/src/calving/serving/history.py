"""What the page shows of the past: samples of the last hour for its charts, and a worker's last events."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import takewhile
from math import isnan, nan
from typing import Literal

from calving.model.text import counted
from calving.secrets import masked, safe_lines
from calving.serving.cardinality import partitions_of, tables_of
from calving.status.health import HealthLog, reasons
from calving.status.values import CommitCycle, Status

SECONDS = 10.0
"""The time from one sample to the next."""
_SAMPLES = 360


class History:
    """Samples of several series. One thread writes them, others read them. A series that appears later is empty before
    that.
    """

    def __init__(self) -> None:
        self._times = array("d")
        self._series: dict[tuple[str, str], array[float]] = {}
        self._seen = ""

    def sample(self, status: Status, now: float) -> None:
        current = dict(self._values(status, now))
        times = array("d", [*self._times[-_SAMPLES + 1 :], now])
        series = {}
        for key in self._series.keys() | current.keys():
            before = self._series.get(key, array("f"))[-len(times) + 1 :] if len(times) > 1 else array("f")
            padding = array("f", [nan]) * (len(times) - 1 - len(before))
            series[key] = padding + before + array("f", [current.get(key, nan)])
        # Replace both at once, so that a reader finds series and times of equal length.
        self._times, self._series = times, {k: s for k, s in series.items() if not all(map(isnan, s))}

    def series(self, kind: str, names: Collection[str]) -> dict[str, list[float | None]]:
        """``age``, ``commit``, ``lag`` or ``waiting`` of these tables or partitions; None for a sample without a
        value.
        """
        series = self._series
        return {n: [None if isnan(v) else round(v, 3) for v in series[kind, n]] for n in names if (kind, n) in series}

    @property
    def times(self) -> list[float]:
        return list(self._times)

    def _values(self, status: Status, now: float) -> Iterator[tuple[tuple[str, str], float]]:
        for name, table in tables_of(status).items():
            through = table.valid_through_us
            since = through / 1e6 if through is not None else table.committed_at
            if since is not None:
                yield ("age", name), max(0.0, now - since)
        for (topic, partition), lag in partitions_of(status, now):
            yield ("lag", f"{topic}-{partition}"), lag.source_lag
            yield ("waiting", f"{topic}-{partition}"), max(lag.source_lag, lag.commit_lag or 0)
        recent = status.coordinator.recent
        new = list(takewhile(lambda cycle: cycle.commit_id != self._seen, recent))
        self._seen = recent[0].commit_id if recent else ""
        for commit in (table for cycle in reversed(new) for table in cycle.tables):
            if commit.outcome == "done":
                yield ("commit", commit.table), commit.seconds


LOOK_SECONDS = 2.0
"""The time from one look to the next."""
_MOST, _MOST_CHARACTERS, _MOST_TABLES = 200, 1_000, 5

Level = Literal["info", "warning"]


@dataclass(frozen=True, slots=True)
class PageEvent:
    """Something that has happened. ``number``: no two events of a process have the same."""

    number: int
    at: float
    level: Level
    text: str


class Events:
    """One thread looks, others read. Events are made of the status alone, which holds no value of a record unless an
    error does, and never of the log. Secrets are masked.
    """

    def __init__(self) -> None:
        self._events: deque[PageEvent] = deque(maxlen=_MOST)
        self._before: Status | None = None
        self._health = HealthLog()
        self._number = 0

    def look(self, status: Status, now: float) -> None:
        """Note what has happened since the last look."""
        if self._before is None:
            self._add(status.sink.started_at, "info", f"the worker has started, version {status.sink.version}")
        elif self._before is not status:
            for at, level, text in _between(self._before, status, now):
                self._add(at, level, text)
        self._before = status
        for line in self._health.lines(reasons(status, now), status.worker):
            self._add(now, "warning" if line.startswith("DEGRADED") else "info", line)

    @property
    def newest_first(self) -> list[PageEvent]:
        return list(self._events)[::-1]

    def _add(self, at: float, level: Level, text: str) -> None:
        self._number += 1
        self._events.append(PageEvent(self._number, at, level, safe_lines(masked(text))[:_MOST_CHARACTERS]))


def _between(before: Status, after: Status, now: float) -> Iterator[tuple[float, Level, str]]:
    was, worker = before.worker, after.worker
    if worker.restarts > was.restarts:
        yield now, "warning", f"starting over from the stored positions: {worker.error}"
    if worker.joined and not was.joined:
        yield now, "info", "joined the consumer group"
    if worker.partitions.keys() != was.partitions.keys():
        more, fewer = worker.partitions.keys() - was.partitions.keys(), was.partitions.keys() - worker.partitions.keys()
        held = counted(len(worker.partitions), "partition")
        yield now, "info", f"has {held}: {len(more)} more, {len(fewer)} fewer"
    if worker.leads != was.leads:
        yield now, "info", "leads now" if worker.leads else "leads no longer"
    if worker.paused != was.paused:
        yield now, "warning" if worker.paused else "info", "was paused" if worker.paused else "was resumed"
    yield from ((now, "warning", text) for text in _lost_or_bad(before, after))
    seen = before.coordinator.recent[0].commit_id if before.coordinator.recent else ""
    new = list(takewhile(lambda cycle: cycle.commit_id != seen, after.coordinator.recent))
    for cycle in reversed(new):
        yield from _of_cycle(cycle)


def _lost_or_bad(before: Status, after: Status) -> Iterator[str]:
    was, worker = before.worker, after.worker
    dead = sum(worker.batches.records.dead_lettered.values()) - sum(was.batches.records.dead_lettered.values())
    if dead > 0:
        yield counted(dead, "record has become a dead letter", "records have become dead letters")
    lost = sum(worker.lost.values()) - sum(was.lost.values())
    if lost > 0:
        yield counted(lost, "record was", "records were") + " no longer at the broker, and skipped"


def _of_cycle(cycle: CommitCycle) -> Iterator[tuple[float, Level, str]]:
    if cycle.outcome == "empty":
        return
    files, records = sum(t.files for t in cycle.tables), sum(t.records for t in cycle.tables)
    text = f"commit to {counted(len(cycle.tables), 'table')}: {counted(records, 'record')} in {counted(files, 'file')}"
    yield cycle.ended_at, "info", f"{text}, {cycle.commit_seconds:.1f} s"
    if cycle.unanswered:
        lacking = counted(len(cycle.unanswered), "partition")
        yield cycle.ended_at, "warning", f"the commit had no answer for {lacking}"
    failed = [table for table in cycle.tables if table.outcome == "failed"]
    for table in failed[:_MOST_TABLES]:
        yield (
            cycle.ended_at,
            "warning",
            f"table {table.table} was not committed: {table.reason or 'the cause is unknown'}",
        )
    if len(failed) > _MOST_TABLES:
        yield cycle.ended_at, "warning", f"and {len(failed) - _MOST_TABLES} more tables were not committed"
