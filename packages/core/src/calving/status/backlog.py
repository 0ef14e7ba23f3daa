"""How far a worker is behind its topics, and how fast it catches up; and how fast all workers of a sink read, from
their publications in the control log: pure, time is an argument.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, NamedTuple
from uuid import UUID

from calving.model.events import NO_COMMIT, DataComplete, Envelope
from calving.model.offsets import TopicPartition

_WINDOW_SECONDS = 60.0
"""Speeds are measured over at least this time, and over at least two batches."""
_APART_SECONDS = 1.0
"""Marks are not closer together, so that short batches do not make many of them."""
_FEWEST = 3
_KEEPS_UP = 0.1
"""A worker keeps up if a batch leaves at most this share of its own records unread."""

Pace = Literal["unknown", "catching-up", "falling-behind", "keeping-up", "done"]


class Mark(NamedTuple):
    """The end of a batch: when, how many records the worker had read, and how many were left. The last mark may tell
    instead that nothing was read for long, and more records came.
    """

    at: float
    read: int
    behind: int


@dataclass(frozen=True, slots=True)
class Backlog:
    """The records that a worker has read and has to read. ``behind``: None until the ends of its partitions are
    known. ``base``: how many it had read when nothing was left the last time.
    """

    read: int = 0
    behind: int | None = None
    base: int = 0
    held: frozenset[TopicPartition] = frozenset()
    """The partitions; when they change, speeds are measured anew."""
    marks: tuple[Mark, ...] = ()

    def then(self, now: float, read: int, behind: int | None, held: frozenset[TopicPartition]) -> Backlog:
        """The backlog after a look at the worker. ``now``: seconds of a clock that nobody sets."""
        if behind is None or held != self.held or self.behind is None:
            marks = () if behind is None else (Mark(now, read, behind),)
            return Backlog(read, behind, read, held, marks)
        base = read if behind == 0 else self.base
        return replace(self, read=read, behind=behind, base=base, marks=self._marks(now, read, behind))

    def shifted(self, seconds: float) -> Backlog:
        """The same, by a clock that is so many seconds ahead."""
        return replace(self, marks=tuple(mark._replace(at=mark.at + seconds) for mark in self.marks))

    def rate(self, now: float) -> float | None:
        """Records read a second; None if it is not measured yet."""
        if self.behind is None or not self.marks:
            return None
        if self.behind == 0 and now - self.marks[-1].at > _WINDOW_SECONDS:
            return 0.0  # there was nothing to read
        seconds = self._seconds(now)
        return None if seconds is None else (self.marks[-1].read - self.marks[0].read) / seconds

    @property
    def pace(self) -> Pace:
        """Whether the backlog shrinks. ``keeping-up``: each batch reads nearly all that has come."""
        if self.behind is None:
            return "unknown"
        if self.behind == 0:
            return "done"
        if len(self.marks) < 2:
            return "unknown"
        before, last = self.marks[-2:]
        if last.behind <= _KEEPS_UP * (last.read - before.read):
            return "keeping-up"
        return "catching-up" if last.behind < self.marks[0].behind else "falling-behind"

    def seconds_left(self, now: float) -> float | None:
        """After how many seconds nothing is left to read, if records come as fast as now; None if it is unknown, or if
        the backlog does not shrink.
        """
        seconds = self._seconds(now)
        if self.pace != "catching-up" or seconds is None or self.behind is None:
            return None
        return self.behind * seconds / (self.marks[0].behind - self.marks[-1].behind)

    @property
    def share(self) -> float | None:
        """Which part is read of all that was to read since nothing was left the last time; None if it is unknown."""
        if self.behind is None:
            return None
        done = self.read - self.base
        return 1.0 if self.behind == 0 else done / (done + self.behind)

    def _marks(self, now: float, read: int, behind: int) -> tuple[Mark, ...]:
        mark, last = Mark(now, read, behind), self.marks[-1]
        if self.behind == 0 and behind and now - last.at > _WINDOW_SECONDS:
            return (mark,)  # the worker had nothing to do, which is no speed
        batches = self.marks[:-1] if self._has_waited else self.marks
        if read == self.read:
            waits = len(batches) > 1 and now - batches[-1].at > max(_WINDOW_SECONDS, _longest(batches))
            return (*batches, mark) if waits and behind > last.behind else self.marks
        is_close = len(batches) > 1 and now - batches[-2].at < _APART_SECONDS
        marks = (*(batches[:-1] if is_close else batches), mark)
        while len(marks) > _FEWEST and marks[1].at <= now - _WINDOW_SECONDS:
            marks = marks[1:]
        return marks

    @property
    def _has_waited(self) -> bool:
        """Whether the last mark is not the end of a batch."""
        return len(self.marks) > 1 and self.marks[-1].read == self.marks[-2].read

    def _seconds(self, now: float) -> float | None:
        """The time that the marks stand for. A wait for the next one counts once it is longer than all before."""
        if len(self.marks) < 2:
            return None
        wait = now - self.marks[-1].at - _longest(self.marks)
        span = self.marks[-1].at - self.marks[0].at + max(0.0, wait)
        return span if span > 0 else None


def _longest(marks: tuple[Mark, ...]) -> float:
    return max(later.at - earlier.at for earlier, later in pairwise(marks))


_PUBLISHED_SECONDS = 600.0
_PUBLISHED_INTERVALS = 3


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
        since = now - max(_PUBLISHED_SECONDS, _PUBLISHED_INTERVALS * interval)
        recent = sorted(each for each in self._cycles.values() if since <= each[0] <= now)
        if len(recent) < 2 or recent[0][0] == recent[-1][0]:
            return None
        first, last = recent[0][0], recent[-1][0]
        longest = max(later - earlier for (earlier, _), (later, _) in pairwise(recent))
        # A wait for the next cycle counts once it is longer than all before: a sink that hangs becomes slower.
        seconds = last - first + max(0.0, now - last - longest)
        # What the first cycle has published was read before it.
        return sum(records for _, records in recent[1:]) / seconds
