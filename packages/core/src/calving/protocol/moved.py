"""Finds source offsets below positions that somebody else has stored, and that nobody has read: pure.

A consumer with the sink's group id that commits offsets by itself moves the positions, and so does an operator. The
broker then has a position without calving's note. Tasks of the Java sink store such positions as well; but each of
theirs comes with an answer in the control log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from itertools import pairwise
from typing import NamedTuple

from calving.model.events import DataComplete, Envelope
from calving.model.offsets import ControlOffsets, Coverage, SourceOffsets, Span, TopicPartition, present
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
