"""What became of the publications of a process, and when readers saw them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping

from calving.errors import OutcomeUnknownError, StaleError, UnavailableError
from calving.model.events import CommitComplete, Envelope
from calving.model.offsets import SourceOffsets, TopicPartition
from calving.status.cycle_times import Latencies
from calving.status.histogram import SECONDS, Histogram

_OUTCOMES: dict[type[Exception], str] = {
    UnavailableError: "unavailable",
    OutcomeUnknownError: "unknown",
    StaleError: "stale",
}


class Publications:
    """Counts the outcomes of publications, over all loops of a process."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.refused_in_a_row = 0
        self.latencies = Histogram.of(SECONDS)
        """How long the oldest record of each partition's publication took until readers saw it."""
        self._waiting = Latencies()

    def add(self, outcome: str) -> None:
        self.outcomes[outcome] += 1
        self.refused_in_a_row = self.refused_in_a_row + 1 if outcome in ("fenced", "stale") else 0

    def failed(self, error: Exception) -> None:
        """A publication has ended with this error."""
        self.add(next((text for kind, text in _OUTCOMES.items() if isinstance(error, kind)), "fenced"))

    def done(self, ends: SourceOffsets, earliest_us: Mapping[TopicPartition, int]) -> None:
        """Records up to these ends are published, the oldest of each partition with this timestamp."""
        self.add("done")
        self._waiting.published(ends, earliest_us)

    def hear(self, envelope: Envelope) -> None:
        """Take in an entry of the control log."""
        if isinstance(envelope.event, CommitComplete):
            self.latencies = self.latencies.observe(self._waiting.visible(envelope.attached.settled, time.time() * 1e6))
