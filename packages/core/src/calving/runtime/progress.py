"""What a worker process has done, as anybody may read it at any time."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass
class Progress:
    """What the sink has done since it started; read by the log lines, the demo and the tests."""

    read: int = 0
    behind: int = 0
    hidden: int = 0
    """Records behind open transactions of their producers: they cannot be read yet."""
    files: int = 0
    commits: int = 0
    committed_records: int = 0
    valid_through_us: int | None = None
    leads: bool = False
    held: int = 0
    failing: dict[str, int] = field(default_factory=dict)
    """Of the leader: tables that could not be committed, and how often in a row."""
    missing: dict[str, str] = field(default_factory=dict)
    """Of the leader: tables that lack offsets which two commits have passed over, and these."""
    degraded: dict[str, int] = field(default_factory=dict)
    """Of every worker: tables whose files wait, and for how many commit cycles."""
    stages: dict[str, float] = field(default_factory=dict)
    restarts: int = 0
    full_cycle_at: float = field(default_factory=time.monotonic)
    """When a commit cycle last had all answers and all tables (or the start), on the monotonic clock."""

    def since_full_cycle(self, now: float) -> float:
        """Seconds."""
        return now - self.full_cycle_at
