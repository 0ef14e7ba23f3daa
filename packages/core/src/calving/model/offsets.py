"""Positions and spans.

An offset always names the next record to read, never the last one read. *Source* offsets belong to the Kafka
topics that a sink reads, *control* offsets to the partitions of its control log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Span(NamedTuple):
    """Source offsets from ``start`` up to, not including, ``end``."""

    start: int
    end: int


class Advance(NamedTuple):
    """The move of one stored source position; ``start`` is None where none was stored before."""

    start: int | None
    end: int


SourceOffsets = Mapping[TopicPartition, int]
"""Next offset to read, by source partition."""

Spans = Mapping[TopicPartition, Span]
"""What a batch or a publication covers, by source partition."""

Advances = Mapping[TopicPartition, Advance]
"""How a publication moves the stored source positions."""

ControlOffsets = Mapping[int, int]
"""Next offset to read, by partition of the control log."""


def furthest(a: ControlOffsets, b: ControlOffsets) -> dict[int, int]:
    """The later of two positions, partition by partition."""
    return {p: max(a.get(p, 0), b.get(p, 0)) for p in sorted({*a, *b})}
