"""Selects the entries whose files a table does not hold yet, and computes the ledger of their commit (rule C6)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from calving.model.coverage import Coverage, common, lowest_uncovered, merged, without
from calving.model.events import DataWritten, Envelope
from calving.model.files import DataFile
from calving.model.locations import one_name
from calving.model.offsets import ControlOffsets, Span, Topic, TopicPartition, furthest
from calving.protocol.ledger import NO_LEDGER, NOWHERE, Ledger, SourceProgress
from calving.protocol.order import ordered


@dataclass(frozen=True, slots=True)
class Step:
    """The change that a batch makes to a mutation table: the keys of ``delete_files`` delete earlier rows, and then
    ``data_files`` are added.
    """

    data_files: tuple[DataFile, ...]
    delete_files: tuple[DataFile, ...]
    source: frozenset[TopicPartition] = frozenset()
    """The source partitions of the batch's records; empty if unknown."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """The files that a commit must add to the table, and the commit's ledger."""

    data_files: tuple[DataFile, ...]
    delete_files: tuple[DataFile, ...]
    ledger: Ledger
    publications: tuple[Coverage, ...] = ()
    """The source offsets that each publication of these files covers."""
    gone: Coverage = field(default_factory=dict)
    """The offsets that the table held before it was rolled back."""
    progress: SourceProgress = NOWHERE
    """The source offsets that the coordinator knows to be published."""
    steps: tuple[Step, ...] = ()
    """For a mutation table: the same files. Files from one source partition are in the order of its offsets."""
    held_back: tuple[Envelope, ...] = ()
    """Entries that wait for earlier records; their files are not in this commit (G1)."""

    @property
    def elsewhere(self) -> frozenset[Topic]:
        """Topics in the ledger that no publication read from the log covers. Departed topics are left out."""
        away = self.progress.departed
        return frozenset(tp.whole for tp in self.ledger.source if tp not in self.progress.covered) - away

    def __bool__(self) -> bool:
        return bool(self.data_files or self.delete_files)


def admit(
    heard: Iterable[Envelope],
    read: ControlOffsets,
    progress: SourceProgress,
    ledger: Ledger,
    left_out: Coverage = MappingProxyType({}),
    *,
    in_order: bool = False,
) -> Admitted:
    """Select the files that the table lacks, each once, and make the ledger of their commit (steps 2, 3 of C6).

    ``heard``: all entries of this table below ``read`` that the table may lack. ``read`` must not split a publication:
    otherwise the ledger would claim too many or too few source offsets. ``left_out``: offsets that the entries cover,
    but whose records their files do not contain. ``in_order``: true for a mutation table; an entry is held back while
    earlier records are missing.
    """
    entries, passed = _told_apart(heard, ledger.control, progress)
    held_back: tuple[Envelope, ...] = ()
    known = progress
    if in_order:
        order = ordered(entries, read, progress, ledger)
        entries, held_back, read = list(order.entries), order.held_back, order.control
        known = replace(progress, covered=order.covered)
    steps = _steps(entries)
    publications = {envelope.publication: envelope.spans for envelope in entries}
    return Admitted(
        data_files=tuple(file for step in steps for file in step.data_files),
        delete_files=tuple(file for step in steps for file in step.delete_files),
        ledger=_moved(ledger, read, known, passed, publications.values(), left_out),
        publications=tuple(publications.values()),
        gone=ledger.gone,
        progress=progress,
        steps=tuple(step for step in steps if step.data_files or step.delete_files) if in_order else (),
        held_back=held_back,
    )


def _told_apart(
    heard: Iterable[Envelope], control: ControlOffsets, progress: SourceProgress
) -> tuple[list[Envelope], dict[TopicPartition, list[Span]]]:
    """The entries with files at or above these control offsets; and the source offsets that entries below these control
    offsets cover, without offsets from before a restart.
    """
    entries: list[Envelope] = []
    passed: dict[TopicPartition, list[Span]] = {}
    for envelope in heard:
        if not isinstance(envelope.event, DataWritten):
            continue
        if envelope.offset < control.get(envelope.partition, 0):
            for tp, spans in envelope.spans.items():
                if not progress.is_outdated(envelope, tp):
                    passed.setdefault(tp, []).append(spans[-1])
        else:
            entries.append(envelope)
    return entries, passed


def _steps(entries: Iterable[Envelope]) -> list[Step]:
    """The files that have rows, each once, grouped into the steps of their publications.

    An event has files of one partition type, delete files of keys have no partition, and an event has a greatest size.
    So the change of a batch may take several entries: first those with the delete files, then those with the data
    files. Deletes after data files begin another step: they delete rows of these files.
    """
    seen: set[str] = set()

    def fresh(files: Iterable[DataFile]) -> tuple[DataFile, ...]:
        by_name = {name: file for file in files if file.record_count and (name := one_name(file.file_path)) not in seen}
        seen.update(by_name)
        return tuple(by_name.values())

    steps: list[Step] = []
    last: Hashable = None
    for entry in entries:
        if not isinstance(entry.event, DataWritten):
            continue
        data, deletes, source = fresh(entry.event.data_files), fresh(entry.event.delete_files), frozenset(entry.spans)
        is_more = bool(source) and entry.publication == last
        if is_more and not (deletes and steps[-1].data_files):
            begun = steps[-1]
            steps[-1] = replace(begun, data_files=begun.data_files + data, delete_files=begun.delete_files + deletes)
        else:
            steps.append(Step(data, deletes, source))
        last = entry.publication
    return steps


def twice(admitted: Admitted, progress: SourceProgress, ledger: Ledger, left_out: Coverage) -> Coverage:
    """Offsets whose records the commit would add a second time: the table holds the records, and the files contain them
    again.

    This happens only if a store of positions has lost writes that it had acknowledged.
    """
    repeated: dict[TopicPartition, tuple[Span, ...]] = {}
    held = {tp: ledger.held(tp) for tp in ledger.source}
    for publication in admitted.publications:
        for tp, spans in publication.items():
            if tp not in progress.restarted:
                own = (spans[-1],)
                again = without(common(own, held.get(tp, ())), left_out.get(tp, ()))
                repeated[tp] = merged((*repeated.get(tp, ()), *again))
                held[tp] = merged((*held.get(tp, ()), *own))
    return {tp: spans for tp, spans in repeated.items() if spans}


def passed_over(ledger: Ledger, progress: SourceProgress) -> Coverage:
    """Missing offsets below the end of the offsets that have been read: a later publication of the same partition was
    read. Offsets that a rollback removed are left out, because they were not passed over.
    """
    missing = {tp: without(holes, ledger.gone.get(tp, ())) for tp, holes in ledger.missing.items()}
    unread = {tp: common(holes, _heard(progress.covered.get(tp, ()))) for tp, holes in missing.items()}
    return {tp: spans for tp, spans in unread.items() if spans}


def _heard(covered: tuple[Span, ...]) -> tuple[Span, ...]:
    return (Span(0, covered[-1].end),) if covered else ()


def _moved(
    ledger: Ledger,
    read: ControlOffsets,
    progress: SourceProgress,
    passed: Mapping[TopicPartition, Iterable[Span]],
    admitted: Iterable[Coverage],
    left_out: Coverage,
) -> Ledger:
    """The ledger of the next commit.

    ``passed``: the coverage of publications whose entries for this table are below the table's control offsets. If the
    table does not hold such an offset, its record is lost: a store lost the entry, and a coordinator committed later
    entries.

    Departed topics are dropped, so that the ledger does not grow for ever. But a partition with missing offsets stays:
    its loss must stay visible.
    """
    source: dict[TopicPartition, int] = {}
    settled: dict[TopicPartition, int] = {}
    missing: dict[TopicPartition, tuple[Span, ...]] = {}
    void = {tp for tp in ledger.gone if tp in progress.restarted or tp.whole in progress.departed}
    gone = {tp: spans for tp, spans in ledger.gone.items() if tp not in void}
    for publication in admitted:
        for tp in gone.keys() & publication.keys():
            gone[tp] = without(gone[tp], without((publication[tp][-1],), left_out.get(tp, ())))
    gone = {tp: spans for tp, spans in gone.items() if spans}
    for tp in sorted({*ledger.source, *progress.covered}):
        if tp.whole in progress.departed and not ledger.missing.get(tp):
            continue
        before = ledger if progress.is_current(ledger, tp) else NO_LEDGER
        never = without(merged((*passed.get(tp, ()), *gone.get(tp, ()))), before.held(tp))
        told = without(progress.settled.get(tp, ()), never)
        below = lowest_uncovered(merged((Span(0, before.settled.get(tp, 0)), *told)))
        held = merged((*before.held(tp), Span(0, below), *without(progress.covered.get(tp, ()), never)))
        if held:
            source[tp], settled[tp] = held[-1].end, below
            holes = without((Span(below, held[-1].end),), held)
            if holes:
                missing[tp] = holes
    return Ledger(furthest(ledger.control, read), source, settled, missing, gone, doubt=ledger.doubt)
