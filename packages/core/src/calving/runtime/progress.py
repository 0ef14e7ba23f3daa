"""What a worker process has done, in short: a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from calving.status.values import Status


@dataclass(frozen=True, slots=True)
class Progress:
    """What the sink has done since this process started."""

    read: int = 0
    behind: int = 0
    """Records of the held partitions that were not read yet."""
    hidden: int = 0
    """Records behind open transactions of their producers: they cannot be read yet."""
    files: int = 0
    """Of the leader: data files that were committed."""
    commits: int = 0
    """Of the leader: commit cycles that have ended."""
    committed_records: int = 0
    valid_through_us: int | None = None
    leads: bool = False
    held: int = 0
    """Partitions."""
    failing: Mapping[str, int] = field(default_factory=dict)
    """Of the leader: tables that could not be committed, and how often in a row."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """Of the leader: tables that lack offsets which two commits have passed over, and these."""
    degraded: Mapping[str, int] = field(default_factory=dict)
    """Of every worker: tables whose files wait, and for how many commit cycles."""
    stages: Mapping[str, float] = field(default_factory=dict)
    """CPU seconds of the tasks, by stage."""
    restarts: int = 0

    @staticmethod
    def of(status: Status) -> Progress:
        worker, coordinator = status.worker, status.coordinator
        return Progress(
            worker.batches.read,
            worker.behind,
            worker.hidden,
            coordinator.files,
            sum(coordinator.cycles.values()),
            coordinator.records,
            coordinator.recent[0].valid_through_us if coordinator.recent else None,
            worker.leads,
            len(worker.partitions),
            {table: failure.times for table, failure in coordinator.failing.items()},
            coordinator.missing,
            status.log.degraded,
            worker.batches.stages,
            worker.restarts,
        )
