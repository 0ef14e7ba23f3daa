"""Answers to rollbacks, as ``calving rollback`` gives them while the sink runs."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from calving.model.events import TableId
from calving.model.offsets import Coverage, less
from calving.model.tables import SnapshotPlace
from calving.protocol.ledger import Ledger
from calving.protocol.ledger_key import LOG_ID, ROLLBACK_ANSWERED, LedgerKey
from calving.protocol.replacement import forgotten, restorable
from calving.protocol.rollback import Ancestor, RollbackNote
from tests.simulation.checks import Violation, covers
from tests.simulation.members import Crash
from tests.simulation.tables import Loaded, Snapshot

if TYPE_CHECKING:
    from tests.simulation.world import World


class Answers:
    def __init__(self, world: World) -> None:
        self._world = world

    def give(self) -> None:
        """An operator answers for a table that somebody has rolled back."""
        name = self._world.rng.choice(self._world.names)
        if (key := self._key_of(name)) is None:
            return
        state = self._world.tables[name].state()
        ledger = key.read(state.line, state.properties)
        self._world.checks.has_told(name, ledger)
        if ledger.unanswered and ledger.doubt is None:
            with suppress(Crash):  # the command may die
                self._answer(name, key, state, ledger)

    def end(self) -> None:
        """Somebody answers for each table that would wait for an answer for ever."""
        for name in sorted(self._world.stopping):
            if (key := self._key_of(name)) is None:
                continue
            state = self._world.tables[name].state()
            ledger = key.read(state.line, state.properties)
            if not ledger.unanswered:
                continue
            if ledger.doubt is not None:  # the answer is for what is missing and not known, too
                self._world.people.taken.pop(name, None)
            self._forget(name, key, state, ledger, whole=True)

    def forget_newest(self) -> None:
        """As ``calving rollback --to SNAPSHOT --then forget`` does."""
        world = self._world
        name = world.rng.choice(world.names)
        table, key = world.tables[name], self._key_of(name)
        good = range(table.expired + 1, len(table.snapshots))
        if key is None or not good:
            return
        before, count = table.state(), world.rng.choice(good[-6:])
        to = replace(before, snapshots=before.snapshots[: count - table.expired])
        ledger = key.read(to.line, before.properties)
        if ledger.doubt is not None:
            return
        chosen = forgotten(key, before.properties, ledger)
        note = RollbackNote(before.head, to.head, chosen)
        noted = world.rolled_back(key, to.line, before.properties, note)
        with suppress(Crash):
            world.answered(
                lambda: world.people.lead(name, table.snapshots[:count]), lambda: table.properties.update(noted)
            )
            self._expect(name, key, replace(ledger, forgotten=chosen), less(ledger.gone, chosen))
            world.stats["rolled back and forgotten"] += 1

    def _key_of(self, name: TableId) -> LedgerKey | None:
        """As the table names its control log; None if nobody can answer for it now."""
        world, table = self._world, self._world.tables[name]
        log_id = table.properties.get(world.key("").of_table(LOG_ID))
        if log_id is None or table.broken or world.accidents.operator_in is not None:
            return None
        if name in world.accidents.older():
            return None  # the sink has not said yet what the table lacks
        return world.key(log_id)

    def _answer(self, name: TableId, key: LedgerKey, state: Loaded, ledger: Ledger) -> None:
        world = self._world
        if world.chance(0.25):
            self._forget(name, key, state, ledger)
        elif name in world.mutation_tables:
            self._go_forward(name, key, state, ledger)
        else:
            self._restore(name, key, state, ledger)

    def _forget(self, name: TableId, key: LedgerKey, state: Loaded, ledger: Ledger, *, whole: bool = False) -> None:
        chosen = ledger.gone if whole else forgotten(key, state.properties, ledger)
        note = RollbackNote(state.head, state.head, chosen)
        self._world.tables[name].properties |= self._world.rolled_back(key, state.line, state.properties, note)
        self._expect(name, key, replace(ledger, forgotten=chosen), less(ledger.gone, chosen))
        self._world.stats["rollbacks forgotten"] += 1
        self._world.stats["rollbacks forgotten in part"] += chosen != ledger.gone

    def _restore(self, name: TableId, key: LedgerKey, state: Loaded, ledger: Ledger) -> None:
        world, table = self._world, self._world.tables[name]
        lacking, discarded = restorable(key, state.properties, ledger)
        commits = world.abandoned(key, state.line, self._apart(name), lacking)
        if commits.left or not lacking.unanswered:
            world.stats["rollbacks that cannot be restored"] += 1
            return
        regained = ledger.regained(commits.offsets)
        files = tuple(path for each in commits.snapshots for path in table.left[each.place.id].snapshot.files)
        added, rows = Snapshot(world.next_id(), files, key.summary(regained), world.now), set(table.rows)
        place = SnapshotPlace(added.id, table.sequence + 1)
        noted = world.committed(key, state.line, state.properties, regained, place)
        note = RollbackNote(state.head, state.head, ledger.forgotten)
        noted |= {key.of_table(ROLLBACK_ANSWERED): str(note)}

        def append() -> None:
            table.append(added, world.files)
            back = set(table.rows) - rows
            for lacking in (world.people.taken, world.people.unanswered):
                lacking[name] = lacking.get(name, set()) - back
            world.checks.forgiven -= back
            world.checks.files_of |= dict.fromkeys(files, name)

        world.answered(append, lambda: table.properties.update(noted))
        self._expect(name, key, regained, discarded)
        world.stats["rollbacks restored"] += 1
        world.stats["rollbacks restored in part"] += bool(discarded)

    def _go_forward(self, name: TableId, key: LedgerKey, state: Loaded, ledger: Ledger) -> None:
        world, table = self._world, self._world.tables[name]
        lacking, discarded = restorable(key, state.properties, ledger)
        shown = world.way_forward(key, state.line, self._apart(name), lacking, state.properties)
        if not shown or not lacking.unanswered:
            world.stats["rollbacks that cannot be restored"] += 1
            return
        back = [table.left[each.place.id].snapshot for each in reversed(shown)]
        world.people.lead(name, [*table.snapshots, *back])
        line, note = table.state().line, RollbackNote(state.head, state.head, ledger.forgotten)
        table.properties |= world.rolled_back(key, line, state.properties, note)
        world.checks.answered(name, key)
        if key.read(line, table.properties).unanswered != discarded:
            raise Violation(f"R10: {name} went forward, and still lacks {ledger.unanswered}")
        world.stats["rollbacks restored"] += 1

    def _apart(self, name: TableId) -> list[Ancestor]:
        left = sorted(self._world.tables[name].left.values(), key=lambda each: each.snapshot.number)
        return [each.ancestor for each in left]

    def _expect(self, name: TableId, key: LedgerKey, ledger: Ledger, left: Coverage = MappingProxyType({})) -> None:
        """``left``: what is still unanswered."""
        world, state = self._world, self._world.tables[name].state()
        lost = world.people.unanswered.pop(name, set())
        world.people.unanswered[name] = {r for r in lost if covers(left.get(world.known_as(r.tp), ()), r.offset)}
        self._world.checks.answered(name, key)
        now = key.read(state.line, state.properties)
        if now.unanswered != left or now.gone != ledger.gone:
            raise Violation(f"R5: {name} was answered, and lacks {now.gone}, of which {now.unanswered} is unanswered")
