"""The partitions of a worker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from types import MappingProxyType

from calving.model.offsets import Coverage, SourceOffsets, TopicPartition, named
from calving.status.arrivals import Arrivals, arrived
from calving.status.values import PartitionStatus


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
