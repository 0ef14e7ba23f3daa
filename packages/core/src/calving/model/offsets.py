"""Positions, spans, and sets of source offsets; and the timestamps of records.

An offset always names the next record to read, never the last one read. *Source* offsets belong to the Kafka topics
that a sink reads, *control* offsets to the partitions of its control log.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self, TypeVar

from calving.caches import cached_by_identity, cached_by_length


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


T = TypeVar("T")

Coverage = Mapping[TopicPartition, tuple[Span, ...]]
"""Sets of source offsets: for each partition disjoint spans, in order, none of them empty."""

_RESTARTED = (1, 0)
_LARGEST = 2**63 - 1
_CACHED = 2_000_000
"""The characters of texts whose values are kept: anybody may have written them."""


def merged(spans: Iterable[Span]) -> tuple[Span, ...]:
    """The union of the spans."""
    spans_so_far: list[Span] = []
    for span in sorted(spans):
        if spans_so_far and span.start <= spans_so_far[-1].end:
            spans_so_far[-1] = Span(spans_so_far[-1].start, max(spans_so_far[-1].end, span.end))
        elif span.start < span.end:
            spans_so_far.append(span)
    return tuple(spans_so_far)


def without(spans: Iterable[Span], holes: Iterable[Span]) -> tuple[Span, ...]:
    """``spans`` minus ``holes``; both must be in order."""
    left: list[Span] = []
    away, first = list(holes), 0
    for span in spans:
        start = span.start
        while first < len(away) and away[first].end <= start:
            first += 1
        for place in range(first, len(away)):
            hole = away[place]
            if hole.start >= span.end:
                break
            if start < hole.end:
                if start < hole.start:
                    left.append(Span(start, hole.start))
                start = hole.end
        if start < span.end:
            left.append(Span(start, span.end))
    return tuple(left)


def common(a: Iterable[Span], b: tuple[Span, ...]) -> tuple[Span, ...]:
    """The intersection; both must be in order."""
    overlaps: list[Span] = []
    first = 0
    for span in a:
        while first < len(b) and b[first].end <= span.start:
            first += 1
        for place in range(first, len(b)):
            other = b[place]
            if other.start >= span.end:
                break
            if span.start < other.end:
                overlaps.append(Span(max(span.start, other.start), min(span.end, other.end)))
    return tuple(overlaps)


def beyond(spans: Iterable[Span], offset: int) -> tuple[Span, ...]:
    """The part of ``spans`` at ``offset`` and above."""
    return tuple(Span(max(s.start, offset), s.end) for s in spans if s.end > offset)


def less(coverage: Coverage, other: Coverage) -> Coverage:
    """The offsets of ``coverage`` that are not in ``other``."""
    left = {tp: without(spans, other.get(tp, ())) for tp, spans in coverage.items()}
    return {tp: spans for tp, spans in left.items() if spans}


def union(a: Coverage, b: Coverage) -> Coverage:
    """The offsets of both."""
    return {tp: merged((*a.get(tp, ()), *b.get(tp, ()))) for tp in {*a, *b}}


def intersection(a: Coverage, b: Coverage) -> Coverage:
    """The offsets that are in both."""
    shared = {tp: common(spans, b.get(tp, ())) for tp, spans in a.items()}
    return {tp: spans for tp, spans in shared.items() if spans}


def size(coverage: Coverage) -> int:
    """The number of offsets in it."""
    return sum(span.end - span.start for spans in coverage.values() for span in spans)


def lowest_uncovered(spans: tuple[Span, ...]) -> int:
    """The lowest offset that is not covered."""
    return spans[0].end if spans and spans[0].start == 0 else 0


@cached_by_identity(200_000)
def as_key(coverage: Coverage) -> Hashable:
    """Equal for equal coverage. Cached: all entries of a publication share theirs, and it may be large."""
    return frozenset(coverage.items())


def each(spans: Spans) -> Coverage:
    """A coverage with one span for each partition."""
    return {tp: (span,) for tp, span in spans.items()}


def present(found: Mapping[TopicPartition, T], topic_ids: Mapping[str, str]) -> dict[TopicPartition, T]:
    """The values of partitions whose topics exist now, keyed by plain topic name."""
    left: dict[TopicPartition, T] = {}
    for tp in sorted(found):  # entries without a topic id come first, so that an entry with one wins
        if not tp.topic_id or topic_ids.get(tp.topic, tp.topic_id) == tp.topic_id:
            left[named(tp)] = found[tp]
    return left


def text_of(coverage: Coverage) -> str:
    """Text for people, of the first three partitions: ``offsets 300 to 600 of orders-0``."""
    ranges = [f"offsets {spans[0].start} to {spans[-1].end} of {named(tp)}" for tp, spans in sorted(coverage.items())]
    return ", ".join(ranges[:3]) + (f" and {len(ranges) - 3} more" if len(ranges) > 3 else "")


def encode_coverage(coverage: Mapping[TopicPartition, Iterable[tuple[int, int]]]) -> str:
    """``{"topic":{"0":[[3,7]]}}``, topics and partitions in order."""
    by_topic: dict[str, dict[str, list[tuple[int, int]]]] = {}
    for topic, partition, tp in sorted((str(tp.whole), tp.partition, tp) for tp in coverage):
        by_topic.setdefault(topic, {})[str(partition)] = list(coverage[tp])
    return json.dumps(by_topic, separators=(",", ":"))


@cached_by_length(_CACHED)
def decode_coverage(text: str) -> Coverage:
    """The inverse of ``encode_coverage``. Cached by text: an idle sink sends the same text again and again to several
    readers.
    """
    return {tp: tuple(Span(*span) for span in spans) for tp, spans in _decode(text)}


def encode_places(places: Mapping[TopicPartition, tuple[int, int]]) -> str:
    """A place of the control log for each partition: ``{"topic":{"0":[[0,571]]}}``."""
    return encode_coverage({tp: (place,) for tp, place in places.items()})


def decode_places(text: str) -> dict[TopicPartition, tuple[int, int]]:
    """The inverse of ``encode_places``."""
    return {tp: (partition, offset) for tp, ((partition, offset),) in _decode(text)}


def encode_covered(covered: Coverage, restarted: Collection[TopicPartition]) -> str:
    """The coverage of a publication. If a partition has ``restarted``, its spans are one pair whose end is below its
    start. The pair stands for all offsets from 0 up to its end.
    """
    return encode_coverage({**covered, **{tp: ((covered[tp][-1].end + 1, covered[tp][-1].end),) for tp in restarted}})


@cached_by_length(_CACHED)
def decode_covered(text: str) -> tuple[Coverage, frozenset[TopicPartition]]:
    """Coverage and restarted partitions, cached by text. Earlier versions may have written offsets from before the
    restart.
    """
    spans_of = dict(_decode(text))
    restart = {tp: (Span(0, spans[-1][1]),) for tp, spans in spans_of.items() if spans[-1][0] > spans[-1][1]}
    covered = {tp: tuple(Span(*span) for span in spans) for tp, spans in spans_of.items() if tp not in restart}
    return {**covered, **restart}, frozenset(restart)


def encode_settled(settled: Coverage, restarted: Collection[TopicPartition]) -> str:
    """Settled offsets. The span [1, 0] comes first for a partition that has ``restarted``."""
    return encode_coverage({**settled, **{tp: (_RESTARTED, *settled.get(tp, ())) for tp in restarted}})


@cached_by_length(_CACHED)
def decode_settled(text: str) -> tuple[Coverage, frozenset[TopicPartition]]:
    """Settled offsets and restarted partitions, cached by text."""
    spans_of = dict(_decode(text))
    restarted = frozenset(tp for tp, spans in spans_of.items() if spans[0] == _RESTARTED)
    return {tp: tuple(Span(a, b) for a, b in spans if a <= b) for tp, spans in spans_of.items()}, restarted


def _decode(text: str) -> Iterable[tuple[TopicPartition, list[tuple[int, int]]]]:
    for written, partitions in json.loads(text).items():
        topic = parse_topic(written)
        for number, spans in partitions.items():
            yield TopicPartition(topic.name, int(number), topic.id), [(as_offset(a), as_offset(b)) for a, b in spans]


def as_offset(value: object) -> int:
    """:raises ValueError: the value is no offset."""
    if type(value) is not int or not 0 <= value <= _LARGEST:
        raise ValueError(f"{str(value)[:40]!r} is no offset")
    return value


@dataclass(frozen=True, slots=True)
class Range:
    """Source offsets ``start`` up to, not including, ``end`` of one partition.

    :raises ValueError: the range would end before its start, or start below 0.
    """

    topic: str
    partition: int
    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"there are no offsets from {self.start} up to {self.end}")


_LAST_MS = 253_402_300_799_999
"""The end of the year 9999. Milliseconds after it are microseconds or nanoseconds that a producer has mistaken for
milliseconds.
"""


def is_moment(millis: int) -> bool:
    """Whether a record's timestamp, in milliseconds since 1970, is a moment of the years 1970 to 9999. Any other number
    is no time at which the record can have been made, so it counts for no valid-through time.
    """
    return 0 <= millis <= _LAST_MS
