"""Commits that break a rule, and recoveries."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from unittest import mock

from calving.errors import CommitRefusedError, CommitUncertainError
from calving.model.events import Envelope, TableId
from calving.model.marks import TableMark
from calving.model.offsets import ControlOffsets, Coverage, TopicPartition
from calving.protocol import commit as commit_module
from calving.protocol.commit import Admitted, CommitLoop, Settled, admit
from calving.protocol.coordinator import Committed, Failed
from calving.protocol.effects import CommitTables
from calving.protocol.ledger import NOWHERE, Ledger, SourceProgress
from calving.protocol.ledger_key import LedgerKey
from calving.protocol.recovery import Recovery
from calving.protocol.recovery import recovery as real_recovery
from calving.protocol.rollback import Line, Marks
from tests.simulation.mutants.registry import mutant
from tests.simulation.tables import Loaded, SimCommitter, SimTable, SimTarget, Snapshot
from tests.simulation.world import World


@mutant("C6.1 the ledger is read once per process, not before every attempt")
class RemembersLedger(World):
    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        outer = self

        class Target(SimTarget):
            def load(self) -> Loaded:
                fresh = super().load()
                known = outer._known.setdefault((id(outer.stepping), id(self.table)), fresh)
                ancestry = (s if s in known.snapshots else replace(s, summary={}) for s in fresh.snapshots)
                return replace(fresh, snapshots=tuple(ancestry), properties=known.properties)

        self._known: dict[tuple[int, int], Loaded] = {}
        self.target = Target


@mutant("C6.2 entries below the ledger are not left out")
class NoFilter(World):
    class _Key(LedgerKey):
        def read(self, line: Line, properties: Mapping[str, str]) -> Ledger:
            return Ledger({})

    ledger_key = _Key


class _CustomLoop(World):
    """A world whose commit loop admits by another rule."""

    @staticmethod
    def admit(
        heard: Iterable[Envelope],
        read: ControlOffsets,
        progress: SourceProgress,
        ledger: Ledger,
        left_out: Coverage,
        *,
        in_order: bool,
    ) -> Admitted:
        return admit(heard, read, progress, ledger, left_out, in_order=in_order)

    def commit_loop(self, target: SimTarget) -> CommitLoop[Loaded]:
        rule = type(self).admit

        class Loop(CommitLoop[Loaded]):
            def settle(
                self, heard: Iterable[Envelope], read: ControlOffsets, progress: SourceProgress = NOWHERE
            ) -> Settled:
                with mock.patch.object(commit_module, "admit", rule):
                    return super().settle(heard, read, progress)

        return Loop(target, target.key, 3, in_order=target.name in self.mutation_tables)


class _Believing(World):
    """Heard restarts count in another way."""

    progress: type[SourceProgress]

    def commit_loop(self, target: SimTarget) -> CommitLoop[Loaded]:
        progress_of = type(self).progress

        class Loop(CommitLoop[Loaded]):
            def settle(
                self, heard: Iterable[Envelope], read: ControlOffsets, progress: SourceProgress = NOWHERE
            ) -> Settled:
                known = progress_of(
                    progress.covered, progress.settled, progress.restarted, progress.since, progress.departed
                )
                return super().settle(heard, read, known)

        return Loop(target, target.key, 3, in_order=target.name in self.mutation_tables)


@mutant("C6.3 a ledger is believed whatever has restarted since", "truncated")
class BelievesAnyLedger(_Believing):
    class progress(SourceProgress):
        def is_current(self, ledger: Ledger, tp: TopicPartition) -> bool:
            return True


@mutant("C6.3 where offsets have restarted no ledger is believed", "truncated")
class BelievesNoLedger(_Believing):
    class progress(SourceProgress):
        def is_current(self, ledger: Ledger, tp: TopicPartition) -> bool:
            return tp not in self.restarted


@mutant("C6.3 what a table got before a restart counts after it", "truncated", seed=9)
class CountsWhatWasBefore(_Believing):
    class progress(SourceProgress):
        def is_outdated(self, entry: Envelope, tp: TopicPartition) -> bool:
            return False


@mutant("C6.3 the new ledger is what this coordinator has read, not the furthest of both", "crowd", seed=5)
class LedgerGoesBack(_CustomLoop):
    eagerness = 0.0  # of two coordinators one has to have read less, and of one partition only

    @staticmethod
    def admit(
        heard: Iterable[Envelope],
        read: ControlOffsets,
        progress: SourceProgress,
        ledger: Ledger,
        left_out: Coverage,
        *,
        in_order: bool,
    ) -> Admitted:
        found = admit(heard, read, progress, ledger, left_out, in_order=in_order)
        return replace(found, ledger=replace(found.ledger, control=read))


@mutant("C6.3 the new ledger is not moved at all")
class LedgerStays(_CustomLoop):
    @staticmethod
    def admit(
        heard: Iterable[Envelope],
        read: ControlOffsets,
        progress: SourceProgress,
        ledger: Ledger,
        left_out: Coverage,
        *,
        in_order: bool,
    ) -> Admitted:
        found = admit(heard, read, progress, ledger, left_out, in_order=in_order)
        return replace(found, ledger=ledger)


@mutant("C6.4 an attempt is rebased onto a moved head without looking again", "crowd")
class Rebases(World):
    class target(SimTarget):
        def attempt(self, state: Loaded, admitted: Admitted) -> int:
            if self.world.chance(self.world.odds.contention * 4):
                self.world.disturb()
            return super().attempt(self.load(), admitted)


@mutant("C6.4 a reported conflict deletes manifests without looking whether it landed", "replica", seed=4)
class DeletesUnseen(World):
    class target(SimTarget):
        def attempt(self, state: Loaded, admitted: Admitted) -> int:
            try:
                return super().attempt(state, admitted)
            except CommitRefusedError:
                self.discard()
                raise


@mutant("C6.4 an unknown outcome is taken for a failure and its manifests are deleted", "replica")
class DeletesUncertain(World):
    class target(SimTarget):
        def attempt(self, state: Loaded, admitted: Admitted) -> int:
            try:
                return super().attempt(state, admitted)
            except CommitUncertainError:
                self.discard()
                raise


@mutant("C6 the ledger claims everything below the furthest record", "open transactions")
class ClaimsHoles(World):
    class ledger_key(LedgerKey):
        def read(self, line: Line, properties: Mapping[str, str]) -> Ledger:
            return replace(super().read(line, properties), missing={})


@mutant("recovery goes back to what the furthest table has read", "lost store")
class RewindsTooLittle(World):
    @staticmethod
    def recovery(
        ledgers: Mapping[str, Ledger],
        rolled_back: Collection[str] = (),
        waiting: Collection[str] = (),
        *,
        complete: bool,
    ) -> Recovery:
        found = real_recovery(ledgers, rolled_back, waiting, complete=complete)
        positions = {tp: max(ledger.source.get(tp, 0) for ledger in ledgers.values()) for tp in found.positions}
        return replace(found, positions=positions)


@mutant("recovery leaves nothing out for any table", "lost store")
class DoublesOnRecovery(World):
    @staticmethod
    def recovery(
        ledgers: Mapping[str, Ledger],
        rolled_back: Collection[str] = (),
        waiting: Collection[str] = (),
        *,
        complete: bool,
    ) -> Recovery:
        found = real_recovery(ledgers, rolled_back, waiting, complete=complete)
        return replace(found, held={key: {} for key in ledgers})


@mutant("recovery trusts what a table says is settled that another one has lost with its catalog", "catalog restored")
class TrustsOlderTables(World):
    class marks(Marks):
        def older(self, tables: Mapping[TableId, TableMark]) -> set[TableId]:
            return set()


@mutant("C6 records that the table holds already are committed once more", "lost store")
class CommitsTwice(World):
    def commit_loop(self, target: SimTarget) -> CommitLoop[Loaded]:
        class Loop(CommitLoop[Loaded]):
            def settle(
                self, heard: Iterable[Envelope], read: ControlOffsets, progress: SourceProgress = NOWHERE
            ) -> Settled:
                with mock.patch.object(commit_module, "twice", lambda *_: {}):
                    return super().settle(heard, read, progress)

        return Loop(target, target.key, 3)


@mutant("C6 a coordinator from before a recovery commits all the same", "recovered too soon", seed=13)
class OutlivesRecovery(World):
    class ledger_key(LedgerKey):
        def is_superseded(self, properties: Mapping[str, str], progress: SourceProgress) -> bool:
            return False


@mutant("recovery does not refuse what is on its way", "recovered too soon")
class OvertakenRecovery(World):
    class table(SimTable):
        def supersede(self, snapshot: Snapshot, properties: Mapping[str, str]) -> None:
            self.properties |= properties


@mutant("C4 once a table hangs the others have to wait for it", "table hangs")
class WaitsForAll(World):
    class committer(SimCommitter):
        def _in_time(self, table: TableId, request: CommitTables) -> Committed | Failed:
            hung = self._world.accidents.stalled & request.tables.keys()
            return super()._in_time(table, request) if not hung or table in hung else Failed("not tried")


@mutant("C6.1 the table's property is not read where the summaries have expired", "expiry")
class ReadsSummariesOnly(World):
    class ledger_key(LedgerKey):
        def read(self, line: Line, properties: Mapping[str, str]) -> Ledger:
            return super().read(line, {})
