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


def within(tp: TopicPartition, topic_id: str) -> TopicPartition:
    """``tp`` of this very topic, and of no other that has its name at another time; ``orders@<identity>`` stands for
    the topic, which no topic can be called. As it is, where the identity is not known (empty).
    """
    return TopicPartition(f"{tp.topic}@{topic_id}", tp.partition) if topic_id else tp


def topic_id_of(tp: TopicPartition) -> str:
    """The identity that ``within`` has put in, else empty."""
    return tp.topic.partition("@")[2]


def named(tp: TopicPartition) -> TopicPartition:
    """``tp`` as it is called, whichever topic that is."""
    return TopicPartition(tp.topic.partition("@")[0], tp.partition)


TRUNCATED = "~"
"""Ends the identity that is stored with a position, where the partition's log was truncated before."""


def stored_in(topic: str, identity: str) -> str:
    """A topic ``within`` the identity that a store has beside a position in it, whether or not it was truncated."""
    return within(TopicPartition(topic, 0), identity.removesuffix(TRUNCATED)).topic


class Span(NamedTuple):
    """Source offsets from ``start`` up to, not including, ``end``."""

    start: int
    end: int

    def __str__(self) -> str:
        return f"[{self.start}, {self.end})"


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
