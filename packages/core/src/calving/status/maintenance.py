"""What the maintenance of this process has done, as values. Times are seconds since the epoch."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from calving.status.histogram import SECONDS, Histogram

NOTHING, LEFT_ALONE = "nothing", "left alone"
"""The outcomes of a task that found nothing to do, and of one that may not do anything."""
_NOT_DONE = ("failed", "dropped")
ALL = "all"
"""The task of a run that is about the whole table."""
_OVERDUE_PAUSES, _OVERDUE_SECONDS = 10, 600.0
"""Work that has been due for so many pauses of its table, and so long, is overdue: one group of files takes minutes."""


@dataclass(frozen=True, slots=True)
class MaintenanceRun:
    """One task at one table. ``outcome``: done; nothing, because nothing was due; left alone; dropped; or failed.
    ``rewritten``: bytes of the files or manifests that were replaced. ``part``: the partition, if it was one;
    ``files``: how many files of it.
    """

    task: str
    outcome: str
    text: str
    ended_at: float
    seconds: float
    rewritten: int = 0
    part: str = ""
    files: int = 0


@dataclass(frozen=True, slots=True)
class DueWork:
    """Work that a task has planned and not done yet. ``since``: when a plan first had it. ``failed_since``: when the
    task failed for the first time after its last success; None if it has not failed since.
    """

    since: float
    files: int = 0
    bytes: int = 0
    failed_since: float | None = None


@dataclass(frozen=True, slots=True)
class TableMaintenance:
    """``running_since``: when the task began that runs now; None if none does. ``looked_at``: when a task last ended.
    ``last``: the last run that had something to do. ``due``: by task and partition. ``done_at``: when a task last did
    something. ``pause``: the seconds between two changes of the table.
    """

    running_since: float | None = None
    looked_at: float | None = None
    last: MaintenanceRun | None = None
    due: Mapping[tuple[str, str], DueWork] = field(default_factory=dict)
    done_at: float | None = None
    pause: float = 60.0

    @property
    def due_since(self) -> float | None:
        """When the oldest work was found that is due; None if none is."""
        return min((work.since for work in self.due.values()), default=None)

    @property
    def due_files(self) -> int:
        return sum(work.files for work in self.due.values())

    @property
    def due_bytes(self) -> int:
        return sum(work.bytes for work in self.due.values())

    def overdue(self, now: float) -> Mapping[tuple[str, str], DueWork]:
        """The work that does not get done: it fails, or nothing at all was done to the table meanwhile. Many
        partitions may be due for long while they are done one after the other.
        """
        limit = max(_OVERDUE_SECONDS, _OVERDUE_PAUSES * self.pause)
        return {key: work for key, work in self.due.items() if now - self._stands_still_since(work) > limit}

    def _stands_still_since(self, work: DueWork) -> float:
        if work.failed_since is not None:
            return work.failed_since
        return work.since if self.done_at is None else max(work.since, self.done_at)


@dataclass(frozen=True, slots=True)
class MaintenanceStatus:
    """Totals since the process began, by task and outcome; and the tables."""

    seconds: Mapping[tuple[str, str], Histogram] = field(default_factory=dict)
    rewritten: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """In bytes."""
    tables: Mapping[str, TableMaintenance] = field(default_factory=dict)


NO_MAINTENANCE = MaintenanceStatus()


def after_begin(before: MaintenanceStatus, table: str, now: float, pause: float = 60.0) -> MaintenanceStatus:
    """The status once a task has begun at a table. ``pause``: the table's, in seconds."""
    known = before.tables.get(table, TableMaintenance())
    return replace(before, tables={**before.tables, table: replace(known, running_since=now, pause=pause)})


def after_look(
    before: MaintenanceStatus, table: str, task: str, found: Mapping[str, tuple[int, int]], now: float
) -> MaintenanceStatus:
    """The status once a task has looked for its work at a table. ``found``: files and bytes, by partition."""
    known = before.tables.get(table, TableMaintenance())
    due = {key: work for key, work in known.due.items() if key[0] != task}
    for part, (files, size) in found.items():
        earlier = known.due.get((task, part), DueWork(now))
        due[task, part] = replace(earlier, files=files, bytes=size)
    return replace(before, tables={**before.tables, table: replace(known, due=due)})


def after_moves(
    before: MaintenanceStatus, table: str, task: str, files: int, now: float, pause: float, *, was_moved: bool
) -> MaintenanceStatus:
    """The status once somebody has looked at a table for files that others have to move. ``was_moved``: whether they
    have done so since the last look.
    """
    known = before.tables.get(table, TableMaintenance())
    known = replace(known, pause=pause, done_at=now if was_moved else known.done_at)
    return after_look(replace(before, tables={**before.tables, table: known}), table, task, {"": (files, 0)}, now)


def with_due_of(before: MaintenanceStatus, names: Collection[str]) -> MaintenanceStatus:
    """The status when only these tables are maintained: nobody knows whether work of others is still due."""
    tables = {name: known if name in names else replace(known, due={}) for name, known in before.tables.items()}
    return replace(before, tables=tables)


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
        {
            **before.tables,
            table: replace(
                known,
                looked_at=run.ended_at,
                last=last,
                due=_due_after(known.due, run),
                done_at=run.ended_at if run.outcome == "done" else known.done_at,
            ),
        },
    )


def _due_after(before: Mapping[tuple[str, str], DueWork], run: MaintenanceRun) -> dict[tuple[str, str], DueWork]:
    if run.outcome == LEFT_ALONE:  # somebody else does it, or calving cannot
        return {key: work for key, work in before.items() if run.task not in (ALL, key[0])}
    key = run.task, run.part
    due = {each: work for each, work in before.items() if each != (ALL, "")}  # the table can be reached again
    work = before.get(key, DueWork(run.ended_at, run.files, run.rewritten))
    if run.outcome in _NOT_DONE:
        failed_since = run.ended_at if work.failed_since is None else work.failed_since
        due[key] = replace(work, failed_since=failed_since)
        return due
    due.pop(key, None)
    if work.files > run.files:  # a partition may have more than one group
        left, size = work.files - run.files, max(0, work.bytes - run.rewritten)
        due[key] = DueWork(work.since, left, size)
    return due
