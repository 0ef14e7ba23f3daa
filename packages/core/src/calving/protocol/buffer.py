"""What the coordinator has heard and not committed yet, and how far it knows the source."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from calving.errors import DataLossError
from calving.model.coverage import Coverage, merged, without
from calving.model.events import CommitComplete, DataComplete, DataWritten, Envelope, TableId
from calving.model.offsets import ControlOffsets, Span, TopicPartition
from calving.protocol.admission import plain, publication_of
from calving.protocol.ledger import Reach

_ANEW = Span(1, 0)


@dataclass(slots=True)
class _Begun:
    """A publication that begins at ``offset``, or behind it, of which ``parts`` were heard."""

    partition: int
    offset: int
    parts: int = 0


class Buffer:
    """What has been heard of the control log and is not committed yet. Knows nothing of time."""

    def __init__(self, position: ControlOffsets | None = None) -> None:
        self._since = dict(position or {})
        self.read = dict(self._since)
        """Next control offset to hear, by partition."""
        self._heard: dict[TableId, list[Envelope]] = {}
        self._begun: dict[Hashable, _Begun] = {}
        """Publications whose end has not been heard, by what they cover: no two cover the same records."""
        self._begins: dict[tuple[int, int], int] = {}
        """Where the publication of each buffered entry begins, by the entry's place."""
        self._covered: dict[TopicPartition, tuple[Span, ...]] = {}
        self._told: dict[TopicPartition, tuple[Span, ...]] = {}
        """What of it is in the tables, as other coordinators said: it was whole when they heard it."""
        self._anew: set[TopicPartition] = set()

    def hear(self, envelope: Envelope) -> None:
        """Take note of an entry. Redelivered entries change nothing.

        :raises DataLossError: a publication ends that was not heard whole.
        """
        if envelope.offset < self.read.get(envelope.partition, 0):
            return
        # A part that was passed over may come before the first one that was heard.
        begin = self.read.get(envelope.partition, envelope.offset)
        self.read[envelope.partition] = envelope.offset + 1
        match envelope.event:
            case DataWritten(table=table):
                self._heard.setdefault(table.identifier, []).append(envelope)
                if envelope.spans:
                    # Parts are counted whether or not they seem to be known: a restart in between may change that.
                    begun = self._begun.setdefault(publication_of(envelope), _Begun(envelope.partition, begin))
                    begun.parts += 1
                    self._begins[envelope.partition, envelope.offset] = begun.offset
            case DataComplete():
                begun = self._begun.pop(publication_of(envelope), _Begun(envelope.partition, envelope.offset))
                self._check(envelope, begun.parts)
                self._restart(tp for tp, spans in envelope.spans.items() if spans[-1].end < spans[-1].start)
                self._cover(envelope.spans)
            case CommitComplete():
                # What a predecessor knew to have begun anew counts once: what is covered since stays.
                told = {tp for tp, spans in envelope.spans.items() if spans[0] == _ANEW}
                self._restart(told - self._anew)
                self._cover(envelope.spans)
                _add(self._told, envelope.spans)

    def whole(self) -> dict[int, int]:
        """The read position, before any publication of which only a part has been heard."""
        read = dict(self.read)
        for begun in self._begun.values():
            read[begun.partition] = min(read[begun.partition], begun.offset)
        return read

    def tables(self) -> dict[TableId, tuple[Envelope, ...]]:
        """Everything buffered that belongs to whole publications, by table.

        By identifier only: two references to one table that differ in UUID or catalog name must share one commit,
        because the first commit's ledger covers both.
        """
        read = self.whole()
        found = {table: tuple(e for e in heard if e.offset < read[e.partition]) for table, heard in self._heard.items()}
        return {table: entries for table, entries in found.items() if entries}

    def reach(self) -> Reach:
        """How far the source is known: everything heard to be complete, and what of it is not waiting here."""
        waiting: dict[TopicPartition, list[Span]] = {}
        for heard in self._heard.values():
            for envelope in heard:
                for tp, spans in envelope.spans.items():
                    waiting.setdefault(tp, []).append(plain(spans[-1]))
        settled = {
            tp: without(spans, merged(waiting[tp])) if tp in waiting else spans for tp, spans in self._covered.items()
        }
        settled = {tp: spans for tp, spans in settled.items() if spans}
        return Reach(dict(self._covered), settled, frozenset(self._anew), self._since)

    def settled(self) -> Coverage:
        """What a successor is told: all that is in the tables, and which partitions have begun anew."""
        found = dict(self.reach().settled)
        return {**found, **{tp: (_ANEW, *found.get(tp, ())) for tp in self._anew}}

    def settle(self, table: TableId, read: ControlOffsets) -> None:
        """What was heard for ``table`` below ``read`` is in it."""
        left = [e for e in self._heard.get(table, ()) if e.offset >= read.get(e.partition, 0)]
        for e in self._heard.get(table, ()):
            if e.offset < read.get(e.partition, 0):
                self._begins.pop((e.partition, e.offset), None)
        if left:
            self._heard[table] = left
        else:
            self._heard.pop(table, None)

    def let_go(self, table: TableId, entries: Iterable[Envelope]) -> None:
        """These will never be in their table: an operator has decided."""
        away = {(e.partition, e.offset) for e in entries}
        left = [e for e in self._heard.get(table, ()) if (e.partition, e.offset) not in away]
        for place in away:
            self._begins.pop(place, None)
        if left:
            self._heard[table] = left
        else:
            self._heard.pop(table, None)

    def position(self) -> dict[int, int]:
        """Where a successor has to start: at the lowest publication still buffered, else at the read position (C5).

        Never in the middle of one, whose parts it could not count.
        """
        position = dict(self.read)
        for envelopes in self._heard.values():
            for e in envelopes:
                begin = self._begins.get((e.partition, e.offset), e.offset)
                position[e.partition] = min(position[e.partition], begin)
        return position

    def _check(self, end: Envelope, parts: int) -> None:
        if end.parts is not None and end.parts != parts and not self._is_told(end.spans):
            raise DataLossError(
                f"control log, partition {end.partition}: the publication that ends at offset {end.offset} has"
                f" {end.parts} parts, and {parts} were read: files would be missing from the tables; stop all workers"
                " and run `calving recover FILE`"
            )

    def _restart(self, partitions: Iterable[TopicPartition]) -> None:
        for tp in partitions:
            self._anew.add(tp)
            self._covered.pop(tp, None)
            self._told.pop(tp, None)

    def _is_told(self, spans: Coverage) -> bool:
        """Also true of publications that say nothing of what they cover, as those of the Java sink."""
        return not any(without((plain(own[-1]),), self._told.get(tp, ())) for tp, own in spans.items())

    def _cover(self, coverage: Coverage) -> None:
        _add(self._covered, coverage)


def _add(known: dict[TopicPartition, tuple[Span, ...]], coverage: Coverage) -> None:
    for tp, spans in coverage.items():
        before = known.get(tp, ())
        if spans != before:
            known[tp] = merged((*before, *map(plain, spans)))
