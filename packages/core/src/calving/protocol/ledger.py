"""The ledger: the record, in a table branch, of the control log entries and source offsets that the branch holds.

A commit of this sink writes, next to its files, the control offsets up to which it has read (rule C6). The next commit
skips all entries below these control offsets. So a replay, a second coordinator and a lost answer do no harm. The
property names are those of the Java sink (``Coordinator.commitToTable``), so either sink can take over from the other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

from calving.caches import cached_by_identity, cached_by_length
from calving.errors import ConfigError, NewerVersionError, TableTroubleError
from calving.model.events import Envelope, Place
from calving.model.offsets import (
    ControlOffsets,
    Coverage,
    SourceOffsets,
    Span,
    Topic,
    TopicPartition,
    common,
    intersection,
    less,
    merged,
    parse_topic,
    present,
    union,
    without,
)
from calving.model.tables import SnapshotPlace
from calving.model.text import printable

T = TypeVar("T")
_SHOWN = 60
_CACHED = 2_000_000
"""The characters of texts whose values are kept: anybody may have written them."""
_LONGEST_NAME = 300
SHARED = 200_000
"""The partitions, of all ledgers together, for which results are shared: tables that were last committed in one cycle
mostly have the same ledger, and get the same next one.
"""


@dataclass(frozen=True, slots=True)
class Ledger:
    """Source partitions are qualified by topic id (``within``), as far as the ids are known.

    ``control``: the table holds the files of all entries below these control offsets. ``source``: the end of the source
    offsets that the entries in the table cover.

    ``settled``: every record below these source offsets is in each table of the sink to which the record is routed.
    ``missing``: offset ranges between ``settled`` and ``source`` that this table lacks, because their entries were not
    read yet. So a record at or above ``settled`` is in this table if and only if it is below ``source``, not missing,
    and routed to this table.

    ``gone``: offsets that this table held before it was rolled back. Other tables still hold their records of these
    offsets. ``forgotten``: offsets of ``gone`` that nobody wants again. ``doubt``: the commit of this sink that the
    table may have lost by a rollback; then the ledger may claim records that the table does not hold.

    ``source_control``: the control offsets of the commit that wrote ``source``, ``settled`` and ``missing``; empty if
    this commit used another control log.
    """

    control: ControlOffsets
    source: SourceOffsets = field(default_factory=dict)
    settled: SourceOffsets = field(default_factory=dict)
    missing: Coverage = field(default_factory=dict)
    gone: Coverage = field(default_factory=dict)
    source_control: ControlOffsets = field(default_factory=dict, compare=False)
    doubt: SnapshotPlace | None = None
    forgotten: Coverage = field(default_factory=dict)
    elsewhere: ControlOffsets = field(default_factory=dict, compare=False)
    """The same as ``control`` of the table's other branches: what this sink has committed to them."""

    @property
    def unanswered(self) -> Coverage:
        """The offsets that a rollback has removed, and of which nobody has said what becomes of them."""
        return less(self.gone, self.forgotten)

    def present(self, topic_ids: Mapping[str, str]) -> Ledger:
        """The ledger of the topics with these topic ids, keyed by plain topic name."""
        return Ledger(
            self.control,
            present(self.source, topic_ids),
            present(self.settled, topic_ids),
            present(self.missing, topic_ids),
            present(self.gone, topic_ids),
            doubt=self.doubt,
            forgotten=present(self.forgotten, topic_ids),
        )

    def held(self, tp: TopicPartition) -> tuple[Span, ...]:
        """The offsets of a source partition whose records the table holds, if they are routed to it."""
        return without((Span(0, self.source.get(tp, 0)),), self.missing.get(tp, ()))

    def of_topics(self, topics: Collection[Topic]) -> Ledger:
        """The ledger without other topics than these."""

        def of_these(found: Mapping[TopicPartition, T]) -> dict[TopicPartition, T]:
            return {tp: value for tp, value in found.items() if tp.whole in topics}

        return replace(
            self,
            source=of_these(self.source),
            settled=of_these(self.settled),
            missing=of_these(self.missing),
            gone=of_these(self.gone),
            forgotten=of_these(self.forgotten),
        )

    def joined(self, other: Ledger) -> Ledger:
        """The union of two ledgers, which one sink wrote to the table under two names. What is gone by one of them, and
        not held by the other, is gone.
        """
        source, settled, missing = {}, {}, {}
        for tp in sorted({*self.source, *other.source}):
            settled[tp] = max(self.settled.get(tp, 0), other.settled.get(tp, 0))
            source[tp] = max(self.source.get(tp, 0), other.source.get(tp, 0))
            held = merged((*self.held(tp), *other.held(tp)))
            if holes := without((Span(settled[tp], source[tp]),), held):
                missing[tp] = holes
        whole = Ledger(self.control, source, settled, missing)
        gone = less(union(self.gone, other.gone), {tp: whole.held(tp) for tp in source})
        forgotten = intersection(gone, union(self.forgotten, other.forgotten))
        return replace(whole, gone=gone, forgotten=forgotten, doubt=self.doubt or other.doubt)

    def regained(self, again: Coverage) -> Ledger:
        """The ledger of a table that has these offsets again, as far as they were gone."""
        back = {tp: spans for tp in self.gone if (spans := common(self.gone[tp], again.get(tp, ())))}
        ends = {tp: spans[-1].end for tp, spans in back.items()}
        missing = {tp: without((Span(0, ends[tp]),), spans) for tp, spans in back.items()}
        whole = self.joined(Ledger({}, ends, {}, missing))
        return replace(
            self, source=whole.source, settled=whole.settled, missing=whole.missing, gone=less(self.gone, back)
        )


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """A coordinator's knowledge of the source: offsets ``covered`` by whole publications, offsets ``settled`` in the
    tables.

    ``restarted``: partitions whose offsets have restarted, each with the place where the publication of its restart
    begins. Entries and ledgers from before that place describe records that are gone. ``since``: the control offsets
    from which the coordinator has read the log. ``departed``: topics that are gone, and have no uncommitted entries.
    """

    covered: Coverage
    settled: Coverage
    restarted: Mapping[TopicPartition, Place] = field(default_factory=dict)
    since: ControlOffsets = field(default_factory=dict)
    departed: frozenset[Topic] = frozenset()

    def is_current(self, ledger: Ledger, tp: TopicPartition) -> bool:
        """Whether ``ledger`` describes the present offsets of a source partition.

        After a restart of the offsets, this can be true only with a control log of one partition. With several
        partitions, a ledger written after the restart may hold old offsets, added by a coordinator that had not read
        the restart.
        """
        if tp not in self.restarted:
            return True
        partition, offset = self.restarted[tp]
        return ledger.source_control.keys() == {partition} and ledger.source_control[partition] > offset

    def is_outdated(self, entry: Envelope, tp: TopicPartition) -> bool:
        """Whether ``entry`` surely covers offsets of a source partition from before a restart."""
        partition, offset = self.restarted.get(tp, (entry.partition, 0))
        return entry.partition == partition and entry.offset < offset


NOWHERE = SourceProgress({}, {})
NO_LEDGER = Ledger({})


def entry_of(entries: Mapping[str, str], name: str, decode: Callable[[str], T], default: str = "{}") -> T:
    """A summary entry or a table property, decoded. Whoever can change the table may have changed it.

    :raises TableTroubleError: it is not what calving writes.
    """
    text = entries.get(name, default)
    try:
        return decode(text)
    except Exception as error:  # whatever is in it
        raise TableTroubleError(
            f"'{shown(name)}' in the table's properties, or in the summary of a snapshot, is not what calving writes:"
            f" {text[:_SHOWN]!r}; give the property its former value, or roll the table back to a snapshot before that"
            " one; else remove the property, and run `calving recover FILE`"
        ) from error


def shown(name: str) -> str:
    """The name of a property, or of a sink in it, in an error: whoever can change the table has chosen it."""
    return printable(name, _LONGEST_NAME)


@contextmanager
def errors_naming(table: str) -> Iterator[None]:
    """Let errors in a table's properties name the table.

    :raises ConfigError: an entry is not what calving writes.
    :raises NewerVersionError: a later version has written the table.
    """
    try:
        yield
    except (TableTroubleError, NewerVersionError) as error:
        kind = NewerVersionError if isinstance(error, NewerVersionError) else ConfigError
        raise kind(f"table {table}: {error}") from error


def encode_control(offsets: ControlOffsets) -> str:
    """``{"0":3,"1":7}``: the Java sink's form, keys in order."""
    return json.dumps({str(p): offsets[p] for p in sorted(offsets)}, separators=(",", ":"))


def decode_control(text: str) -> dict[int, int]:
    """The next control offset by partition, from the form of ``encode_control``.

    :raises ValueError: the text has another form.
    """
    return {int(p): int(offset) for p, offset in json.loads(text).items()}


@cached_by_identity(SHARED)
def unsettled(source: SourceOffsets, settled: SourceOffsets) -> SourceOffsets:
    """The settled offsets of a ledger where they differ from its source offsets."""
    return {tp: settled.get(tp, 0) for tp, at in source.items() if settled.get(tp, 0) != at}


@cached_by_identity(SHARED)
def settled_but(source: SourceOffsets, differing: SourceOffsets) -> SourceOffsets:
    """The settled offsets of a ledger, of which ``differing`` has those that differ from its source offsets."""
    return {**source, **differing}


@cached_by_identity(SHARED)
def encode_source(offsets: SourceOffsets) -> str:
    """``{"topic":[12,7]}`` for partitions 0 and 1; ``{"topic":{"4":12}}`` if they are not contiguous from 0."""
    topics: dict[str, dict[int, int]] = {}
    for topic, partition, tp in sorted((str(tp.whole), tp.partition, tp) for tp in offsets):
        topics.setdefault(topic, {})[partition] = offsets[tp]
    texts = {
        topic: list(said.values()) if list(said) == list(range(len(said))) else {str(p): at for p, at in said.items()}
        for topic, said in topics.items()
    }
    return json.dumps(texts, separators=(",", ":"))


@cached_by_length(_CACHED)
def decode_source(text: str) -> SourceOffsets:
    """Either form; version 0.1.0 only wrote the longer one. Cached by text: the summary of a snapshot and the table's
    properties mostly have the same one.
    """
    return {
        TopicPartition(topic.name, int(p), topic.id): int(offset)
        for topic, said in ((parse_topic(written), said) for written, said in json.loads(text).items())
        for p, offset in (enumerate(said) if isinstance(said, list) else said.items())
    }


def decode_ledgers(text: str) -> list[tuple[list[int], dict[str, str]]]:
    """The ids of snapshots, and the entries of a summary that belong to each of these lists."""
    return [([*map(int, entry.pop("snapshots"))], dict(entry)) for entry in json.loads(text)]


def decode_names(text: str) -> tuple[tuple[str, int], ...]:
    """The names of sinks, each with a sequence number."""
    return tuple((name, int(number)) for name, number in json.loads(text).items())


def decode_recovered(text: str) -> tuple[str, dict[int, int]]:
    """The control log at the last recovery, and its end."""
    said = json.loads(text)
    return said["log"], {int(p): int(at) for p, at in said["control"].items()}
