"""Reads the control log from outside the group: its uncommitted entries, which partitions have answered, what a
coordinator reads when it starts, and where the sink reads on by its tables, as long as the log tells nothing of a
partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import dropwhile, islice
from uuid import UUID, uuid4

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from calving.backend.interface import ControlLog, Cursor, Session
from calving.backend.sessions import read_to_end
from calving.iceberg.catalog import find_table, table_id
from calving.iceberg.history import LoadedTable
from calving.model.events import (
    CommitComplete,
    DataComplete,
    DataWritten,
    Envelope,
    Leader,
    StartCommit,
    TableId,
    TargetState,
    WorkerEnd,
)
from calving.model.offsets import (
    ControlOffsets,
    Coverage,
    SourceOffsets,
    TopicPartition,
    intersection,
    is_moment,
    less,
    present,
    without,
)
from calving.protocol import positions
from calving.protocol.buffer import Buffer
from calving.protocol.forms import FormInUse
from calving.protocol.held_back import passed_over
from calving.protocol.ledger_key import LedgerKey
from calving.protocol.members import Members
from calving.protocol.recovery import resumed as resumed_at
from calving.protocol.rollback import Line, Marks
from calving.protocol.target_state import TargetStateInUse
from calving.runtime.preflight import held, ledger_key, ledger_of, own_tables
from calving.runtime.routed import routed_tables
from calving.settings.load import Sink
from calving.source.interface import Source
from calving.status.backlog import Published
from calving.status.health import disagreement_text
from calving.status.partitions import committed_up_to
from calving.status.table_states import TableStates


class ControlLogView:
    """A view of the control log: uncommitted entries since the saved position ``start``, and the last cycles before."""

    def __init__(self, log_id: str, start: ControlOffsets) -> None:
        self.log_id, self._start = log_id, start
        self._buffer = Buffer(start)
        self._cycles = 0
        self._written: dict[tuple[int, int], int] = {}
        """The number of cycles before each entry."""
        self._answered: dict[UUID, set[TopicPartition]] = {}
        self._closed: UUID | None = None
        self._paused: dict[TopicPartition, int | None] = {}
        self._is_open = False
        self.cycle_at: float | None = None
        """When the last commit cycle ended, or when the one began that has not ended; None if the log does not tell. In
        seconds since the epoch, by the coordinator's clock.
        """
        self._listening, self._members = TableStates(), Members()
        self.published = Published()
        self.unreadable: tuple[str, ...] = ()
        """Sentences on the entries at which a coordinator stops, because it cannot decode them."""
        self.unsigned = ""
        """A sentence on the last entry of the group that is not signed; empty if there is none."""

    def hear(self, envelope: Envelope) -> None:
        self._listening.hear(envelope, 0.0)
        self._members.hear(envelope)
        self.published.hear(envelope)
        self._note_time(envelope)
        match envelope.event:
            case StartCommit(commit_id):
                self._answered.setdefault(commit_id, set())
            case DataComplete(commit_id, assignments):
                self._paused.update({a.source: envelope.paused_ms for a in assignments})
                if commit_id in self._answered:
                    self._answered[commit_id] |= {a.source for a in assignments}
            case DataWritten():
                self._written[envelope.place] = self._cycles
            case CommitComplete(commit_id):
                self._closed = commit_id
                self._cycles += 1
                self._members.tell(envelope.attached.members)
        if envelope.offset >= self._start.get(envelope.partition, 0):
            self._buffer.hear(envelope)

    def _note_time(self, envelope: Envelope) -> None:
        at_us = envelope.at_us
        if not at_us or not is_moment(at_us // 1000):
            return
        match envelope.event:
            case StartCommit() if not self._is_open:  # a cycle that does not end is announced again and again
                self._is_open, self.cycle_at = True, at_us / 1e6
            case CommitComplete(commit_id) if commit_id in self._answered or envelope.attached.leader is not None:
                self._is_open, self.cycle_at = False, at_us / 1e6

    @property
    def committed(self) -> Mapping[TopicPartition, int]:
        """The offset below which every record is in its tables, by partition."""
        return committed_up_to(self._listening.settled)

    @property
    def stopped(self) -> bool:
        """Whether an operator has stopped the sink."""
        return self._listening.target.stopped

    @property
    def tables(self) -> list[str]:
        """Tables with entries in the log."""
        return [".".join(table) for table in self._buffer.tables()]

    @property
    def unread(self) -> Coverage:
        """Offsets that the sink has not read, though it has read later ones of the same partition."""
        return positions.passed_over(self._buffer.progress().covered)

    @property
    def leader(self) -> Leader | None:
        """The coordinator of the last cycle; None if the log does not name it."""
        return self._listening.leader

    @property
    def paused(self) -> dict[TopicPartition, float]:
        """The partitions whose workers are paused, by their last answers; since when, in seconds since the epoch."""
        return {tp: ms / 1000 for tp, ms in self._paused.items() if ms is not None}

    @property
    def end(self) -> WorkerEnd | None:
        """The last worker that has ended with an error; None if a commit cycle has ended since."""
        return self._listening.end

    @property
    def differing(self) -> tuple[str, ...]:
        """Sentences on workers with other settings than most."""
        return tuple(disagreement_text(each, "the others") for each in self._members.disagreements if each.keys)

    @property
    def versions(self) -> tuple[str, ...]:
        """The versions of the workers that have answered in the last cycles, as far as the log still has their answers
        and they tell their versions.
        """
        return self._members.versions

    def waiting(self, table: TableId, control: ControlOffsets) -> tuple[Envelope, ...]:
        """The entries that ``table`` lacks, if it holds all entries below ``control``."""
        return tuple(e for e in self._buffer.tables().get(table, ()) if e.offset >= control.get(e.partition, 0))

    def parked(self, table: TableId) -> int:
        """The number of parked entries of a table."""
        commits = self._buffer.parked.get(table)
        return commits.entries if commits is not None else 0

    def cycles(self, waiting: Iterable[Envelope]) -> int:
        """Commit cycles that have ended since the first of these entries."""
        return max((self._cycles - self._written[e.place] for e in waiting), default=0)

    def answered(self, tp: TopicPartition) -> bool | None:
        """Whether the last ended cycle had an answer for a partition; None if the log does not tell."""
        partitions = self._answered.get(self._closed) if self._closed is not None else None
        return None if partitions is None else tp in partitions

    def passed_over(self, key: LedgerKey, table: Table) -> Coverage:
        """Offsets that were missing in the last two commits of a table: no later commit will add them."""
        loaded = LoadedTable(table, key.branch)
        ledger, progress = key.read(loaded.line, loaded.properties), self._buffer.progress()
        now = passed_over(ledger, progress)
        # Compare the missing offsets with and without the last commit of the sink.
        earlier = islice(dropwhile(lambda each: key.offsets not in each.summary, loaded.line.snapshots), 1, None)
        before = key.read(Line(list(earlier)), {}).missing
        both = intersection(now, before)
        # The next commit takes settled offsets for held, such as those that an operator has accepted; but not offsets
        # that a rollback has taken from the table.
        settled = {tp: without(progress.settled.get(tp, ()), ledger.gone.get(tp, ())) for tp in both}
        return less(both, settled)


def hear(session: Session) -> ControlLogView:
    """Read the control log to its end."""
    cursor = session.watch()
    try:
        heard = ControlLogView(cursor.log.identity, cursor.log.start)
        for entry in read_to_end(cursor):
            heard.hear(entry)
        heard.unreadable, heard.unsigned = tuple(cursor.unreadable), cursor.unsigned
    finally:
        cursor.close()
    return heard


def marks_in(session: Session) -> tuple[str, Marks]:
    """The identity of the control log, and the marks of tables in it."""
    marks = Marks()
    with closing(session.watch()) as cursor:
        for entry in read_to_end(cursor):
            marks.hear(entry)
        return cursor.log.identity, marks


def nothing_waits(sink: Sink, catalog: Catalog, heard: ControlLogView) -> bool:
    """Whether every publication is committed to all its tables."""
    for name in heard.tables:
        table = find_table(catalog, table_id(name))
        control = {} if table is None else ledger_of(ledger_key(sink, heard.log_id, name), table).control
        if heard.parked(table_id(name)) or heard.waiting(table_id(name), control):
            return False
    return True


@dataclass(frozen=True, slots=True)
class Replay:
    """What waits for a commit, the marks of tables, and the form in use, at the end that the log had when it was
    opened.
    """

    buffer: Buffer
    marks: Marks
    form: FormInUse
    target: TargetStateInUse

    @staticmethod
    def of(cursor: Cursor) -> Replay:
        """Read the log.

        :raises UnavailableError: the end was not reached within 60 s.
        :raises NewerVersionError: workers of a later version have written what this one would misread.
        """
        replay = Replay(Buffer(cursor.log.start), Marks(), FormInUse(), TargetStateInUse())
        for entry in read_to_end(cursor):
            replay.buffer.hear(entry)
            replay.marks.hear(entry)
            replay.form.hear(entry)
            replay.target.hear(entry)
        return replay

    def complete(self, cursor: Cursor, commit_id: UUID, state: TargetState | None = None) -> None:
        """Save the position of the buffer, with a CommitComplete that tells the next coordinator all of this.
        ``state``: that of the sink from now on; None leaves it as it is.

        :raises CalvingError: as ``Cursor.acknowledge``.
        """
        position = self.buffer.position()
        attached = replace(
            self.buffer.attachment(position, self.marks.known),
            form=self.form.form,
            state=state or self.target.repeated,
        )
        cursor.acknowledge(position, (CommitComplete(commit_id),), attached)


def keep(state: TargetStateInUse, cursor: Cursor) -> None:
    """Tell the state again, after a rewind has discarded the entry that told it. ``cursor``: one that replays, at least
    if the sink is stopped.

    :raises CalvingError: as ``Cursor.acknowledge``.
    """
    if state.stopped:
        Replay.of(cursor).complete(cursor, uuid4(), state.state)


def resumed(
    catalog: Catalog, sink: Sink, source: Source, log: ControlLog, names: Iterable[str] | None = None
) -> SourceOffsets:
    """Where the sink reads on by its tables (``protocol.recovery.resumed``): those with these ``names``, or all that
    can be loaded.
    """
    begins = source.bounds(source.partitions()).begins
    topics = {tp.topic for tp in begins}
    identities = source.identities(topics)
    if names is None:
        names = (*own_tables(sink), *routed_tables(catalog, sink, topics).names)
    tables = dict(held(catalog, sink, log.identity, names))
    return resumed_at(
        {name: table.ledger.present(identities) for name, table in tables.items()},
        {name: present(table.awaited, identities) for name, table in tables.items()},
        begins,
        complete=not sink.keys.routes_freely,
    )
