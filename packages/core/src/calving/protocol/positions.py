"""The start position of a partition, the division of a backlog into batches, and source offsets that nobody has read:
below positions that somebody else has stored. Pure.

A consumer with the sink's group id that commits offsets by itself moves the positions, and so does an operator. The
broker then has a position without calving's note. Tasks of the Java sink store such positions as well; but each of
theirs comes with an answer in the control log.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import replace
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

from calving.model.events import NO_COMMIT, DataComplete, Envelope, Publication
from calving.model.offsets import (
    Advance,
    ControlOffsets,
    Coverage,
    SourceOffsets,
    Span,
    Spans,
    TopicPartition,
    present,
    within,
)
from calving.model.text import counted
from calving.protocol.buffer import Buffer


class Unread(NamedTuple):
    """Offsets below a position that somebody else has stored, and that nobody has read; none if the position went back.
    ``in_log``: whether the control log tells what was read of the partition; if not, only the tables do, and the next
    publication tells that all offsets below these were read.
    """

    span: Span
    in_log: bool

    @property
    def offsets(self) -> int:
        """How many offsets nobody has read."""
        return self.span.end - self.span.start


class ReadOffsets:
    """What the control log tells: the offsets that the sink has read, and the partitions of the Java sink's tasks."""

    def __init__(self, start: ControlOffsets) -> None:
        """``start``: the saved position. Earlier entries only show whether tasks of the Java sink have answered."""
        self._buffer = Buffer(start)
        self._java: set[TopicPartition] = set()

    def hear(self, entries: Iterable[Envelope]) -> None:
        """Take in entries of the control log."""
        for entry in entries:
            if isinstance(entry.event, DataComplete) and entry.parts is None and not entry.spans:
                self._java |= {progress.source for progress in entry.event.assignments}
            self._buffer.hear(entry)

    def unheard(self, stored: SourceOffsets, topic_ids: Mapping[str, str]) -> Set[TopicPartition]:
        """Those of these partitions of which the log tells nothing, as after a recovery."""
        return stored.keys() - self._ends(topic_ids).keys() - self._java

    def unread(
        self, stored: SourceOffsets, topic_ids: Mapping[str, str], resumed: SourceOffsets
    ) -> dict[TopicPartition, Unread]:
        """The offsets between the last one that the sink has read and these positions, which somebody else has stored.

        ``resumed``: where the sink reads on by its tables (``protocol.recovery.resumed``); it counts for partitions of
        which the log tells nothing. A partition that neither knows, or in which a task of the Java sink has answered,
        is absent: whoever stored the position may have read everything below it.
        """
        ends, unheard = self._ends(topic_ids), self.unheard(stored, topic_ids)
        known = ends | {tp: at for tp, at in resumed.items() if tp in unheard}
        return {
            tp: Unread(Span(min(known[tp], at), at), tp in ends) for tp, at in sorted(stored.items()) if tp in known
        }

    def _ends(self, topic_ids: Mapping[str, str]) -> dict[TopicPartition, int]:
        read = present(self._buffer.progress().covered, topic_ids)
        return {tp: spans[-1].end for tp, spans in read.items() if spans and tp not in self._java}


def passed_over(covered: Coverage) -> dict[TopicPartition, tuple[Span, ...]]:
    """The offsets between spans of the ``covered`` ones: the sink has read later ones, and not these. Those before the
    first span do not count: retention may have removed the entries that told of them.
    """
    unread = {tp: tuple(Span(a.end, b.start) for a, b in pairwise(spans)) for tp, spans in covered.items()}
    return {tp: spans for tp, spans in unread.items() if spans}


def text_of(tp: TopicPartition, unread: Span) -> str:
    """What has happened, and what to do."""
    count = unread.end - unread.start
    return (
        f"topic '{tp.topic}', partition {tp.partition}: {counted(count, 'record')} from offset {unread.start} to"
        f" {unread.end} {'is' if count == 1 else 'are'} in no table, because somebody else (another consumer with the"
        " sink's group id, or an operator) has moved the position. To have them in the tables, stop all workers and run"
        " `calving recover FILE`; to go on without them, run `calving offsets FILE --accept`"
    )


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
) -> dict[TopicPartition, Position]:
    """The positions of newly assigned partitions (W1).

    A partition without a stored position is read from its beginning: either the first start is there, or the partition
    is newer than that, and none of its records has been skipped on purpose.
    """
    return {tp: Position(stored[tp], stored[tp]) if tp in stored else Position(None, begins[tp]) for tp in assigned}


def first_start(starts: SourceOffsets) -> Publication:
    """The publication of a first start elsewhere than at the beginning: where it reads all partitions from, assigned or
    not.

    It is published at once and as a whole. Otherwise another worker could start a moment later, or get a partition
    before its first record. This worker would take a partition without a position for a new one, and read it from its
    beginning.
    """
    return Publication(
        (DataComplete(NO_COMMIT),),
        {tp: Advance(None, at) for tp, at in sorted(starts.items())},
        {tp: (Span(0, at),) for tp, at in sorted(starts.items()) if at},
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
