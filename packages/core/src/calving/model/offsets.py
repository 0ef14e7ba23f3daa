"""Positions and spans.

An offset always names the next record to read, never the last one read. *Source* offsets belong to the Kafka
topics that a sink reads, *control* offsets to the partitions of its control log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Self


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def within(tp: TopicPartition, topic_id: str) -> TopicPartition:
    """``tp`` qualified by topic id, so that a recreated topic compares unequal: its topic becomes ``orders@<topic
    id>``, which is no legal topic name. Unchanged if the topic id is unknown (empty).
    """
    return TopicPartition(f"{tp.topic}@{topic_id}", tp.partition) if topic_id else tp


def topic_id_of(tp: TopicPartition) -> str:
    """The topic id that ``within`` has added, else empty."""
    return tp.topic.partition("@")[2]


def named(tp: TopicPartition) -> TopicPartition:
    """``tp`` without a topic id."""
    return TopicPartition(tp.topic.partition("@")[0], tp.partition)


TRUNCATED = "~"
"""Suffix of the topic id that is stored with a position, if the partition's log was truncated before."""


def stored_in(topic: str, identity: str) -> str:
    """A topic ``within`` the topic id that a store keeps with a position, whether or not it was truncated."""
    return within(TopicPartition(topic, 0), identity.removesuffix(TRUNCATED)).topic


class Span(NamedTuple("Span", [("start", int), ("end", int)])):
    """Source offsets from ``start`` up to, not including, ``end``.

    :raises ValueError: it would end before it starts, or start below 0.
    """

    __slots__ = ()

    def __new__(cls, start: int, end: int) -> Self:
        if not 0 <= start <= end:
            raise ValueError(f"there are no offsets from {start} up to {end}")
        return super().__new__(cls, start, end)

    def __str__(self) -> str:
        return f"[{self.start}, {self.end})"


class Gap(NamedTuple):
    """Offset ``wanted`` is not there; reading can go on at ``resumes``, which is lower where the offsets restart."""

    wanted: int
    resumes: int


class Advance(NamedTuple):
    """The advance of one stored source position; ``start`` is None if no position was stored before."""

    start: int | None
    end: int


SourceOffsets = Mapping[TopicPartition, int]
"""Next offset to read, by source partition."""

Spans = Mapping[TopicPartition, Span]
"""The source offsets that a batch or a publication covers, by partition."""

Advances = Mapping[TopicPartition, Advance]
"""How a publication advances the stored source positions."""

ControlOffsets = Mapping[int, int]
"""Next offset to read, by partition of the control log."""


def furthest(a: ControlOffsets, b: ControlOffsets) -> dict[int, int]:
    """The later of two positions, partition by partition."""
    return {p: max(a.get(p, 0), b.get(p, 0)) for p in sorted({*a, *b})}
