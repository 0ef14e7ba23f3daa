"""The start position of a partition, and the division of a backlog into batches. Pure functions for the worker."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Literal, NamedTuple

from calving.model.events import NO_COMMIT, DataComplete, Publication
from calving.model.offsets import Advance, SourceOffsets, Span, Spans, TopicPartition, within
from calving.protocol.moved import Unread

Reset = Literal["earliest", "latest"]


class Position(NamedTuple):
    """``stored`` is the position in the backend (None if there is none), ``next`` the one at which the
    worker starts.
    """

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

    ``stored`` holds the stored positions of all partitions of the sink, not only of the assigned ones. If there are
    any, a partition without a position is newer than the sink's first start. It is read from its beginning, whatever
    the reset, because none of its records has been skipped on purpose.
    """
    at = begins if stored or reset == "earliest" else ends
    return {tp: Position(stored[tp], stored[tp]) if tp in stored else Position(None, at[tp]) for tp in assigned}


def first_start(ends: SourceOffsets) -> Publication:
    """The publication of a first start with the reset ``latest``: the ends of all partitions, assigned or not.

    It is published at once and as a whole. Otherwise another worker could start a moment later, or get a partition
    before its first record. This worker would take a partition without a position for a new one, and read it from its
    beginning.
    """
    return Publication(
        (DataComplete(NO_COMMIT),),
        {tp: Advance(None, end) for tp, end in sorted(ends.items())},
        {tp: (Span(0, end),) for tp, end in sorted(ends.items()) if end},
    )


def within_topics(
    publication: Publication,
    topic_ids: Mapping[str, str],
    stored_within: Mapping[TopicPartition, str],
    unread: Mapping[TopicPartition, Unread] = MappingProxyType({}),
) -> Publication:
    """``publication`` with topic ids. ``stored_within``: the topic ids that were stored with the positions (B10).
    ``unread``: offsets below stored positions that nobody has read.
    """
    spans: dict[TopicPartition, tuple[Span, ...]] = {}
    restarted: set[TopicPartition] = set()
    for tp, (span,) in publication.spans.items():
        identity, before = topic_ids.get(tp.topic, ""), stored_within.get(tp)
        restarts = tp in publication.restarted
        first = publication.advances[tp].start is None
        hole = None if before else unread.get(tp)
        if first or before == identity or (restarts and not before) or (hole is not None and hole.in_log):
            covered: tuple[Span, ...] = (span,)
        elif before:
            covered, restarts = (Span(0, span.end),), False  # the position belonged to a topic that no longer exists
        else:
            # The Java sink or an operator stored this position, not calving. It means: all offsets below it are done,
            # except those of which the tables show that nobody has read them.
            covered = (Span(0, span.start if hole is None else hole.span.start), span)
            covered = covered if covered[0].end else (span,)
        spans[within(tp, identity)] = covered
        restarted |= {within(tp, identity)} if restarts else set()
    return replace(publication, spans=spans, topic_ids=dict(topic_ids), restarted=frozenset(restarted))


def take(backlog: Spans, records: int) -> dict[TopicPartition, Span]:
    """The first part of a backlog, at most ``records`` offsets: small partitions as a whole, and large partitions in
    equal shares.
    """
    taken: dict[TopicPartition, Span] = {}
    smallest_first = sorted(backlog.items(), key=lambda item: (item[1].end - item[1].start, item[0]))
    for i, (tp, span) in enumerate(smallest_first):
        share = -(-records // (len(smallest_first) - i))
        size = min(span.end - span.start, share)
        if size > 0:
            taken[tp] = Span(span.start, span.start + size)
            records -= size
    return taken
