"""Positions and spans.

An offset always names the next record to read, never the last one read. *Source* offsets belong to the Kafka
topics that a sink reads, *control* offsets to the partitions of its control log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Self


class Topic(NamedTuple):
    """A topic. ``id`` is its topic id, or empty if unknown. A recreated topic is unequal to the former one, because its
    id differs.
    """

    name: str
    id: str = ""

    def __str__(self) -> str:
        """The written form: ``orders@<topic id>``, which is no legal topic name, or the name alone if the id is
        unknown.
        """
        return f"{self.name}@{self.id}" if self.id else self.name


def parse_topic(text: str) -> Topic:
    """The inverse of ``str(topic)``."""
    name, _, topic_id = text.partition("@")
    return Topic(name, topic_id)


class TopicPartition(NamedTuple):
    """A partition of a topic. If ``topic_id`` is set, the topic with this id; otherwise the topic that has the name
    now.
    """

    topic: str
    partition: int
    topic_id: str = ""

    @property
    def whole(self) -> Topic:
        """The topic of this partition."""
        return Topic(self.topic, self.topic_id)

    def __str__(self) -> str:
        return f"{self.whole}-{self.partition}"


def within(tp: TopicPartition, topic_id: str) -> TopicPartition:
    """``tp`` of the topic with this id. If the id is empty (unknown), of the topic that has the name now."""
    return TopicPartition(tp.topic, tp.partition, topic_id)


def named(tp: TopicPartition) -> TopicPartition:
    """``tp`` without a topic id."""
    return TopicPartition(tp.topic, tp.partition)


TRUNCATED = "~"
"""Suffix of the topic id that is stored with a position, if the partition's log was truncated before."""


def stored_in(topic: str, topic_id: str) -> Topic:
    """The topic of a stored position. ``topic_id`` is stored with the position, and may have the mark ``TRUNCATED``."""
    return Topic(topic, topic_id.removesuffix(TRUNCATED))


class Span(NamedTuple("Span", [("start", int), ("end", int)])):
    """Source offsets from ``start`` up to, not including, ``end``.

    :raises ValueError: the span would end before its start, or start below 0.
    """

    __slots__ = ()

    def __new__(cls, start: int, end: int) -> Self:
        if not 0 <= start <= end:
            raise ValueError(f"there are no offsets from {start} up to {end}")
        return super().__new__(cls, start, end)

    def __str__(self) -> str:
        return f"[{self.start}, {self.end})"


class Gap(NamedTuple):
    """Offset ``wanted`` is not on the broker. Reading can go on at ``resumes``, which is lower if the offsets
    restart.
    """

    wanted: int
    resumes: int


class Advance(NamedTuple("Advance", [("start", int | None), ("end", int)])):
    """The advance of one stored source position; ``start`` is None if no position was stored before. ``end`` is below
    ``start`` if the offsets have restarted.

    :raises ValueError: an offset would be below 0.
    """

    __slots__ = ()

    def __new__(cls, start: int | None, end: int) -> Self:
        if end < 0 or (start is not None and start < 0):
            raise ValueError(f"no position advances from {start} to {end}: offsets are not negative")
        return super().__new__(cls, start, end)


SourceOffsets = Mapping[TopicPartition, int]
"""Next offset to read, by source partition."""

Spans = Mapping[TopicPartition, Span]
"""The source offsets that a batch or a publication covers, by partition."""

Advances = Mapping[TopicPartition, Advance]
"""How a publication advances the stored source positions."""

ControlOffsets = Mapping[int, int]
"""Next offset to read, by partition of the control log."""


def furthest(a: ControlOffsets, b: ControlOffsets) -> dict[int, int]:
    """The higher offset of two positions in each partition."""
    return {p: max(a.get(p, 0), b.get(p, 0)) for p in sorted({*a, *b})}
