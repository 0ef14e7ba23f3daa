"""The coordinator: decides when to commit, and which entries; its driver does the commits.

The state of its cycle is a phase: ``calving.protocol.phases`` has the table and the diagram.

Every entry stays buffered until its table holds it (C3, C4). A coordinator keeps no state of its own: its successor
starts at the saved position, and reads the same entries again. The ledgers in the tables exclude the entries that are
committed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from calving.errors import DataLossError, ProtocolError
from calving.model.events import (
    NO_COMMIT,
    CommitComplete,
    CommitToTable,
    DataComplete,
    DataWritten,
    Envelope,
    PartitionProgress,
    StartCommit,
    TableId,
    TableReference,
)
from calving.model.marks import TableMark
from calving.model.offsets import ControlOffsets, Coverage, Topic, TopicPartition, is_moment
from calving.protocol.buffer import Buffer
from calving.protocol.departures import Departures
from calving.protocol.effects import Acknowledge, Announce, CommitTables, CoordinatorEffect
from calving.protocol.ledger import SourceProgress
from calving.protocol.pace import Pace
from calving.protocol.phases import COMMIT, Commit, CommitStep, after
from calving.protocol.positions import passed_over
from calving.protocol.rollback import Marks

_MOST_PARKED, _MOST_SPANS = 100, 10_000
"""The most tables with parked commits, and the most partitions of all these tables together. Every CommitComplete
carries the offsets of parked commits.
"""


class Intervals(NamedTuple):
    """In seconds: between two cycles, until a cycle stops waiting for answers, between two repetitions of
    StartCommit.
    """

    interval: float
    timeout: float
    repeat: float


@dataclass(frozen=True, slots=True)
class Committed:
    """The table holds all requested files, except ``held_back``. ``snapshot_id`` is None if the table held them
    before.
    """

    table: TableReference
    snapshot_id: int | None
    mark: TableMark | None = None
    topics: frozenset[Topic] = frozenset()
    """Topics in the table's ledger that no publication read from the log covers."""
    held_back: tuple[Envelope, ...] = ()
    """Entries that wait for earlier records (G1)."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The table could not be committed; its entries stay buffered. ``lost``: the table has lost committed records; an
    operator has to act before the next commit.
    """

    reason: str
    lost: bool = False
    parked: str | None = None
    """The file in which this commit is parked."""
    held_back: tuple[Envelope, ...] = ()
    """Entries that are not in that file, because they wait for earlier records (G1)."""
    waits: bool = False  # for a coordinator with the settings of its files' workers: the table itself is well


class Coordinator:
    """Decides for one coordinator when to commit, and which entries; it does no I/O, and one thread calls it.

    Its driver reports events with ``heard`` and ``settled``. The driver also calls ``tick``, and runs the effects that
    these methods return, in their order. A table that cannot be committed is reported as Failed, and its entries wait
    for a later cycle. If another effect fails, the driver drops the machine, and its successor starts at the saved
    position. A call that the state forbids raises ProtocolError.
    """

    park_behind = 2_000
    """A failing table's commits are parked once a successor would have to read this many entries again because of the
    table.
    """

    def __init__(
        self,
        intervals: Intervals,
        position: ControlOffsets,
        now: float,
        seen: Mapping[TableId, TableMark] = MappingProxyType({}),
    ) -> None:
        """``position`` is the saved position at which the log was opened; the first cycle starts at once. ``seen``: the
        tables as the catalog showed them after the log was opened.
        """
        self._phase = Commit.RESTING
        self.failures: dict[TableId, int] = {}
        """Consecutive failed commits, by table."""
        self.waiting: set[TableId] = set()  # those of them whose files wait for a coordinator with other settings
        self._intervals = intervals
        self._buffer = Buffer(position)
        self._marks = Marks()
        self._seen = seen
        self._unconfirmed: set[TableId] = set()
        """Tables that the catalog may show in an older state than the log names. They are loaded with the next
        commit.
        """
        self.commit_id = NO_COMMIT  # the cycle that was begun last
        self.pace = Pace(intervals.interval, now)
        self._announced = now
        self._answers: dict[TopicPartition, int | None] = {}
        self._expected: frozenset[TopicPartition] = frozenset()
        self.unanswered: frozenset[TopicPartition] = frozenset()
        """Partitions whose answers the last commit lacked."""
        self._valid_through: int | None = None
        self._unsettled: set[TableId] = set()
        self._committing: ControlOffsets = {}
        self._cycle = 0
        self._resting: dict[TableId, int] = {}
        self._caught_up = False
        """Whether the log has been read up to this coordinator's first entry. Then all commits that others parked are
        known.
        """
        self._departures = Departures()
        self._elsewhere: frozenset[Topic] = frozenset()
        """Topics that are in ledgers but not in the log."""
        self._alone = True
        """Whether all workers support parked commits. Workers of the Java sink and of version 0.1.0 do not."""

    @property
    def phase(self) -> Commit:
        """The phase of the open cycle; RESTING between two cycles."""
        return self._phase

    @property
    def caught_up(self) -> bool:
        """Whether the log has been read up to this coordinator's first entry."""
        return self._caught_up

    @property
    def missing(self) -> frozenset[TopicPartition]:
        """Partitions whose answers the open cycle still lacks."""
        return self._expected - self._answers.keys() if self._phase is Commit.WAITING else frozenset()

    @property
    def buffered(self) -> Mapping[TableId, int]:
        """Number of entries that are not committed yet, by table, parked ones included."""
        parked = {table: parked.entries for table, parked in self._buffer.parked.items()}
        return {table: len(entries) + parked.get(table, 0) for table, entries in self._buffer.tables().items()}

    @property
    def passed_over(self) -> Coverage:
        """Offsets that were not read, though later ones of the same partition were."""
        return passed_over(self._buffer.progress().covered)

    def tick(self, now: float, fresh_id: UUID, expected: frozenset[TopicPartition]) -> list[CoordinatorEffect]:
        """Advance the clock to ``now``. ``fresh_id`` is the next cycle's id; ``expected``: the partitions that the
        topics have now (C2).
        """
        if self._phase is Commit.COMMITTING:
            return []
        self._expected = expected
        if self._phase is Commit.RESTING:
            if now < self.pace.due:
                return []
            self._take(CommitStep.CYCLE_BEGINS)
            self.commit_id = fresh_id
            self.pace.begin(now)
            self._answers.clear()
            return self._repeat(now)
        if self._complete():
            return self._commit(partial=False)
        if self._caught_up and now - self.pace.started >= self._intervals.timeout:
            return self._commit(partial=True)
        return self._repeat(now) if now - self._announced >= self._intervals.repeat else []

    def heard(self, envelope: Envelope) -> list[CoordinatorEffect]:
        """Take in the next entry of a partition of the control log."""
        self._buffer.hear(envelope)
        if self._departures.gone and isinstance(envelope.event, DataWritten | DataComplete):
            self._departures.heard({tp.whole for tp in envelope.spans})
        self._marks.hear(envelope)
        match envelope.event:
            case StartCommit(commit_id) if commit_id == self.commit_id and not self._caught_up:
                self._caught_up, self._buffer.adopting = True, False
                self._unconfirmed = self._marks.unconfirmed(self._seen)
            case DataComplete() if envelope.wanted:
                self.pace.want()
            case DataComplete() if envelope.parts is None:
                self._alone = False
        match envelope.event:
            case DataComplete(commit_id, assignments) if commit_id == self.commit_id and self._phase is Commit.WAITING:
                for progress in assignments:
                    self._answer(progress)
                if self._complete():
                    return self._commit(partial=False)
        return []

    def doubtful(self, now: float) -> frozenset[Topic]:
        """Topics that may be gone: look them up at the broker now, and call ``looked`` with the answer."""
        if not self._caught_up or not self._expected or not self._departures.is_due(now):
            return frozenset()
        listed = {tp.topic for tp in self._expected}
        return self._departures.doubtful(now, self._buffer.topics | self._elsewhere, listed)

    def looked(self, now: float, asked: frozenset[Topic], missed: Collection[Topic]) -> None:
        """The broker has answered: it does not know the ``missed`` topics among ``asked``. Do not call this without an
        answer.
        """
        self._departures.looked(now, asked, missed)

    def settled(self, table: TableId, outcome: Committed | Failed) -> list[CoordinatorEffect]:
        """One table of the running commit has settled.

        :raises DataLossError: the table has lost committed records.
        """
        if isinstance(outcome, Failed) and outcome.lost:
            raise DataLossError(outcome.reason)
        if table not in self._unsettled:
            raise ProtocolError(f"table {'.'.join(table)} settled, but it was not being committed")
        self._unsettled.discard(table)
        effects: list[CoordinatorEffect] = []
        match outcome:
            case Committed(reference, snapshot_id, mark, topics, held_back):
                self._elsewhere |= topics
                if mark is not None:
                    self._marks.note(table, mark)
                self._buffer.settle(table, self._committing, held_back)
                self._unconfirmed.discard(table)
                self.failures.pop(table, None)
                self.waiting.discard(table)
                self._resting.pop(table, None)
                if snapshot_id is not None:
                    event = CommitToTable(self.commit_id, reference, snapshot_id, self._valid_through)
                    effects.append(Announce((event,)))
            case Failed(parked=last, held_back=held_back, waits=waits):
                if last is not None:
                    self._buffer.park(table, self._committing, last, held_back)
                (self.waiting.add if waits else self.waiting.discard)(table)
                self.failures[table] = self.failures.get(table, 0) + 1
                # Skip at most one cycle: once the table works again, two cycles must be enough to commit it (I6).
                self._resting[table] = self._cycle + (1 if self.failures[table] == 1 else 2)
        if not self._unsettled:
            effects += self._complete_cycle()
        return effects

    def _take(self, step: CommitStep) -> None:
        self._phase = after(COMMIT, self._phase, step)

    def _repeat(self, now: float) -> list[CoordinatorEffect]:
        self._announced = now
        return [Announce((StartCommit(self.commit_id),))]

    def _answer(self, progress: PartitionProgress) -> None:
        # A partition that changed workers in this cycle answers twice; its later timestamp counts.
        before = self._answers.get(progress.source)
        known = [t for t in (before, progress.timestamp_us) if t is not None and is_moment(t // 1000)]
        self._answers[progress.source] = max(known) if known else None

    def _complete(self) -> bool:
        return self._caught_up and bool(self._expected) and self._answers.keys() >= self._expected

    def _commit(self, *, partial: bool) -> list[CoordinatorEffect]:
        self._take(CommitStep.COMMIT_BEGINS)
        self._cycle += 1
        self.unanswered = self._expected - self._answers.keys()
        self._valid_through = None if partial else self._valid_through_us()
        tables = {
            table: entries
            for table, entries in (dict.fromkeys(sorted(self._unconfirmed), ()) | self._buffer.tables()).items()
            if self._resting.get(table, 0) <= self._cycle
        }
        self._unsettled = set(tables)
        if not tables:
            return self._complete_cycle()
        self.pace.work()
        self._committing = self._buffer.whole()
        return [
            CommitTables(
                commit_id=self.commit_id,
                tables=tables,
                read=self._committing,
                progress=self._progress(),
                valid_through_us=self._valid_through,
                marks=self._marks.known,
                parked=dict(self._buffer.parked),
                park=self._in_the_way(tables),
            )
        ]

    def _progress(self) -> SourceProgress:
        """The known coverage. While a table is failing or parked, nothing more counts as settled: the catalog may show
        an older state of the table.
        """
        progress = self._buffer.progress()
        return replace(progress, settled={}) if self._is_troubled else replace(progress, departed=self._departed())

    @property
    def _is_troubled(self) -> bool:
        return bool(self.failures or self._buffer.parked)

    def _departed(self) -> frozenset[Topic]:
        return frozenset() if self._is_troubled else self._buffer.not_buffered(self._departures.gone)

    def _in_the_way(self, tables: Mapping[TableId, tuple[Envelope, ...]]) -> frozenset[TableId]:
        """Tables to park: because of each, a successor would have to read many entries again, also of other tables."""
        blocking = [t for t in tables if self._alone and self._buffer.behind(t) >= self.park_behind]
        parked = self._buffer.parked
        room = min(_MOST_PARKED, _MOST_SPANS // max(1, len(self._expected))) - len(parked)
        others = [t for t in blocking if t not in parked]
        return frozenset([t for t in blocking if t in parked] + others[: max(0, room)])

    def _valid_through_us(self) -> int | None:
        latest = [self._answers[tp] for tp in self._expected]
        known = [t for t in latest if t is not None]
        return min(known) if known and len(known) == len(latest) else None

    def _complete_cycle(self) -> list[CoordinatorEffect]:
        self._take(CommitStep.COMMIT_ENDS)
        # While a failing table waits for a retry, the sink gets no new valid-through time.
        done = CommitComplete(self.commit_id, None if self._resting else self._valid_through)
        buffer = self._buffer
        departed: frozenset[Topic] = frozenset()
        if not self.unanswered:  # all other partitions have a stored position: the next start is no first start
            departed = self._departed() & (buffer.topics | self._elsewhere)
            buffer.drop(departed)
            self._elsewhere -= departed
        position = buffer.position()
        return [Acknowledge(position, (done,), buffer.attachment(position, self._marks.known), departed)]
