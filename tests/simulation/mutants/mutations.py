"""Mutation tables that break a rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from unittest import mock

from calving.iceberg.parking import ParkedCommit
from calving.model.events import Envelope, TableId
from calving.model.offsets import ControlOffsets
from calving.protocol import commit
from calving.protocol.buffer import Buffer
from calving.protocol.commit import Admitted, CommitLoop, Settled
from calving.protocol.ledger import NOWHERE, Ledger, SourceProgress
from calving.protocol.order import Ordered, ordered
from tests.simulation.broker import Record
from tests.simulation.mutants.registry import mutant, with_buffer
from tests.simulation.mutations import Changes, Rows, changes, event_time
from tests.simulation.tables import Loaded, SimTarget
from tests.simulation.world import World

Order = Callable[[Iterable[Envelope], ControlOffsets, SourceProgress, Ledger], Ordered]


class _Mutating(World):
    mutates = True


class _Ordering(_Mutating):
    """With another order gate."""

    order: Order

    def commit_loop(self, target: SimTarget) -> CommitLoop[Loaded]:
        order = type(self).order

        class Loop(CommitLoop[Loaded]):
            def settle(
                self, heard: Iterable[Envelope], read: ControlOffsets, progress: SourceProgress = NOWHERE
            ) -> Settled:
                with mock.patch.object(commit, "ordered", order):
                    return super().settle(heard, read, progress)

        return Loop(target, target.key, 3, in_order=target.name in self.mutation_tables)


def _as_heard(
    entries: Iterable[Envelope], control: ControlOffsets, progress: SourceProgress, ledger: Ledger
) -> Ordered:
    return Ordered(tuple(entries), (), control, progress.covered)


def _beyond(entries: Iterable[Envelope], control: ControlOffsets, progress: SourceProgress, ledger: Ledger) -> Ordered:
    return replace(ordered(entries, control, progress, ledger), control=control)


@mutant("G1 a mutation table takes publications as they are heard", "open transactions")
class TakesAsHeard(_Ordering):
    order = staticmethod(_as_heard)


@mutant("G1 the ledger passes what is held back", "open transactions", seed=8)
class PassesHeldBack(_Ordering):
    order = staticmethod(_beyond)


@mutant("G1 what was held back is forgotten once the table is committed", "open transactions", seed=11)
class ForgetsHeldBack(_Mutating):
    class _Buffer(Buffer):
        def settle(self, table: TableId, read: ControlOffsets, held_back: Iterable[Envelope] = ()) -> None:
            super().settle(table, read)

    coordinator = with_buffer(_Buffer)


@mutant("G1 what waits for earlier records is parked with what does not", "failing table")
class ParksWhatWaits(_Mutating):
    eagerness = 0.3

    def to_park(self, commit: ParkedCommit) -> tuple[ParkedCommit, tuple[Envelope, ...]]:
        return commit, ()


@mutant("G1 what waits for earlier records is forgotten when the rest is parked", "failing table")
class ForgetsUnparked(_Mutating):
    eagerness = 0.3

    class _Buffer(Buffer):
        def park(self, table: TableId, read: ControlOffsets, last: str, held_back: Iterable[Envelope] = ()) -> None:
            super().park(table, read, last)

    coordinator = with_buffer(_Buffer)


@mutant("C5 a mutation table that fails holds the position back for good", "failing table")
class NeverParksMutations(_Mutating):
    def to_park(self, commit: ParkedCommit) -> tuple[ParkedCommit, tuple[Envelope, ...]]:
        return replace(commit, entries=()), commit.entries


@mutant("I7 offsets start over, and the control log has several partitions", "truncated")
class StartsOver(_Mutating):
    """No rule is broken: so much is not promised."""


def _by_time(records: Iterable[Record]) -> Changes:
    return changes(sorted(records, key=event_time))


def _reversed(records: Iterable[Record]) -> Changes:
    return changes([*records][::-1])


@mutant("M3 of the changes of a key in a batch the latest by time counts")
class OrdersByTime(_Mutating):
    changes_of = staticmethod(_by_time)


@mutant("M3 of the changes of a key in a batch the first counts")
class OrdersBackwards(_Mutating):
    changes_of = staticmethod(_reversed)


@mutant("C6 rows to delete that were found for an attempt that was refused are kept for the next one", "crowd")
class KeepsPositions(_Mutating):
    class target(SimTarget):
        _found: Rows | None = None

        def resolve(self, state: Loaded, admitted: Admitted) -> Rows:
            after = super().resolve(state, admitted)
            if self._found is None:
                self._found = state.live - after
            return after | (state.live - self._found)
