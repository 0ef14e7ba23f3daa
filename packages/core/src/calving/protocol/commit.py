"""The commit of one table (C6): load it, leave out the files that it holds, attempt once, check, repeat until settled.

The loop calls no catalog; a ``CommitTarget`` does. After each failed attempt the loop loads the table to see whether
the commit landed: a catalog may report a conflict or a timeout although the commit succeeded. An attempt can land only
on the state that was loaded. So a second coordinator, a late request or a replay finds a newer ledger, and has nothing
left to add. Which files are new, and which ledger the commit gets, ``admit`` decides.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Generic, Protocol, TypeVar

from calving.caches import cached_by_identity
from calving.errors import AlreadyHeldError, CommitRefusedError, CommitUncertainError, SupersededError
from calving.model.events import DataWritten, Envelope
from calving.model.files import DataFile, one_name
from calving.model.offsets import (
    ControlOffsets,
    Coverage,
    SourceOffsets,
    Span,
    Topic,
    TopicPartition,
    common,
    merged,
    named,
    without,
)
from calving.protocol.ledger import NOWHERE, SHARED, Ledger, SourceProgress
from calving.protocol.ledger_key import LedgerKey
from calving.protocol.next_ledger import next_ledger
from calving.protocol.order import disordered, ordered
from calving.protocol.rollback import Line

S = TypeVar("S", bound="State")


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
        return _elsewhere(self.ledger.source, self.progress.covered) - self.progress.departed

    def __bool__(self) -> bool:
        return bool(self.data_files or self.delete_files)


@cached_by_identity(SHARED)
def _elsewhere(source: SourceOffsets, covered: Coverage) -> frozenset[Topic]:
    return frozenset(tp.whole for tp in source if tp not in covered)


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
    entries, passed = _told_apart(heard, ledger, progress)
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
        ledger=next_ledger(ledger, read, known, passed, publications.values(), left_out),
        publications=tuple(publications.values()),
        gone=ledger.gone,
        progress=progress,
        steps=tuple(step for step in steps if step.data_files or step.delete_files) if in_order else (),
        held_back=held_back,
    )


def _told_apart(
    heard: Iterable[Envelope], ledger: Ledger, progress: SourceProgress
) -> tuple[list[Envelope], dict[TopicPartition, list[Span]]]:
    """The entries with files that neither this branch nor another one holds; and the source offsets that entries below
    the control offsets of this one cover, without offsets from before a restart.
    """
    entries: list[Envelope] = []
    passed: dict[TopicPartition, list[Span]] = {}
    for envelope in heard:
        if not isinstance(envelope.event, DataWritten):
            continue
        if envelope.offset < ledger.control.get(envelope.partition, 0):
            for tp, spans in envelope.spans.items():
                if not progress.is_outdated(envelope, tp):
                    passed.setdefault(tp, []).append(spans[-1])
        elif envelope.offset >= ledger.elsewhere.get(envelope.partition, 0):
            entries.append(envelope)
    return entries, passed


def _steps(entries: Iterable[Envelope]) -> list[Step]:
    """The files that have rows, each once, grouped into the steps of their publications.

    An event has files of one partition type, delete files of keys have no partition, and an event has a greatest size.
    So the change of a batch may take several entries: first those with the delete files, then those with the data
    files. Deletes after data files begin another step: they delete rows of these files. So do deletes before or after
    partial rows, which are completed by the rows that the table has at this point of the order.
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
        data, deletes, source = fresh(entry.event.data_files), fresh(entry.event.delete_files), _partitions(entry.spans)
        is_more = bool(source) and entry.publication == last
        if is_more and not (deletes and _follows(steps[-1], deletes)):
            begun = steps[-1]
            steps[-1] = replace(begun, data_files=begun.data_files + data, delete_files=begun.delete_files + deletes)
        else:
            steps.append(Step(data, deletes, source))
        last = entry.publication
    return steps


@cached_by_identity(SHARED)
def _partitions(coverage: Coverage) -> frozenset[TopicPartition]:
    return frozenset(coverage)


def _follows(step: Step, deletes: Iterable[DataFile]) -> bool:
    """Whether these key files must not be part of the step before them."""
    return bool(step.data_files) or any(file.is_partial for file in (*step.delete_files, *deletes))


def twice(admitted: Admitted, progress: SourceProgress, ledger: Ledger, left_out: Coverage) -> Coverage:
    """Offsets whose records the commit would add a second time: the table holds the records, and the files contain them
    again.

    This happens only if a store of positions has lost writes that it had acknowledged.
    """
    return _twice(ledger.source, ledger.missing, progress.restarted, left_out, *admitted.publications)


@cached_by_identity(SHARED)
def _twice(
    source: SourceOffsets,
    missing: Coverage,
    restarted: Collection[TopicPartition],
    left_out: Coverage,
    *publications: Coverage,
) -> Coverage:
    ledger = Ledger({}, source, missing=missing)
    repeated: dict[TopicPartition, tuple[Span, ...]] = {}
    held: dict[TopicPartition, tuple[Span, ...]] = {}
    for publication in publications:
        for tp, spans in publication.items():
            if tp not in restarted:
                own, before = (spans[-1],), held[tp] if tp in held else ledger.held(tp)
                again = without(common(own, before), left_out.get(tp, ()))
                repeated[tp] = merged((*repeated.get(tp, ()), *again))
                held[tp] = merged((*before, *own))
    return {tp: spans for tp, spans in repeated.items() if spans}


class State(Protocol):
    """A table as loaded."""

    @property
    def line(self) -> Line:
        """The snapshots of the target branch."""

    @property
    def properties(self) -> Mapping[str, str]:
        """The table properties."""


class CommitTarget(Protocol[S]):
    """One branch of one table: the operations that the loop needs."""

    def load(self) -> S:
        """Load the table, with retries.

        :raises TableTroubleError, WentBackError: the table cannot be loaded or committed now; its files stay buffered.
        """

    def attempt(self, state: S, admitted: Admitted) -> int:
        """Commit once, on exactly ``state``. Returns the snapshot id.

        :raises CommitRefusedError, CommitUncertainError: call ``landed`` to find out whether the attempt made a
            snapshot.
        """

    def landed(self, state: S) -> int | None:
        """The id of the newest snapshot in ``state`` that one of the attempts made; None if there is none."""

    def moved(self, state: S) -> bool:
        """Whether ``state`` explains the refusal of the last attempt: one of the attempt's requirements no longer
        holds.
        """

    def discard(self) -> None:
        """Delete the files that the last attempt wrote. Call it only if the attempt was refused, ``moved`` and not
        ``landed``.
        """

    def pause(self, tries: int) -> None:
        """Wait before the next try."""


@dataclass(frozen=True, slots=True)
class Settled:
    """The table holds all requested files, except the entries that ``admitted`` holds back. ``snapshot_id`` is None if
    the table held the files before; ``tries`` counts attempts.
    """

    snapshot_id: int | None
    admitted: Admitted
    tries: int


class CommitLoop(Generic[S]):
    """``CommitLoop(target, key, 20).settle(heard, read)``."""

    def __init__(
        self,
        target: CommitTarget[S],
        key: LedgerKey,
        max_tries: int,
        *,
        in_order: bool = False,
        deciding: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """``in_order``: true for a mutation table. ``deciding``: entered while the loop decides which files are new."""
        self._target, self._key, self._max_tries, self._in_order = target, key, max_tries, in_order
        self._deciding = deciding

    def settle(self, heard: Iterable[Envelope], read: ControlOffsets, progress: SourceProgress = NOWHERE) -> Settled:
        """Commit the files of all ``heard`` entries exactly once, and advance the ledger at least to ``read`` and
        ``progress``.

        :raises CommitRefusedError, CommitUncertainError: not settled within ``max_tries``; nothing is lost, try again
            next cycle.
        :raises AlreadyHeldError, SupersededError: an operator has to recover the sink; do not commit these files.
        """
        target = self._target
        entries = list(heard)
        state = target.load()
        for tries in range(1, self._max_tries + 1):
            with self._deciding():
                ledger = self._key.read(state.line, state.properties)
                left_out = self._key.left_out(state.properties)
                admitted = admit(entries, read, progress, ledger, left_out, in_order=self._in_order)
            if not admitted:
                return Settled(None, admitted, tries - 1)
            self._check(state, admitted, progress, ledger, left_out)
            try:
                return Settled(target.attempt(state, admitted), admitted, tries)
            except (CommitRefusedError, CommitUncertainError) as error:
                is_last = tries == self._max_tries
                if not is_last:  # before the load: the next attempt must not build on a table from before the pause
                    target.pause(tries)
                state = target.load()
                snapshot_id = target.landed(state)
                if snapshot_id is not None:
                    return Settled(snapshot_id, admitted, tries)
                # A refusal may be wrong, and a stale replica may seem to confirm the refusal by showing the state
                # before the attempt. A table that has really moved on shows a snapshot after that state.
                if isinstance(error, CommitRefusedError) and target.moved(state):
                    target.discard()
                if is_last:
                    raise
        raise AssertionError("unreachable")

    def _check(
        self, state: S, admitted: Admitted, progress: SourceProgress, ledger: Ledger, left_out: Coverage
    ) -> None:
        """:raises AlreadyHeldError, SupersededError: an operator has to recover the sink; do not commit these files."""
        if self._key.is_superseded(state.properties, progress):
            raise SupersededError(
                "the sink was recovered after this coordinator had begun, or the recovery did not end: stop all"
                " workers and run `calving recover FILE` to its end"
            )
        for tp, spans in twice(admitted, progress, ledger, left_out).items():
            raise AlreadyHeldError(
                f"it holds offsets {spans[0].start} to {spans[-1].end} of {named(tp)} already:"
                " the store of positions has lost acknowledged writes;"
                " stop all workers and run `calving recover FILE`"
            )
        for tp, span in disordered(admitted.publications, progress).items() if self._in_order else ():
            raise AlreadyHeldError(
                f"changes of {named(tp)} from offset {span.start} on were read after later ones: its position has"
                " gone back; stop all workers and run `calving recover FILE`"
            )
