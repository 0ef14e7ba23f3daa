"""Where a partition starts, and how a backlog is shared out. Pure questions of the worker."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Literal, NamedTuple

from calving.model.events import NO_COMMIT, DataComplete, Publication
from calving.model.offsets import Advance, SourceOffsets, Span, Spans, TopicPartition, within

Reset = Literal["earliest", "latest"]


class Position(NamedTuple):
    """``stored`` as the backend has it (None: nothing), ``next`` as the worker starts."""

    stored: int | None
    next: int


def starting(
    assigned: Collection[TopicPartition],
    stored: SourceOffsets,
    begins: SourceOffsets,
    ends: SourceOffsets,
    reset: Reset,
) -> dict[TopicPartition, Position]:
    """The positions of newly assigned partitions (W1).

    ``stored`` holds what is on record for all partitions of the sink, not only the assigned ones. Where there is
    anything, a partition without a position appeared after the first start, and is read from its beginning whatever the
    reset says, because nothing in it has been skipped on purpose.
    """
    at = begins if stored or reset == "earliest" else ends
    return {tp: Position(stored[tp], stored[tp]) if tp in stored else Position(None, at[tp]) for tp in assigned}


def first_start(ends: SourceOffsets) -> Publication:
    """What a first start with the reset ``latest`` stores: the ends of all partitions, held or not.

    At once, and together: else a partition that changes hands before its first record, or another worker that starts a
    moment later, would take this start for an earlier one.
    """
    return Publication(
        (DataComplete(NO_COMMIT),),
        {tp: Advance(None, end) for tp, end in sorted(ends.items())},
        {tp: (Span(0, end),) for tp, end in sorted(ends.items()) if end},
    )


def within_topics(
    publication: Publication, topic_ids: Mapping[str, str], stored_within: Mapping[TopicPartition, str]
) -> Publication:
    """The publication with its topics' identities. ``stored_within``: what was stored with the positions (B10)."""
    spans: dict[TopicPartition, tuple[Span, ...]] = {}
    for tp, (span,) in publication.spans.items():
        identity, before = topic_ids.get(tp.topic, ""), stored_within.get(tp)
        if publication.advances[tp].start is None or before == identity:
            found: tuple[Span, ...] = (span,)
        elif before:
            found = (Span(0, span.end),)  # of the topic that the position was in nothing more comes
        else:
            # A position that nobody here has stored (the Java sink, an operator) says that all below is done with.
            found = (Span(0, span.start), span)
        spans[within(tp, identity)] = found
    return replace(publication, spans=spans, topic_ids=dict(topic_ids))


def take(backlog: Spans, records: int) -> dict[TopicPartition, Span]:
    """The first part of a backlog: ``records`` offsets at most, small partitions whole, large ones in equal shares."""
    taken: dict[TopicPartition, Span] = {}
    smallest_first = sorted(backlog.items(), key=lambda item: (item[1].end - item[1].start, item[0]))
    for i, (tp, span) in enumerate(smallest_first):
        share = -(-records // (len(smallest_first) - i))
        size = min(span.end - span.start, share)
        if size > 0:
            taken[tp] = Span(span.start, span.start + size)
            records -= size
    return taken
