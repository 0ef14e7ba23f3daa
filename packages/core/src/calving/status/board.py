"""The current status: loops write it, each its part, and presenters read it, whole or as a summary."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from calving.model.mutation_counts import MutationCounts
from calving.status.histogram import SECONDS, Histogram
from calving.status.maintenance import MaintenanceStatus
from calving.status.values import (
    STEPS,
    CommitCycle,
    CoordinatorStatus,
    Failure,
    LogStatus,
    SinkFacts,
    Status,
    TableCommit,
    WorkerStatus,
)

_RECENT = 20


def after_cycle(
    before: CoordinatorStatus,
    cycle: CommitCycle,
    times_failed: Mapping[str, int],
    missing: Mapping[str, str],
    buffered: int,
) -> CoordinatorStatus:
    """The status after a cycle. ``times_failed``: how many commits of each table failed in a row."""
    tables = cycle.tables
    reasons = {each.table: each.reason for each in tables if each.reason is not None}
    return CoordinatorStatus(
        cycles=Counter(before.cycles) + Counter({cycle.outcome: 1}),
        recent=(cycle, *before.recent)[:_RECENT],
        cycle_seconds=before.cycle_seconds.observe([cycle.seconds]),
        step_seconds=_steps(before.step_seconds, tables),
        commits=Counter(before.commits) + Counter((each.table, each.outcome) for each in tables),
        failing={
            table: Failure(times, reasons.get(table) or _before(before, table)) for table, times in times_failed.items()
        },
        missing=missing,
        buffered=buffered,
        files=before.files + sum(each.files for each in tables),
        records=before.records + sum(each.records for each in tables),
        totals={**before.totals, **{each.table: each for each in tables if each.total_files is not None}},
        mutations=_mutations(before.mutations, tables),
        changes={**before.changes, **{each.table: each for each in tables if each.mutations is not None}},
    )


def _mutations(before: Mapping[str, MutationCounts], tables: tuple[TableCommit, ...]) -> Mapping[str, MutationCounts]:
    totals = dict(before)
    for each in tables:
        if each.mutations is not None:
            totals[each.table] = totals.get(each.table, MutationCounts()) + each.mutations
    return totals


def _before(before: CoordinatorStatus, table: str) -> str:
    known = before.failing.get(table)
    return known.reason if known is not None else "the cause is unknown"


def _steps(before: Mapping[str, Histogram], tables: tuple[TableCommit, ...]) -> dict[str, Histogram]:
    return {
        step: before.get(step, Histogram.of(SECONDS)).observe(t.steps[step] for t in tables if step in t.steps)
        for step in STEPS
    }


class Board:
    """Each loop replaces its part of the status as a whole; reading needs no lock."""

    def __init__(self, sink: SinkFacts) -> None:
        self._lock = threading.Lock()
        self.status = Status(sink)
        self.full_at = float("-inf")
        """When a commit cycle of this process last had all answers and all tables, on the monotonic clock."""

    def worker(self, value: WorkerStatus, log: LogStatus) -> None:
        with self._lock:
            self.status = replace(self.status, worker=value, log=log)

    def coordinator(self, value: CoordinatorStatus) -> None:
        with self._lock:
            self.status = replace(self.status, coordinator=value)

    def cycle(self, steps: Mapping[str, float]) -> None:
        """A commit cycle has ended, in which this process took these seconds for its steps."""
        with self._lock:
            before = self.status.cycle_steps
            after = {step: before.get(step, Histogram.of(SECONDS)).observe([took]) for step, took in steps.items()}
            self.status = replace(self.status, cycle_steps={**before, **after})

    def maintenance(self, change: Callable[[MaintenanceStatus], MaintenanceStatus]) -> None:
        with self._lock:
            self.status = replace(self.status, maintenance=change(self.status.maintenance))


@dataclass(frozen=True, slots=True)
class Progress:
    """The totals of a worker process since its start, and the present state of its partitions."""

    read: int = 0
    behind: int = 0
    """Records of the assigned partitions that no finished batch has read."""
    hidden: int = 0
    """Records behind open transactions of their producers: they cannot be read yet."""
    files: int = 0
    """On the leader: data files that were committed."""
    commits: int = 0
    """On the leader: commit cycles that have ended."""
    committed_records: int = 0
    valid_through_us: int | None = None
    leads: bool = False
    held: int = 0
    """Number of assigned partitions."""
    failing: Mapping[str, int] = field(default_factory=dict)
    """On the leader: tables whose last commits failed, each with the number of failures in a row."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """On the leader: tables that lacked offsets in their last two commits, and these offsets."""
    degraded: Mapping[str, int] = field(default_factory=dict)
    """Tables with files that are not committed after several commit cycles, each with the number of cycles. Every
    worker reports these tables.
    """
    stages: Mapping[str, float] = field(default_factory=dict)
    """CPU seconds of the tasks, by stage."""
    restarts: int = 0

    @staticmethod
    def of(status: Status) -> Progress:
        worker, coordinator = status.worker, status.coordinator
        return Progress(
            read=worker.batches.read,
            behind=worker.behind,
            hidden=worker.hidden,
            files=coordinator.files,
            commits=sum(coordinator.cycles.values()),
            committed_records=coordinator.records,
            valid_through_us=coordinator.recent[0].valid_through_us if coordinator.recent else None,
            leads=worker.leads,
            held=len(worker.partitions),
            failing={table: failure.times for table, failure in coordinator.failing.items()},
            missing=coordinator.missing,
            degraded=status.log.degraded,
            stages=worker.batches.stages,
            restarts=worker.restarts,
        )
