"""What the maintenance of this process has done, as values. Times are seconds since the epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from calving.status.histogram import SECONDS, Histogram

NOTHING = "nothing"
"""The outcome of a task that found nothing to do."""


@dataclass(frozen=True, slots=True)
class MaintenanceRun:
    """One task at one table. ``outcome``: done; nothing, because nothing was due; left alone; dropped; or failed.
    ``rewritten``: bytes of the files or manifests that were replaced.
    """

    task: str
    outcome: str
    text: str
    ended_at: float
    seconds: float
    rewritten: int = 0


@dataclass(frozen=True, slots=True)
class TableMaintenance:
    """``running_since``: when the task began that runs now; None if none does. ``looked_at``: when a task last ended.
    ``last``: the last run that had something to do.
    """

    running_since: float | None = None
    looked_at: float | None = None
    last: MaintenanceRun | None = None


@dataclass(frozen=True, slots=True)
class MaintenanceStatus:
    """Totals since the process began, by task and outcome; and the tables."""

    seconds: Mapping[tuple[str, str], Histogram] = field(default_factory=dict)
    rewritten: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """In bytes."""
    tables: Mapping[str, TableMaintenance] = field(default_factory=dict)


NO_MAINTENANCE = MaintenanceStatus()


def after_begin(before: MaintenanceStatus, table: str, now: float) -> MaintenanceStatus:
    """The status once a task has begun at a table."""
    known = before.tables.get(table, TableMaintenance())
    return replace(before, tables={**before.tables, table: replace(known, running_since=now)})


def after_run(before: MaintenanceStatus, table: str, run: MaintenanceRun | None) -> MaintenanceStatus:
    """The status once a task has ended at a table; None: there was no further task."""
    known = replace(before.tables.get(table, TableMaintenance()), running_since=None)
    if run is None:
        return replace(before, tables={**before.tables, table: known})
    last = known.last if run.outcome == NOTHING else run
    key = run.task, run.outcome
    seconds = before.seconds.get(key, Histogram.of(SECONDS)).observe([run.seconds])
    return MaintenanceStatus(
        {**before.seconds, key: seconds},
        {**before.rewritten, key: before.rewritten.get(key, 0) + run.rewritten},
        {**before.tables, table: replace(known, looked_at=run.ended_at, last=last)},
    )
