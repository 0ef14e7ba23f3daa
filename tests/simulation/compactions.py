"""Compactions of the sink's maintenance. Each has two steps: files are rewritten as they are on one state of a table, and
committed later, on another one (K2, K3, K7, K14). Between the two everything else happens.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from calving.iceberg.maintenance import carried, carried_on
from calving.model.events import TableId
from calving.model.tables import SnapshotPlace
from tests.simulation.members import Crash
from tests.simulation.mutations import Row, Rows
from tests.simulation.tables import Loaded, SimTable, Snapshot

if TYPE_CHECKING:
    from tests.simulation.world import World


@dataclass(frozen=True)
class Compaction:
    """Rewritten files of a table, which are not committed yet. ``state``: as the table was when they were read."""

    name: TableId
    state: Loaded
    file: str

    def removed(self, now: Loaded) -> tuple[str, ...]:
        """The files with rewritten rows that have left the branch since."""
        there = {each.id for each in (*now.expired, *now.snapshots)}
        lines = (*self.state.expired, *self.state.snapshots)
        return tuple(path for each in lines if each.id not in there for path in each.files)

    def rows(self, live: Rows) -> Rows:
        """The rows of a mutation table after the commit: what was deleted meanwhile stays deleted (K3)."""
        return frozenset(Row(row.record, self.file) if row in self.state.live else row for row in live)


class Compactions:
    """The maintainer of a world. It may die between any two steps."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rewritten: list[Compaction] = []

    def step(self) -> None:
        """Rewrite files of a table, or commit what was rewritten."""
        world = self._world
        if self._rewritten and world.chance(0.5):
            with suppress(Crash):
                self._commit(self._rewritten.pop(world.rng.randrange(len(self._rewritten))))
            return
        name = world.rng.choice(world.names)
        table = world.tables[name]
        if not table.broken and table.snapshots and self._may_be(table):
            self._rewritten.append(Compaction(name, table.state(), f"c{world.next_id()}"))

    def _commit(self, compaction: Compaction) -> None:
        world, table = self._world, self._world.tables[compaction.name]
        if table.broken or not self._may_be(table) or not world.has_inputs(compaction.state, table.state()):
            world.stats["compactions dropped"] += 1
            return
        world.hazard()
        ledgers = carried(world.ledgers_of_compaction(compaction.state, table.state()).summary)
        live = world.compacted_rows(compaction, table.live) if compaction.name in world.mutation_tables else None
        before = table.head
        files = compaction.removed(table.state())
        added = Snapshot(world.next_id(), files, ledgers, world.now, live, compacts=compaction.state.head)
        table.append(added, world.files)
        place = SnapshotPlace(added.id, table.sequence)
        table.properties |= carried_on(table.properties, ("main",), "main", before, place)
        world.stats["compacted"] += 1
        world.stats["compacted, and changed since"] += compaction.state.head != before

    def _may_be(self, table: SimTable) -> bool:
        """Whether nobody still has to answer for a rollback (K14)."""
        return self._world.is_to_be_maintained(self._world.ledger_of(table.state()))
