"""Mutants of the rules by which compactions are committed."""

from __future__ import annotations

from tests.simulation.compactions import Compaction
from tests.simulation.mutants.registry import mutant
from tests.simulation.mutations import Rows
from tests.simulation.tables import Loaded, Snapshot
from tests.simulation.world import World

_THEME = "compacted"


@mutant("K7 a compaction copies the ledgers of the state that it has read", _THEME)
class CopiesOldLedgers(World):
    def ledgers_of_compaction(self, planned: Loaded, now: Loaded) -> Snapshot:
        return planned.snapshots[-1]


@mutant("K3 rows that were deleted while they were rewritten come back", _THEME)
class TranslatesNothing(World):
    def compacted_rows(self, compaction: Compaction, live: Rows) -> Rows:
        return compaction.rows(live | compaction.state.live)


@mutant("K14 a compaction is committed although a rollback has removed what it has read", _THEME)
class IgnoresRollbacks(World):
    def has_inputs(self, planned: Loaded, now: Loaded) -> bool:
        return planned.uuid == now.uuid
