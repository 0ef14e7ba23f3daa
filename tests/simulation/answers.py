"""Answers to rollbacks, as ``calving rollback`` gives them while the sink runs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from calving.model.events import TableId
from calving.protocol.ledger import Ledger
from calving.protocol.ledger_key import LOG_ID, ROLLBACK_ANSWERED, LedgerKey
from calving.protocol.rollback import Ancestor, RollbackNote, SnapshotPlace
from tests.simulation.checks import Violation
from tests.simulation.tables import Loaded, Snapshot

if TYPE_CHECKING:
    from tests.simulation.world import World


class Answers:
    def __init__(self, world: World) -> None:
        self._world = world

    def give(self) -> None:
        """An operator answers for a table that somebody has rolled back."""
        world = self._world
        name = world.rng.choice(world.names)
        table = world.tables[name]
        state = table.state()
        log_id = state.properties.get(world.key("").of_table(LOG_ID))
        if log_id is None or table.broken or world.accidents.operator_in is not None:
            return
        key = world.key(log_id)
        ledger = key.read(state.line, state.properties)
        if not ledger.unanswered or ledger.doubt is not None:
            return
        if world.chance(0.25):
            self._forget(name, key, state, ledger)
        elif name in world.mutation_tables:
            self._go_forward(name, key, state, ledger)
        else:
            self._restore(name, key, state, ledger)

    def _forget(self, name: TableId, key: LedgerKey, state: Loaded, ledger: Ledger) -> None:
        note = RollbackNote(state.head, state.head, ledger.gone)
        self._world.tables[name].properties |= self._world.rolled_back(key, state.line, state.properties, note)
        self._expect(name, key, replace(ledger, forgotten=ledger.gone))
        self._world.stats["rollbacks forgotten"] += 1

    def _restore(self, name: TableId, key: LedgerKey, state: Loaded, ledger: Ledger) -> None:
        world, table = self._world, self._world.tables[name]
        commits = world.abandoned(key, state.line, self._apart(name), ledger)
        if commits.left:
            world.stats["rollbacks that cannot be restored"] += 1
            return
        regained = ledger.regained(commits.offsets)
        files = tuple(path for each in commits.snapshots for path in table.left[each.place.id].snapshot.files)
        added, rows = Snapshot(world.next_id(), files, key.summary(regained), world.now), set(table.rows)
        place = SnapshotPlace(added.id, table.sequence + 1)
        noted = world.committed(key, state.line, state.properties, regained, place)
        note = RollbackNote(state.head, state.head, ledger.forgotten)
        table.append(added, world.files)
        table.properties |= noted | {key.of_table(ROLLBACK_ANSWERED): str(note)}
        back = set(table.rows) - rows
        world.people.taken[name] = world.people.taken.get(name, set()) - back
        world.checks.forgiven -= back
        world.checks.files_of |= dict.fromkeys(files, name)
        self._expect(name, key, regained)
        world.stats["rollbacks restored"] += 1

    def _go_forward(self, name: TableId, key: LedgerKey, state: Loaded, ledger: Ledger) -> None:
        world, table = self._world, self._world.tables[name]
        shown = world.way_forward(key, state.line, self._apart(name), state.properties)
        if not shown:
            world.stats["rollbacks that cannot be restored"] += 1
            return
        back = [table.left[each.place.id].snapshot for each in reversed(shown)]
        world.people.lead(name, [*table.snapshots, *back])
        line, note = table.state().line, RollbackNote(state.head, state.head, ledger.forgotten)
        table.properties |= world.rolled_back(key, line, state.properties, note)
        if key.read(line, table.properties).unanswered:
            raise Violation(f"R10: {name} went forward, and still lacks {ledger.unanswered}")
        world.stats["rollbacks restored"] += 1

    def _apart(self, name: TableId) -> list[Ancestor]:
        left = sorted(self._world.tables[name].left.values(), key=lambda each: each.snapshot.number)
        return [each.ancestor for each in left]

    def _expect(self, name: TableId, key: LedgerKey, ledger: Ledger) -> None:
        state = self._world.tables[name].state()
        now = key.read(state.line, state.properties)
        if now.unanswered or now.gone != ledger.gone:
            raise Violation(f"R5: {name} was answered, and lacks {now.gone}, of which {now.unanswered} is unanswered")
