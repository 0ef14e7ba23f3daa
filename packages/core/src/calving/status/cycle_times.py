"""What a commit cycle spends its time with, as far as this process takes part in it, and how long records take until
readers see them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from uuid import UUID

from calving.model.events import NO_COMMIT
from calving.model.offsets import Coverage, SourceOffsets, TopicPartition
from calving.status.partitions import committed_up_to

CYCLE_STEPS = (
    "waited",
    "heard",
    "looked",
    "loaded",
    "batch",
    "seen",
    "published",
    "answered",
    "committed",
    "announced",
)
"""In their order, each from the end of the one before.

Of the leader: ``waited``: after the cycle was due; ``answered``: until all partitions had answered; ``committed``: the
tables; ``announced``: CommitComplete was written. Of each worker: ``heard``: until it had read StartCommit, which only
the leader's own worker knows; ``looked``: asked for the ends of its partitions; ``loaded``: loaded its tables;
``batch``: the rest of the batch; ``seen``: until the loop saw that it had ended; ``published``.
"""
_OF_BATCHES = ("loaded", "batch", "seen")
_MOST = 16
"""How many publications of a partition are kept. Later ones are joined with the last."""


class CycleTimes:
    """The times of one cycle after the other. Any thread may call it."""

    def __init__(self, clock: Callable[[], float], ended: Callable[[Mapping[str, float]], None]) -> None:
        """``ended`` gets the seconds of each step of a cycle that has ended, as far as this process knows them."""
        self._clock, self._ended = clock, ended
        self._lock = threading.Lock()
        self._commit_id = NO_COMMIT
        self._due: float | None = None
        """When the cycle was due; None if another process leads."""
        self._marks: dict[str, float] = {}

    def begins(self, commit_id: UUID, due: float) -> None:
        """The coordinator of this process begins a cycle that was ``due``, and is about to tell it."""
        with self._lock:
            self._commit_id, self._due, self._marks = commit_id, due, {"waited": self._clock()}

    def hears(self, commit_id: UUID) -> None:
        """The worker has read a StartCommit."""
        with self._lock:
            if commit_id != self._commit_id:
                self._commit_id, self._due, self._marks = commit_id, None, {}
            self._marks.setdefault("heard", self._clock())

    def mark(self, step: str, commit_id: UUID | None = None) -> None:
        """A step has ended. ``commit_id``: the coordinator's cycle. Without it, it is a step of the worker: one
        before StartCommit or after its answer is none of this cycle.
        """
        with self._lock:
            if commit_id is not None and commit_id != self._commit_id:
                return
            if commit_id is None and ("heard" not in self._marks or "published" in self._marks):
                return
            if step in _OF_BATCHES or step not in self._marks:
                self._marks[step] = self._clock()

    def ends(self, commit_id: UUID, *, leads: bool) -> Mapping[str, float]:
        """The cycle has ended: the coordinator of this process has written CommitComplete (``leads``), or the worker
        has read it. Returns the seconds of its steps; empty if they are unknown, or told by the other of the two.
        """
        with self._lock:
            if commit_id != self._commit_id or leads != (self._due is not None):
                return {}
            steps = _seconds(self._marks, self._due)
            self._commit_id, self._due, self._marks = NO_COMMIT, None, {}
        self._ended(steps)
        return steps


def _seconds(marks: Mapping[str, float], due: float | None) -> dict[str, float]:
    """The seconds of each step whose begin is known. A batch that ran before the cycle began takes no time of it, and
    what other threads marked too late is part of the step before.
    """
    steps: dict[str, float] = {}
    reached = due
    for step in CYCLE_STEPS:
        if (at := marks.get(step)) is None:
            continue
        if reached is not None:
            steps[step] = max(0.0, at - reached)
        reached = at if reached is None else max(reached, at)
    return steps


class Latencies:
    """How long the oldest record of each publication took until readers saw it, by partition."""

    def __init__(self) -> None:
        self._waiting: dict[TopicPartition, list[tuple[int, int]]] = {}
        """The ends of publications, each with the timestamp of the oldest record in microseconds; both in order."""

    def published(self, ends: SourceOffsets, earliest_us: Mapping[TopicPartition, int]) -> None:
        """Records up to these ends are published, the oldest of each partition with this timestamp."""
        for tp, at in earliest_us.items():
            waiting = self._waiting.setdefault(tp, [])
            if len(waiting) == _MOST:
                at = min(at, waiting.pop()[1])
            waiting.append((ends[tp], at))

    def visible(self, settled: Coverage, now_us: float) -> list[float]:
        """The seconds of the publications all of whose records are in their tables now, if these spans are settled."""
        if not self._waiting or not settled:
            return []
        reached = committed_up_to(settled)
        seconds: list[float] = []
        for tp, waiting in list(self._waiting.items()):
            seconds += [max(0.0, now_us - at) / 1e6 for end, at in waiting if end <= reached.get(tp, 0)]
            self._waiting[tp] = [each for each in waiting if each[0] > reached.get(tp, 0)]
            if not self._waiting[tp]:
                del self._waiting[tp]
        return seconds
