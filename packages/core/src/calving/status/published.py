"""How fast the workers of a sink read, from their publications in the control log: pure, time is an argument."""

from __future__ import annotations

from itertools import dropwhile

from calving.model.events import DataComplete, Envelope
from calving.model.offsets import TopicPartition

_WINDOW_SECONDS = 600.0


class Published:
    """The publications that the control log tells of. Those of one worker and of several count alike."""

    def __init__(self) -> None:
        self._ends: dict[TopicPartition, int] = {}
        self._all: list[tuple[float, int]] = []
        """For each publication: when it was made, and how many records it adds."""

    def hear(self, envelope: Envelope) -> None:
        """Take in an entry of the control log."""
        if not isinstance(envelope.event, DataComplete) or not envelope.at_us:
            return
        records = 0
        for tp, spans in envelope.spans.items():
            own = spans[-1]
            records += max(0, own.end - max(own.start, self._ends.get(tp, own.start)))
            self._ends[tp] = max(own.end, self._ends.get(tp, own.end))
        if records:
            self._all.append((envelope.at_us / 1e6, records))

    def rate(self, now: float) -> float | None:
        """Records read a second, over the last ten minutes; None if these have fewer than two publications."""
        recent = list(dropwhile(lambda each: each[0] < now - _WINDOW_SECONDS, self._all))
        if len(recent) < 2:
            return None
        seconds = recent[-1][0] - recent[0][0]
        # What the first one has read was read before it.
        return sum(records for _, records in recent[1:]) / seconds if seconds > 0 else None
