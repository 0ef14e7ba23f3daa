"""The partitions of a worker, and when their records arrived, as far as a worker has seen their ends grow: pure, time
is an argument.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from types import MappingProxyType

from calving.model.offsets import Coverage, SourceOffsets, TopicPartition, named
from calving.status.values import PartitionStatus

_MOST = 16
"""How many arrivals of a partition are kept. Older ones are joined in pairs."""

Arrivals = tuple[tuple[int, float], ...]
"""The ends that a partition has had, each with the time when it was first seen; both grow."""


def seen(before: Arrivals, end: int, now: float, visible: int) -> Arrivals:
    """The arrivals after a look at the partition's end. Records below ``visible`` are in their tables: their arrivals
    are dropped.
    """
    kept = tuple(each for each in before if each[0] > visible)
    if end > max(visible, kept[-1][0] if kept else 0):
        kept = (*kept, (end, now))
    return _joined(kept) if len(kept) > _MOST else kept


def arrived(arrivals: Arrivals, visible: int) -> float | None:
    """When the first record at or above ``visible`` was seen, or a little earlier; None if there is none."""
    return next((at for end, at in arrivals if end > visible), None)


def _joined(arrivals: Arrivals) -> Arrivals:
    """Pairs of neighbours become one, which has the end of the later and the time of the earlier: an age is never too
    small for what was seen.
    """
    pairs = zip(arrivals[::2], arrivals[1::2], strict=False)
    last = arrivals[-1:] if len(arrivals) % 2 else ()
    return (*((later[0], earlier[1]) for earlier, later in pairs), *last)


class HeldPartitions(Mapping[TopicPartition, PartitionStatus]):
    """The partitions of a worker, computed when they are read. A worker with a thousand partitions reports several
    times a second, and most of its reports are never read.
    """

    def __init__(
        self,
        positions: SourceOffsets,
        ends: SourceOffsets,
        settled: Coverage,
        latest_us: Mapping[TopicPartition, int],
        arrivals: Mapping[TopicPartition, Arrivals] = MappingProxyType({}),
        wall: float = 0.0,
    ) -> None:
        """The arguments must not change afterwards. ``wall``: the difference between seconds since the epoch and the
        clock of ``arrivals``.
        """
        self._positions, self._ends, self._settled, self._latest_us = positions, ends, settled, latest_us
        self._arrivals, self._wall = arrivals, wall

    def __getitem__(self, tp: TopicPartition) -> PartitionStatus:
        return self._all[tp]

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._positions)

    def __len__(self) -> int:
        return len(self._positions)

    @property
    def known_behind(self) -> int | None:
        """Like ``behind``; None without partitions, or before the end of each of them is known."""
        return self.behind if self._positions and self._positions.keys() <= self._ends.keys() else None

    @property
    def behind(self) -> int:
        """Records that no finished batch has read."""
        return sum(max(0, self._ends.get(tp, at) - at) for tp, at in self._positions.items())

    @cached_property
    def _all(self) -> dict[TopicPartition, PartitionStatus]:
        committed = committed_up_to(self._settled)
        return {
            tp: PartitionStatus(
                at,
                self._ends.get(tp, at),
                committed.get(tp),
                self._latest_us.get(tp),
                self._waiting_since(tp, committed.get(tp, at)),
            )
            for tp, at in self._positions.items()
        }

    def _waiting_since(self, tp: TopicPartition, visible: int) -> float | None:
        at = arrived(self._arrivals.get(tp, ()), visible)
        return None if at is None else at + self._wall


def committed_up_to(settled: Coverage) -> dict[TopicPartition, int]:
    """For each partition, the offset below which every record is in its tables, if these spans are settled."""
    return {named(tp): spans[0].end if spans else 0 for tp, spans in settled.items()}
