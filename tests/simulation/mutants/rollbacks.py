"""Mutants of the rules by which a rollback is noticed."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from calving.model.marks import TableMark
from calving.model.tables import OnRollback, SnapshotPlace
from calving.protocol import ledger_updates
from calving.protocol.answers import AbandonedCommits, abandoned
from calving.protocol.ledger import Ledger, encode_source
from calving.protocol.ledger_key import (
    GONE_OFFSETS,
    LEDGER_SNAPSHOT,
    LEDGERS_AT,
    SETTLED_OFFSETS,
    SOURCE_OFFSETS,
    LedgerKey,
)
from calving.protocol.recovery import Recovery
from calving.protocol.recovery import recovery as real_recovery
from calving.protocol.replacement import LogExtent
from calving.protocol.rollback import Ancestor, Line, RollbackNote, RolledBack, added_by
from tests.simulation.members import Crash
from tests.simulation.mutants.registry import mutant
from tests.simulation.tables import Loaded
from tests.simulation.world import World

_THEME = "rolled back anywhere"


@mutant("R2 a branch without a summary of the sink holds what its property says", _THEME)
class TrustsProperties(World):
    class ledger_key(LedgerKey):
        def last_commit(self, properties: Mapping[str, str]) -> SnapshotPlace | None:
            return None


@mutant("R2 a missing ancestor is taken for a rollback", _THEME)
class TakesExpiryForRollback(World):
    class ledger_key(LedgerKey):
        def read(self, line: Line, properties: Mapping[str, str]) -> Ledger:
            shown = list(line.snapshots)
            return super().read(replace(line, snapshots=[each._replace(parent=None) for each in shown]), properties)


@mutant("R3 a rollback is noticed, and the property stays the ledger", _THEME)
class NoticesOnly(World):
    class ledger_key(LedgerKey):
        def read(self, line: Line, properties: Mapping[str, str]) -> Ledger:
            found = super().read(line, properties)
            if self.own(line.snapshots) is not None:
                return found
            stored = self._of_source(properties, self.of_table)
            return replace(found, source=stored.source, settled=stored.settled, missing=stored.missing)


@mutant("R3 what the table holds at a snapshot of others is what it holds after the next commit", _THEME)
class KeepsTheNextLedger(World):
    @staticmethod
    def committed(
        key: LedgerKey, line: Line, properties: Mapping[str, str], ledger: Ledger, place: SnapshotPlace
    ) -> dict[str, str]:
        found = ledger_updates.committed(key, line, properties, ledger, place)
        next_ledger = {SOURCE_OFFSETS: encode_source(ledger.source), SETTLED_OFFSETS: "{}"}
        kept = [{**entries, **next_ledger, "snapshots": ids} for ids, entries in key.ledgers_at(found)]
        return found | ({key.of_table(LEDGERS_AT): json.dumps(kept)} if kept else {})


@mutant("R2a a look names the head, and leaves the ledger of before the rollback in the properties", _THEME)
class LooksPast(World):
    @staticmethod
    def looked(key: LedgerKey, line: Line, properties: Mapping[str, str]) -> dict[str, str]:
        found = ledger_updates.looked(key, line, properties)
        return {name: value for name, value in found.items() if name == key.of_table(LEDGER_SNAPSHOT)}


@mutant("R1 only the first commit names its snapshot", _THEME)
class NamesTheFirst(World):
    @staticmethod
    def committed(
        key: LedgerKey, line: Line, properties: Mapping[str, str], ledger: Ledger, place: SnapshotPlace
    ) -> dict[str, str]:
        return ledger_updates.committed(key, line, properties, ledger, key.last_commit(properties) or place)


@mutant("R10 a restoration does not see that commits have expired", _THEME)
class RestoresInPart(World):
    @staticmethod
    def abandoned(key: LedgerKey, line: Line, apart: Iterable[Ancestor], ledger: Ledger) -> AbandonedCommits:
        return replace(abandoned(key, line, apart, ledger), offsets=ledger.unanswered or ledger.gone, left={})


@mutant("R10 a restoration brings back what was read again meanwhile", _THEME)
class RestoresTwice(World):
    @staticmethod
    def abandoned(key: LedgerKey, line: Line, apart: Iterable[Ancestor], ledger: Ledger) -> AbandonedCommits:
        every = [each for each in apart if added_by(line, each.place.id, key.held_at)]
        return AbandonedCommits(tuple(every), ledger.gone, {})


@mutant("R5 an operator hears that a table lacks nothing", _THEME)
class TellsNothing(World):
    class ledger_key(LedgerKey):
        def read(self, line: Line, properties: Mapping[str, str]) -> Ledger:
            found = super().read(line, properties)
            return replace(found, forgotten=found.gone)


@mutant("R5 what was forgotten is no longer gone", _THEME)
class ForgetsTheOffsets(World):
    @staticmethod
    def rolled_back(
        key: LedgerKey, line: Line, properties: Mapping[str, str], note: RollbackNote, *, waits: bool = False
    ) -> dict[str, str]:
        noted = ledger_updates.rolled_back(key, line, properties, note, waits=waits)
        return noted | {key.of_table(GONE_OFFSETS): "{}"}


@mutant("R7 what was forgotten comes again with what is read again", "rolled back")
class ReadsForgotten(World):
    @staticmethod
    def recovery(
        ledgers: Mapping[str, Ledger],
        rolled_back: Collection[str] = (),
        waiting: Collection[str] = (),
        *,
        complete: bool,
    ) -> Recovery:
        every = {name: replace(ledger, forgotten={}) for name, ledger in ledgers.items()}
        return real_recovery(every, rolled_back, waiting, complete=complete)


@mutant("R8 an answer moves the head in one commit, and tells of it in another", _THEME, seed=6)
class AnswersTwice(World):
    def answered(self, head: Callable[[], None], properties: Callable[[], None]) -> None:
        head()
        self.disturb()
        properties()


@mutant("R8 an answer tells of the head in one commit, and may die before the other moves it", _THEME, seed=6)
class DiesBetween(World):
    def answered(self, head: Callable[[], None], properties: Callable[[], None]) -> None:
        properties()
        if self.chance(0.5):
            raise Crash
        head()


@mutant("R6 a table that is to stop takes what comes after a rollback", _THEME)
class NeverStops(World):
    @staticmethod
    def stops(rollback: RolledBack, policy: OnRollback) -> bool:
        return policy == "stop-on-doubt"


@mutant("R12 snapshots expire, and nobody has answered for their records", _THEME)
class MaintainsAll(World):
    def is_to_be_maintained(self, ledger: Ledger) -> bool:
        return True


_REPLACED = "replaced by others"


@mutant("a mark compares sequence numbers only", _REPLACED, seed=6)
class ComparesNumbersOnly(World):
    @staticmethod
    def mark_of(state: Loaded, key: LedgerKey) -> TableMark:
        return state.mark(key)._replace(control=None)


@mutant("R3 what a replacement has discarded is not gone", _REPLACED)
class DiscardsSilently(World):
    @staticmethod
    def replaced(
        key: LedgerKey, line: Line, properties: Mapping[str, str], before: TableMark, extent: LogExtent
    ) -> dict[str, str]:
        return ledger_updates.replaced(key, line, properties, before, replace(extent, covered={}))


@mutant("R3 a replay commits records again that the table counts as gone after a replacement", _REPLACED, seed=4)
class CommitsDiscardedEntries(World):
    @staticmethod
    def replaced(
        key: LedgerKey, line: Line, properties: Mapping[str, str], before: TableMark, extent: LogExtent
    ) -> dict[str, str]:
        noted = ledger_updates.replaced(key, line, properties, before, extent)
        return {name: text for name, text in noted.items() if name != key.of_table(key.offsets)}


@mutant("R3 a new name knows nothing of what the former one knew of rollbacks", "renamed and rolled back")
class TakesOverNamesOnly(World):
    @staticmethod
    def taken_over(key: LedgerKey, line: Line, properties: Mapping[str, str], former: str, last: int) -> dict[str, str]:
        return ledger_updates.renamed(key, former, last, properties)
