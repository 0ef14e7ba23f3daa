"""The coordinator's buffer: entries that are read and not committed, and the source offsets that they cover."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace

from calving.errors import DataLossError
from calving.model.events import (
    Attachment,
    CommitComplete,
    DataComplete,
    DataWritten,
    Envelope,
    Parked,
    Place,
    TableId,
)
from calving.model.marks import TableMark
from calving.model.offsets import ControlOffsets, Coverage, Span, Topic, TopicPartition, common, less, merged, without
from calving.protocol.ledger import SourceProgress


@dataclass(slots=True)
class _OpenPublication:
    """A publication that begins at control offset ``offset`` or above. ``parts`` of its entries have been read;
    ``first`` is the control offset of the first.
    """

    partition: int
    offset: int
    first: int
    spans: Coverage
    parts: int = 0


class Buffer:
    """Entries of the control log that are not committed yet, and parked commits. Needs no clock."""

    def __init__(self, position: ControlOffsets | None = None) -> None:
        self._since = dict(position or {})
        self.read = dict(self._since)
        """Next control offset to read, by partition."""
        self._attached_at: dict[int, int] = {}
        """How far the sender of the last attachment in a partition had read that partition."""
        self._heard: dict[TableId, list[Envelope]] = {}
        self._begun: dict[Hashable, _OpenPublication] = {}
        """Publications whose last entry has not been read. Their coverage is the key: no two cover the same records."""
        self._begins: dict[Place, int] = {}
        """For each buffered entry, by its place: the control offset at which its publication begins."""
        self._covered: dict[TopicPartition, tuple[Span, ...]] = {}
        self._told: dict[TopicPartition, tuple[Span, ...]] = {}
        """Source offsets settled by CommitCompletes of other coordinators, which had read the complete publications."""
        self._restarted: dict[TopicPartition, Place] = {}
        """Partitions whose offsets have restarted, each with the first entry of the last publication that said so."""
        self._count = 0
        self._counted: dict[TableId, int] = {}
        """By table: the number of entries that had been read when its oldest buffered entry was read."""
        self.parked: dict[TableId, Parked] = {}
        """Parked commits by table; they precede the buffered entries."""
        self._released: set[Place] = set()
        """Entries that operators have released. Some of them may not have been read yet."""
        self.adopting = True
        """Whether to take parked commits from CommitComplete. True while a predecessor's events are read; later events
        are this coordinator's own.
        """

    def hear(self, envelope: Envelope) -> None:
        """Take note of an entry. Redelivered entries change nothing.

        :raises DataLossError: a publication ends, but some of its entries were not heard.
        """
        if envelope.offset < self.read.get(envelope.partition, 0):
            return
        # An earlier entry of this publication may be in the log before the position where this coordinator started.
        begin = self.read.get(envelope.partition, envelope.offset)
        self.read[envelope.partition] = envelope.offset + 1
        self._count += 1
        match envelope.event:
            case DataWritten(table=table):
                if envelope.spans:
                    # Count parts even if their offsets are already known as settled: a restart in between may change
                    # that.
                    new = _OpenPublication(envelope.partition, begin, envelope.offset, envelope.spans)
                    begun = self._begun.setdefault(envelope.publication, new)
                    begun.parts += 1
                if envelope.place in self._released:
                    return
                self._heard.setdefault(table.identifier, []).append(envelope)
                self._counted.setdefault(table.identifier, self._count)
                if envelope.spans:
                    self._begins[envelope.place] = begun.offset
            case DataComplete():
                new = _OpenPublication(envelope.partition, envelope.offset, envelope.offset, envelope.spans)
                begun = self._begun.pop(envelope.publication, new)
                self._check(envelope, begun.parts)
                self._restart(dict.fromkeys(envelope.restarted, (begun.partition, begun.first)))
                self._cover(envelope.spans)
            case CommitComplete():
                self._hear_attachment(envelope.attached, envelope.place)

    def _hear_attachment(self, attached: Attachment, place: Place) -> None:
        # All coordinators write into one partition, and each has read more of it than those before it.
        if attached.read:
            known = {place[0]: self._since.get(place[0], 0)} | self._attached_at
            if any(attached.read.get(p, 0) < read for p, read in known.items()):
                return  # somebody has repeated it, perhaps in another partition
            self._attached_at[place[0]] = attached.read.get(place[0], 0)
        # Apply each restart of a predecessor once, so that coverage from after the restart stays.
        new = attached.restarted - self._restarted.keys()
        self._restart({tp: attached.restarts.get(tp, place) for tp in sorted(new)})
        settled = self._current(attached.settled, attached)
        self._cover(settled)
        _add(self._told, settled)
        self.release(attached.released)
        if self.adopting:
            self.parked = {
                table: replace(parked, waiting=self._current(parked.waiting, attached))
                for table, parked in attached.parked.items()
            }
            for parked in self.parked.values():
                self._cover(parked.waiting)

    @property
    def topics(self) -> frozenset[Topic]:
        """The topics of all known coverage."""
        return frozenset(tp.whole for tp in self._covered)

    def not_buffered(self, topics: Collection[Topic]) -> frozenset[Topic]:
        """The ``topics`` without buffered or parked entries."""
        if not topics:
            return frozenset()
        there = {tp.whole for tp in self._buffered()}
        there |= {tp.whole for parked in self.parked.values() for tp in parked.waiting}
        return frozenset(topic for topic in topics if topic not in there)

    def drop(self, topics: Collection[Topic]) -> None:
        """Drop the coverage of these topics: they are gone."""
        for known in (self._covered, self._told):
            for tp in [tp for tp in known if tp.whole in topics]:
                del known[tp]
        self._restarted = {tp: place for tp, place in self._restarted.items() if tp.whole not in topics}

    def whole(self) -> dict[int, int]:
        """Control offsets up to which every publication is complete, by partition. A publication that was read in part
        does not count if another coordinator has reported it as settled: somebody may have repeated its entry.
        """
        read = dict(self.read)
        for begun in (each for each in self._begun.values() if not self._is_told(each.spans)):
            read[begun.partition] = min(read[begun.partition], begun.offset)
        return read

    def tables(self) -> dict[TableId, tuple[Envelope, ...]]:
        """Buffered entries of whole publications, by table. A table with only parked commits is a key, too.

        The key is the identifier alone: two references to one table that differ in UUID or catalog name must share one
        commit, because the first commit's ledger covers both.
        """
        read = self.whole()
        whole = {table: tuple(e for e in heard if e.offset < read[e.partition]) for table, heard in self._heard.items()}
        return dict.fromkeys(self.parked, ()) | {table: entries for table, entries in whole.items() if entries}

    def progress(self) -> SourceProgress:
        """The coverage of whole publications, and the settled part of it."""
        waiting = self._buffered()
        for parked in self.parked.values():
            for tp, spans in parked.waiting.items():
                waiting.setdefault(tp, []).extend(spans)
        settled = {
            tp: without(spans, merged(waiting[tp])) if tp in waiting else spans for tp, spans in self._covered.items()
        }
        settled = {tp: spans for tp, spans in settled.items() if spans}
        covered = dict(self._covered)
        for tp, ahead in self._ahead().items():
            covered[tp] = without(covered.get(tp, ()), merged(ahead))
        covered = {tp: spans for tp, spans in covered.items() if spans}
        return SourceProgress(covered, settled, dict(self._restarted), self._since)

    def _ahead(self) -> dict[TopicPartition, list[Span]]:
        """The coverage of complete publications behind an incomplete one in the log, which no commit includes yet."""
        read = self.whole() if self._begun else {}
        entries = (e for heard in self._heard.values() for e in heard) if read else ()
        return _own_spans(e for e in entries if e.offset >= read[e.partition])

    def _buffered(self) -> dict[TopicPartition, list[Span]]:
        return _own_spans(e for heard in self._heard.values() for e in heard)

    def attachment(self, position: ControlOffsets, marks: Mapping[TableId, TableMark]) -> Attachment:
        """The attachment for a successor that starts at ``position``."""
        settled = dict.fromkeys(self._restarted, ()) | dict(self.progress().settled)
        return Attachment(
            settled,
            marks,
            self._handed_on(),
            self._released_behind(position),
            restarted=frozenset(self._restarted),
            restarts=dict(self._restarted),
            read=dict(self.read),
        )

    def _handed_on(self) -> dict[TableId, Parked]:
        """The parked commits for a successor, without the offsets of buffered entries: the successor reads those
        entries again, and until then must not count their offsets as covered, because other tables may lack them.
        """
        buffered = {tp: merged(spans) for tp, spans in self._buffered().items()}
        return {t: replace(parked, waiting=less(parked.waiting, buffered)) for t, parked in self.parked.items()}

    def settle(self, table: TableId, read: ControlOffsets, held_back: Iterable[Envelope] = ()) -> None:
        """``table`` now holds its parked commits, and its entries below ``read`` except ``held_back``."""
        self.parked.pop(table, None)
        kept = {e.place for e in held_back}
        self.discard(table, [e for e in self._below(table, read) if e.place not in kept])

    def behind(self, table: TableId) -> int:
        """The number of entries that a successor would have to read again because of this table."""
        return self._count - self._counted[table] if table in self._heard else 0

    def park(self, table: TableId, read: ControlOffsets, last: str, held_back: Iterable[Envelope] = ()) -> None:
        """The entries of ``table`` below ``read``, except ``held_back``, are parked in file ``last``. They come after
        the earlier parked commits.
        """
        kept = {e.place for e in held_back}
        entries = [e for e in self._below(table, read) if e.place not in kept]
        before = self.parked.get(table, Parked("", 0, {}))
        spans = {tp: list(own) for tp, own in before.waiting.items() if own}
        for entry in entries:
            for tp, own in entry.spans.items():
                spans.setdefault(tp, []).append(own[-1])
        # Count gaps between the entries as waiting, too. Otherwise there might be a span per entry, and the spans are
        # sent with every CommitComplete.
        hulls = {tp: (Span(min(s.start for s in own), max(s.end for s in own)),) for tp, own in spans.items()}
        waiting = {tp: common(hull, self._covered.get(tp, ())) for tp, hull in hulls.items()}
        self.parked[table] = Parked(last, before.entries + len(entries), {tp: s for tp, s in waiting.items() if s})
        self.discard(table, entries)

    def unpark(self, table: TableId, left: Parked | None) -> None:
        """An operator has released the parked commits of ``table``, except ``left``."""
        del self.parked[table]
        if left is not None:
            self.parked[table] = left

    def _below(self, table: TableId, read: ControlOffsets) -> list[Envelope]:
        return [e for e in self._heard.get(table, ()) if e.offset < read.get(e.partition, 0)]

    def discard(self, table: TableId, entries: Iterable[Envelope]) -> None:
        """Drop these entries: they are parked, or an operator has released them."""
        away = {e.place for e in entries}
        left = [e for e in self._heard.pop(table, ()) if e.place not in away]
        self._counted.pop(table, None)
        for place in away:
            self._begins.pop(place, None)
        if left:
            self._heard[table] = left
            self._counted[table] = self._count

    def accept(self, coverage: Coverage) -> None:
        """An operator has accepted that no table gets the records of these offsets."""
        self._cover(coverage)
        _add(self._told, coverage)

    def release(self, places: Collection[Place]) -> None:
        """An operator has released these entries, some perhaps not read yet: no table gets their files."""
        if not places:
            return
        self._released |= set(places)
        for table, heard in list(self._heard.items()):
            if away := [entry for entry in heard if entry.place in places]:
                self.discard(table, away)

    def _released_behind(self, position: ControlOffsets) -> frozenset[Place]:
        """Released entries that a successor that starts at ``position`` reads again, and has to drop."""
        return frozenset((p, offset) for p, offset in self._released if offset >= position.get(p, 0))

    def position(self) -> dict[int, int]:
        """The position at which a successor must start: the start of the first buffered publication, or the read
        position if nothing is buffered (C5).

        It is never within a publication: a successor could not count the publication's parts.
        """
        position = dict(self.read)
        for envelopes in self._heard.values():
            for e in envelopes:
                begin = self._begins.get(e.place, e.offset)
                position[e.partition] = min(position[e.partition], begin)
        return position

    def _check(self, end: Envelope, parts: int) -> None:
        if end.parts is not None and end.parts != parts and not self._is_told(end.spans):
            raise DataLossError(
                f"control log, partition {end.partition}: the publication that ends at offset {end.offset} has"
                f" {end.parts} parts, and {parts} were read: files would be missing from the tables; stop all workers"
                " and run `calving recover FILE`"
            )

    def _restart(self, partitions: Mapping[TopicPartition, Place]) -> None:
        for tp, place in partitions.items():
            self._restarted[tp] = place
            if self._started_behind(place):
                continue
            self._covered.pop(tp, None)
            self._told.pop(tp, None)
            for table, parked in self.parked.items():  # this coverage is from before the restart
                left = {other: spans for other, spans in parked.waiting.items() if other != tp}
                self.parked[table] = replace(parked, waiting=left)

    def _started_behind(self, place: Place) -> bool:
        """Whether reading began after this place, so that nothing older was read. Known only for a control log of one
        partition.
        """
        partition, offset = place
        return self._since.keys() == {partition} and self._since[partition] > offset

    def _current(self, coverage: Coverage, attached: Attachment) -> Coverage:
        """``coverage`` of an attachment, without partitions whose restart the attachment's sender had not read."""
        return {tp: spans for tp, spans in coverage.items() if self._is_current(tp, attached)}

    def _is_current(self, tp: TopicPartition, attached: Attachment) -> bool:
        if tp not in self._restarted:
            return True
        partition, offset = self._restarted[tp]
        told_in, told_at = attached.restarts.get(tp, self._restarted[tp])
        return tp in attached.restarted and (told_in != partition or told_at >= offset)

    def _is_told(self, spans: Coverage) -> bool:
        """Whether others reported all these spans as settled. True also for a publication without coverage, as the Java
        sink writes it.
        """
        return not any(without((own[-1],), self._told.get(tp, ())) for tp, own in spans.items())

    def _cover(self, coverage: Coverage) -> None:
        _add(self._covered, coverage)


def _add(known: dict[TopicPartition, tuple[Span, ...]], coverage: Coverage) -> None:
    for tp, spans in coverage.items():
        before = known.get(tp, ())
        if spans != before:
            known[tp] = merged((*before, *spans))


def _own_spans(entries: Iterable[Envelope]) -> dict[TopicPartition, list[Span]]:
    """The spans of the entries' publications: each is looked at once, as it may have an entry for each of many tables,
    and each entry repeats its coverage.
    """
    own: dict[TopicPartition, list[Span]] = {}
    for publication in {e.publication: e.spans for e in entries}.values():
        for tp, spans in publication.items():
            own.setdefault(tp, []).append(spans[-1])
    return own
