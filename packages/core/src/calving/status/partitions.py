"""The partitions of a worker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

from calving.model.coverage import Coverage
from calving.model.offsets import SourceOffsets, Span, TopicPartition, named
from calving.status.values import PartitionStatus


class HeldPartitions(Mapping[TopicPartition, PartitionStatus]):
    """Put together when somebody looks: a worker with a thousand partitions reports several times a second, and most of
    its reports nobody reads.
    """

    def __init__(
        self, positions: SourceOffsets, ends: SourceOffsets, settled: Coverage, latest_us: Mapping[TopicPartition, int]
    ) -> None:
        """None of these may change afterwards."""
        self._positions, self._ends, self._settled, self._latest_us = positions, ends, settled, latest_us

    def __getitem__(self, tp: TopicPartition) -> PartitionStatus:
        return self._all[tp]

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._positions)

    def __len__(self) -> int:
        return len(self._positions)

    @property
    def behind(self) -> int:
        """Records that no finished batch has read."""
        return sum(max(0, self._ends.get(tp, at) - at) for tp, at in self._positions.items())

    @cached_property
    def _all(self) -> dict[TopicPartition, PartitionStatus]:
        committed = committed_up_to(self._settled)
        return {
            tp: PartitionStatus(at, self._ends.get(tp, at), committed.get(tp), self._latest_us.get(tp))
            for tp, at in self._positions.items()
        }


def committed_up_to(settled: Coverage) -> dict[TopicPartition, int]:
    """Up to where every record is in its tables, by partition, where these spans are settled."""
    return {named(tp): _first_hole(spans) for tp, spans in settled.items()}


def _first_hole(spans: Iterable[Span]) -> int:
    """Where the first hole begins, behind a mark that the offsets have restarted."""
    plain = [span for span in spans if span.start <= span.end]
    return plain[0].end if plain else 0
