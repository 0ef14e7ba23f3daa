"""Sets of source offsets: for each partition disjoint spans, in order, none of them empty."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TypeVar

from calving.model.offsets import Span, Spans, TopicPartition, named, topic_id_of

T = TypeVar("T")

Coverage = Mapping[TopicPartition, tuple[Span, ...]]


def merged(spans: Iterable[Span]) -> tuple[Span, ...]:
    """The union of the spans."""
    found: list[Span] = []
    for span in sorted(spans):
        if found and span.start <= found[-1].end:
            found[-1] = Span(found[-1].start, max(found[-1].end, span.end))
        elif span.start < span.end:
            found.append(span)
    return tuple(found)


def without(spans: Iterable[Span], holes: Iterable[Span]) -> tuple[Span, ...]:
    """``spans`` minus ``holes``; both must be in order."""
    left: list[Span] = []
    away = list(holes)
    for span in spans:
        start = span.start
        for hole in away:
            if start < hole.end and hole.start < span.end:
                if start < hole.start:
                    left.append(Span(start, hole.start))
                start = hole.end
        if start < span.end:
            left.append(Span(start, span.end))
    return tuple(left)


def common(a: Iterable[Span], b: tuple[Span, ...]) -> tuple[Span, ...]:
    """The intersection."""
    found = (Span(max(x.start, y.start), min(x.end, y.end)) for x in a for y in b)
    return tuple(span for span in found if span.start < span.end)


def beyond(spans: Iterable[Span], offset: int) -> tuple[Span, ...]:
    """The part of ``spans`` at ``offset`` and above."""
    return tuple(Span(max(s.start, offset), s.end) for s in spans if s.end > offset)


def lowest_uncovered(spans: tuple[Span, ...]) -> int:
    """The lowest offset that is not covered."""
    return spans[0].end if spans and spans[0].start == 0 else 0


def each(spans: Spans) -> Coverage:
    """A coverage with one span for each partition."""
    return {tp: (span,) for tp, span in spans.items()}


def present(found: Mapping[TopicPartition, T], topic_ids: Mapping[str, str]) -> dict[TopicPartition, T]:
    """The values of partitions whose topics exist now, keyed by plain topic name."""
    left: dict[TopicPartition, T] = {}
    for tp in sorted(found):  # without a topic id first, so that the entry with one wins
        name, identity = named(tp), topic_id_of(tp)
        if not identity or topic_ids.get(name.topic, identity) == identity:
            left[name] = found[tp]
    return left


def text_of(coverage: Coverage) -> str:
    """Text for people, of the first three partitions: ``offsets 300 to 600 of orders-0``."""
    found = [f"offsets {spans[0].start} to {spans[-1].end} of {named(tp)}" for tp, spans in sorted(coverage.items())]
    return ", ".join(found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")


def encode_coverage(coverage: Coverage) -> str:
    """``{"topic":{"0":[[3,7]]}}``, topics and partitions in order."""
    found: dict[str, dict[str, tuple[Span, ...]]] = {}
    for tp in sorted(coverage):
        found.setdefault(tp.topic, {})[str(tp.partition)] = coverage[tp]
    return json.dumps(found, separators=(",", ":"))


@lru_cache(maxsize=16)
def decode_coverage(text: str) -> Coverage:
    """Cached by text: an idle sink sends the same text again and again, and several readers decode it."""
    return {
        TopicPartition(topic, int(p)): tuple(Span(*span) for span in spans)
        for topic, partitions in json.loads(text).items()
        for p, spans in partitions.items()
    }
