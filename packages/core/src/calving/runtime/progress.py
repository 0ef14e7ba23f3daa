"""A summary of a worker process's status, for progress callbacks and the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from calving.status.values import Status


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
