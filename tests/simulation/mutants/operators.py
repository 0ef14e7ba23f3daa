"""Mutants of the steps that follow an operator's act."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from types import MappingProxyType
from uuid import UUID

from calving.backend.interface import Cursor
from calving.cli.release import Stale, discard
from calving.iceberg.parking import Parking
from calving.model.events import Place, TableId
from calving.model.tables import SnapshotPlace
from calving.protocol.buffer import Buffer
from calving.protocol.ledger import Ledger, decode_control
from calving.protocol.ledger_key import GONE_OFFSETS, LedgerKey
from calving.protocol.recovery import Recovery
from calving.protocol.recovery import recovery as real_recovery
from calving.protocol.rollback import Line
from tests.simulation.mutants.registry import mutant, with_buffer
from tests.simulation.operators import Operators
from tests.simulation.tables import Loaded, SimTarget
from tests.simulation.world import World


@mutant("W1 a sink that was given another name starts as if it were another one", "renamed")
class TakesAnyName(World):
    class operators(Operators):
        def guard(self) -> None:
            pass


@mutant("recovery does not know what the tables say under the former name", "renamed")
class ForgetsFormerName(World):
    def ledger_of(self, state: Loaded) -> Ledger:
        return self.key(self.store.identity).read(state.line, state.properties)


@mutant("C4 files that wait for the table as it was are committed to the new one", "table recreated")
class CommitsToAnother(World):
    class target(SimTarget):
        def load(self) -> Loaded:
            self._uuids = frozenset()
            return super().load()


@mutant("C4 release discards what was written for the table as it is, too", "table recreated")
class ReleasesAll(World):
    @staticmethod
    def release(
        cursor: Cursor,
        parking: Parking,
        tables: Collection[TableId],
        commit_id: UUID,
        uuid_of: Callable[[TableId], UUID | None],
        write_down: Callable[[Stale], object],
        outside: Callable[[TableId, Collection[str]], Collection[str]] = lambda _, paths: (),
        attempted: Stale = MappingProxyType({}),
    ) -> Stale:
        return discard(cursor, parking, tables, commit_id, lambda _: None, write_down, outside, attempted)


@mutant("C4 coordinators do not hear what an operator has released", "table recreated")
class DeafToReleases(World):
    class _Buffer(Buffer):
        def release(self, places: Collection[Place]) -> None:
            pass

    coordinator = with_buffer(_Buffer)


@mutant("C6 after a rollback a replay brings back what was taken away", "rolled back")
class ReplaysOverRollback(World):
    class ledger_key(LedgerKey):
        def read(self, line: Line, properties: Mapping[str, str]) -> Ledger:
            found, own = super().read(line, properties), self.own(line.snapshots)
            return found if own is None else replace(found, control=decode_control(own.summary[self.offsets]))


@mutant("C6 what a rollback took away is forgotten with the second commit", "rolled back")
class ForgetsRollback(World):
    class ledger_key(LedgerKey):
        def properties(self, ledger: Ledger, place: SnapshotPlace | None = None) -> dict[str, str]:
            found = super().properties(ledger, place)
            return {name: value for name, value in found.items() if not name.startswith(GONE_OFFSETS)}


@mutant("recovery of a table that was rolled back trusts what the others say is settled", "rolled back")
class TrustsTheOthers(World):
    @staticmethod
    def recovery(
        ledgers: Mapping[str, Ledger],
        rolled_back: Collection[str] = (),
        waiting: Collection[str] = (),
        *,
        complete: bool,
    ) -> Recovery:
        return real_recovery(ledgers, (), complete=complete)
