"""Coordinators that break a rule."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from uuid import UUID

from calving.iceberg.parking import ParkedCommit, Parking
from calving.model.events import Attachment, CommitComplete, DataWritten, Envelope, Parked, Place, TableId
from calving.model.marks import TableMark
from calving.model.offsets import ControlOffsets, Topic, TopicPartition
from calving.protocol.buffer import Buffer
from calving.protocol.coordinator import Committed, Coordinator, Failed
from calving.protocol.departures import Departures
from calving.protocol.effects import Acknowledge, Announce, CommitTables, CoordinatorEffect
from calving.protocol.ledger import SourceProgress
from calving.protocol.pace import Pace
from calving.protocol.rollback import Marks
from calving.runtime.coordinator import CoordinatorLoop
from tests.simulation.members import SimCursor, SimSession
from tests.simulation.mutants.registry import Spoilt, mutant, with_buffer
from tests.simulation.world import World


@mutant("C1 a coordinator without a saved position opens at the latest entry")
class OpensAtLatest(World):
    class session(SimSession):
        def follow(self, *, replay: bool) -> SimCursor:
            cursor = super().follow(replay=replay)
            if replay and not self._store.saved:
                cursor._inner._at = self._store.ends()
            return cursor


@mutant("C1 a coordinator opens at the latest entry although a position is saved")
class ReplaysNothing(World):
    class session(SimSession):
        def follow(self, *, replay: bool) -> SimCursor:
            cursor = super().follow(replay=replay)
            if replay:
                cursor._inner._at = self._store.ends()
            return cursor


@mutant("C2 the expected partitions are frozen at election")
class FrozenExpectation(World):
    class coordinator(Coordinator):
        def tick(self, now: float, fresh_id: UUID, expected: frozenset[TopicPartition]) -> list[CoordinatorEffect]:
            self._first: frozenset[TopicPartition] = getattr(self, "_first", expected)
            return super().tick(now, fresh_id, self._first)

    restarts = 0.0


@mutant("T4 a cycle that a worker asks for begins at once, also after one that had files", seed=36)
class BeginsAtOnce(World):
    class coordinator(Spoilt):
        class _Pace(Pace):
            def work(self) -> None: ...

        def spoil(self, position: ControlOffsets) -> None:
            started, self.pace = self.pace.started, self._Pace(self._intervals.interval, 0.0)
            self.pace.started = started


@mutant("C3 only files of the current cycle are buffered")
class ForgetsLateFiles(World):
    class coordinator(Coordinator):
        def heard(self, envelope: Envelope) -> list[CoordinatorEffect]:
            event = envelope.event
            if isinstance(event, DataWritten) and event.commit_id != self.commit_id:
                self._buffer.read[envelope.partition] = envelope.offset + 1
                return []
            return super().heard(envelope)


@mutant("C4 a table that fails loses its buffered entries")
class DropsFailedTable(World):
    class coordinator(Coordinator):
        def settled(self, table: TableId, outcome: Committed | Failed) -> list[CoordinatorEffect]:
            if isinstance(outcome, Failed):
                self._buffer.settle(table, self._committing)
            return super().settled(table, outcome)


@mutant("C6 a successor is not told where offsets have restarted", "truncated", seed=6)
class ForgetsPlaces(World):
    class _Buffer(Buffer):
        def attachment(self, position: ControlOffsets, marks: Mapping[TableId, TableMark]) -> Attachment:
            return replace(super().attachment(position, marks), restarts={})

    coordinator = with_buffer(_Buffer)


@mutant("C6 a coordinator that has not heard of a restart is believed", "truncated")
class HeedsTheDeaf(World):
    eagerness = 0.0  # it has to be slow

    class _Buffer(Buffer):
        def _is_current(self, tp: TopicPartition, attached: Attachment) -> bool:
            return True

    coordinator = with_buffer(_Buffer)


@mutant("C6 a successor that is told of a restart drops what it has heard behind it", "truncated")
class DropsWhatCameAfter(World):
    class _Buffer(Buffer):
        def _started_behind(self, place: Place) -> bool:
            return False

    coordinator = with_buffer(_Buffer)


@mutant("C5 the read position is saved although entries are still buffered")
class AcknowledgesTooMuch(World):
    class coordinator(Coordinator):
        def _complete_cycle(self) -> list[CoordinatorEffect]:
            (effect,) = super()._complete_cycle()
            assert isinstance(effect, Acknowledge)
            return [replace(effect, position=dict(self._buffer.read))]


@mutant("C5 the position is saved before the tables commit")
class AcknowledgesFirst(World):
    class coordinator_loop(CoordinatorLoop):
        def _act(self, effects: list[CoordinatorEffect]) -> None:
            for effect in effects:
                if isinstance(effect, CommitTables):
                    self._cursor.acknowledge(dict(effect.read), ())
            super()._act(effects)


@mutant("C6 references to one table that differ in UUID are committed one after the other")
class TwoGroups(World):
    class coordinator(Spoilt):
        class _Split(Buffer):
            def settle(self, table: TableId, read: ControlOffsets, held_back: Iterable[Envelope] = ()) -> None:
                left = self._heard.get(table, [])[1::2]
                super().settle(table, read, held_back)
                if left:
                    self._heard[table] = left

        def spoil(self, position: ControlOffsets) -> None:
            self._buffer = self._Split(position)

        def _commit(self, *, partial: bool) -> list[CoordinatorEffect]:
            effects = super()._commit(partial=partial)
            for effect in effects:
                if isinstance(effect, CommitTables):
                    tables = {t: e[::2] for t, e in effect.tables.items()}
                    return [replace(effect, tables=tables)]
            return effects


@mutant("C6 a commit ends in the middle of a publication")
class EndsInTheMiddle(World):
    class _Torn(Buffer):
        def whole(self) -> dict[int, int]:
            return dict(self.read)

    coordinator = with_buffer(_Torn)


@mutant("C5 a publication counts of which a part was not heard", "entries passed over")
class CountsParts(World):
    class _Lax(Buffer):
        def _check(self, end: Envelope, parts: int) -> None:
            pass

    coordinator = with_buffer(_Lax)


@mutant("C6 a catalog that went back is not noticed", "catalog restored")
class SeesNothing(World):
    class coordinator(Spoilt):
        class _Blind(Marks):
            def note(self, table: TableId, mark: TableMark) -> None:
                pass

        def spoil(self, position: ControlOffsets) -> None:
            self._marks = self._Blind()


@mutant("C6 records are called settled that wait for a table")
class SettlesTooEarly(World):
    class _Hasty(Buffer):
        def progress(self) -> SourceProgress:
            found = super().progress()
            return replace(found, settled=found.covered)

    coordinator = with_buffer(_Hasty)


@mutant("C5 a successor does not take over what was parked", "failing table")
class ForgetsParked(World):
    class _Deaf(Buffer):
        def __init__(self, position: ControlOffsets | None = None) -> None:
            super().__init__(position)
            self.adopting = False

    coordinator = with_buffer(_Deaf)


@mutant("C5 a coordinator commits before it has heard what was parked", "failing table")
class CommitsUnheard(World):
    class coordinator(Spoilt):
        def spoil(self, position: ControlOffsets) -> None:
            self._caught_up = True


@mutant("C6 what was parked is called settled", "failing table")
class SettlesParked(World):
    class coordinator(Coordinator):
        def _progress(self) -> SourceProgress:
            parked, self._buffer.parked = self._buffer.parked, {}
            found = self._buffer.progress()
            self._buffer.parked = parked
            return found


@mutant("C5 a table that fails holds the position back for good", "failing table")
class NeverParks(World):
    park_behind = 10**9


@mutant("C6 what was parked is committed after what came later", "failing table")
class LatestFirst(World):
    def in_order(self, parked: Iterable[ParkedCommit], last: ParkedCommit) -> Iterator[ParkedCommit]:
        yield last
        yield from parked


@mutant("C6 a new coordinator loads only the tables that get something", "catalog restored", seed=9)
class ComparesNothing(World):
    class coordinator(Coordinator):
        def heard(self, envelope: Envelope) -> list[CoordinatorEffect]:
            self._seen = self._marks.known
            return super().heard(envelope)


@mutant("C6 what was parked goes by the restarts that were known at its time", "truncated while a table fails", seed=4)
class JudgesAsThen(World):
    def has_read(self, request: CommitTables) -> bool:
        """New leaders park before they have read the log, as those of earlier versions do."""
        return True

    def progress_of(self, commit: ParkedCommit, now: SourceProgress) -> SourceProgress:
        return commit.progress


@mutant("C5 what was parked is deleted before it is written down that it has served", "failing table")
class DeletesTooEarly(World):
    class parking(Parking):
        def served(self, table: TableId, parked: Parked) -> None:
            super().served(table, parked)
            self.clear(table, None)


def with_departures(departures: type[Departures]) -> type[Coordinator]:
    class Machine(Spoilt):
        def spoil(self, position: ControlOffsets) -> None:
            self._departures = departures()

    return Machine


@mutant("C8 ledgers speak for ever of topics that are gone", "topic recreated")
class ForgetsNoTopic(World):
    class _Departures(Departures):
        def looked(self, now: float, asked: Collection[Topic], missed: Collection[Topic]) -> None:
            pass

    coordinator = with_departures(_Departures)


@mutant("C8 one look is enough to take a topic for gone", "topic recreated")
class LooksOnce(World):
    class _Departures(Departures):
        looks, seconds = 1, 0.0

    coordinator = with_departures(_Departures)


@mutant("W3 a StartCommit is not repeated while answers are missing")
class InvitesOnce(World):
    class coordinator(Coordinator):
        def tick(self, now: float, fresh_id: UUID, expected: frozenset[TopicPartition]) -> list[CoordinatorEffect]:
            waiting = self.commit_id
            return [
                e
                for e in super().tick(now, fresh_id, expected)
                if not isinstance(e, Announce) or self.commit_id != waiting
            ]


@mutant("C6 a topic that starts over is not noticed", "topic without identity")
class NeverRestarts(World):
    class _Same(Buffer):
        def _restart(self, partitions: Iterable[TopicPartition]) -> None:
            pass

    coordinator = with_buffer(_Same)


@mutant("C6 a successor is not told what is settled")
class TellsNothing(World):
    class _Silent(Buffer):
        def attachment(self, position: ControlOffsets, marks: Mapping[TableId, TableMark]) -> Attachment:
            return replace(super().attachment(position, marks), settled={}, restarted=frozenset())

    coordinator = with_buffer(_Silent)


@mutant("C6 nothing is ever called settled")
class SettlesNothing(World):
    class _Doubtful(Buffer):
        def progress(self) -> SourceProgress:
            return replace(super().progress(), settled={})

    coordinator = with_buffer(_Doubtful)


@mutant("VTTS it is the maximum of the partitions, not the minimum")
class FurthestTime(World):
    class coordinator(Coordinator):
        def _valid_through_us(self) -> int | None:
            least = super()._valid_through_us()
            return least and max(t for t in (self._answers[tp] for tp in self._expected) if t is not None)


@mutant("VTTS partitions without news are left out of it")
class SkipsSilence(World):
    class coordinator(Coordinator):
        def _valid_through_us(self) -> int | None:
            return min((t for t in (self._answers[tp] for tp in self._expected) if t is not None), default=None)


@mutant("VTTS it is told although a table failed")
class TellsTooMuch(World):
    class coordinator(Coordinator):
        def _complete_cycle(self) -> list[CoordinatorEffect]:
            (effect,) = super()._complete_cycle()
            assert isinstance(effect, Acknowledge)
            (event,) = effect.events
            assert isinstance(event, CommitComplete)
            return [replace(effect, events=(replace(event, valid_through_us=self._valid_through),))]


@mutant("VTTS a partial commit tells it")
class TellsWhenPartial(World):
    class coordinator(Coordinator):
        def _commit(self, *, partial: bool) -> list[CoordinatorEffect]:
            self._expected &= self._answers.keys()
            return super()._commit(partial=False)
