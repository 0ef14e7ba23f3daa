"""How fast the workers of a sink read, from their publications in the control log: pure, time is an argument."""

from __future__ import annotations

from itertools import pairwise
from uuid import UUID

from calving.model.events import NO_COMMIT, DataComplete, Envelope
from calving.model.offsets import TopicPartition

_WINDOW_SECONDS = 600.0
_WINDOW_INTERVALS = 3


class Published:
    """The publications that the control log tells of, by commit cycle: in a cycle all workers publish at nearly the
    same time what they have read since the last one.
    """

    def __init__(self) -> None:
        self._ends: dict[TopicPartition, int] = {}
        self._cycles: dict[UUID, tuple[float, int]] = {}
        """When the first publication of each cycle was made, and how many records the cycle adds."""
        self._between = 0
        """Records that were published since the last cycle, as when a worker hands its partitions over."""

    def hear(self, envelope: Envelope) -> None:
        """Take in an entry of the control log."""
        if not isinstance(envelope.event, DataComplete) or not envelope.at_us:
            return
        records = 0
        for tp, spans in envelope.spans.items():
            own = spans[-1]
            records += max(0, own.end - max(own.start, self._ends.get(tp, own.start)))
            self._ends[tp] = max(own.end, self._ends.get(tp, own.end))
        cycle = envelope.event.commit_id
        if cycle == NO_COMMIT:
            self._between += records
        elif records:
            at, before = self._cycles.get(cycle, (envelope.at_us / 1e6, self._between))
            self._cycles[cycle] = at, before + records
            self._between = 0

    def rate(self, now: float, interval: float) -> float | None:
        """Records read a second, over the last ten minutes, or the last three intervals between commits if these are
        longer; None if fewer than two cycles with records began then. ``interval``: in seconds.
        """
        since = now - max(_WINDOW_SECONDS, _WINDOW_INTERVALS * interval)
        recent = sorted(each for each in self._cycles.values() if since <= each[0] <= now)
        if len(recent) < 2 or recent[0][0] == recent[-1][0]:
            return None
        first, last = recent[0][0], recent[-1][0]
        longest = max(later - earlier for (earlier, _), (later, _) in pairwise(recent))
        # A wait for the next cycle counts once it is longer than all before: a sink that hangs becomes slower.
        seconds = last - first + max(0.0, now - last - longest)
        # What the first cycle has published was read before it.
        return sum(records for _, records in recent[1:]) / seconds
