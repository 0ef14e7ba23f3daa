"""Accidents to the parts around a sink, and its operator's responses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from calving.backend.interface import Cursor
from calving.backend.memory import MemorySession, MemoryStore
from calving.model.events import TableId
from calving.model.offsets import TopicPartition, decode_coverage, encode_coverage, present
from calving.protocol.buffer import Buffer
from calving.protocol.ledger import Ledger
from calving.protocol.ledger_key import LOG_ID, LedgerKey
from calving.protocol.ledger_updates import brought_back
from calving.protocol.recovery import AWAITED_OFFSETS
from tests.simulation.broker import Record
from tests.simulation.mutations import compacted
from tests.simulation.odds import Odds
from tests.simulation.operators import KEPT
from tests.simulation.tables import Snapshot

if TYPE_CHECKING:
    from tests.simulation.world import World

_COMPACTIONS = 0.05
"""The share of other writers' snapshots that replace all files. It matters only where heads go back."""
_ABANDONED = 0.3
"""How likely snapshots of no branch expire, too."""


class Accidents:
    def __init__(self, world: World) -> None:
        self._world = world
        self._older_store: MemoryStore | None = None
        self.operator_in: int | None = None
        """After so many steps an operator recovers the sink."""
        self.catalog_went_back = False
        """And nobody has recovered the sink since."""
        self.taken: dict[TableId, set[Record]] = {}
        """The rows that tables lost with it."""
        self.stalled: set[TableId] = set()
        """Tables whose commits do not come back; they may land later."""
        self._older_tables: dict[TableId, tuple[list[Snapshot], int, dict[str, str], int]] = {}
        self._odds: Odds | None = None
        self._kinds: list[tuple[float, Callable[[], None]]] = []

    def _possible(self, odds: Odds) -> list[tuple[float, Callable[[], None]]]:
        """The kinds that can happen, with their odds."""
        people, strangers = self._world.people, self._world.strangers
        kinds: list[tuple[float, Callable[[], None]]] = [
            (odds.retention, self._retention),
            (odds.losses * 8, self._copy_store),
            (odds.losses, self._lose_store),
            (odds.expiry, self._expire_snapshots),
            (odds.backups * 8, self._copy_tables),
            (odds.hushes, self._hush),
            (odds.backups, self._restore_tables),
            (odds.recreations, self._recreate_topic),
            (odds.truncations, self._truncate),
            (odds.stuck, self._open_transaction),
            (odds.renames, people.rename),
            (odds.drops, people.recreate_table),
            (odds.drops * 8, people.release),
            (odds.rollbacks, people.roll_back),
            (odds.rollbacks * 4, self._world.answers.give),
            (odds.rollbacks, self._world.answers.forget_newest),
            (odds.rollbacks, people.maintain),
            (odds.swaps, people.replace_table),
            (odds.compactions, self._world.compactions.step),
            (odds.moves, strangers.move),
            (odds.moves, strangers.check),
            (odds.moves / 3, strangers.accept),
            (odds.stalls, self._stall),
            (odds.breakage, self._break_table),
            (odds.replacements, self._world.versions.replace),
            (1.0 if odds.replacements else 0.0, self._world.versions.mend),
        ]
        return [kind for kind in kinds if kind[0] > 0]

    def happen(self) -> None:
        """A step of time: each kind by its odds."""
        if self._odds is not self._world.odds:
            self._odds = self._world.odds
            self._kinds = self._possible(self._odds)
        for probability, accident in self._kinds:
            if self._world.chance(probability):
                accident()
        if self.operator_in is not None:
            self.operator_in -= 1
            if self.operator_in < 0:
                self.recover()

    def _partition(self) -> TopicPartition:
        return self._world.rng.choice(sorted(self._world.broker.content))

    # The source

    def _retention(self) -> None:
        world, tp = self._world, self._partition()
        broker, checks = world.broker, world.checks
        begin = world.rng.randint(broker.begins[tp], broker.end(tp))
        # Only what no batch has taken up yet: a range that vanishes under a batch is the reader's to report.
        members = world.members.values()
        if any(m.loop and m.loop.machine.busy for m in members) or begin <= max(m.reaches(tp) for m in members):
            return
        wanted = world.store.positions.get(tp)
        checks.gone.update(broker.content[tp][wanted or 0 : begin])
        if wanted is None:
            world.skipped[tp] += begin - broker.begins[tp]  # no reader has ever wanted these
        broker.begins[tp] = begin
        world.stats["expired"] += 1

    def _recreate_topic(self) -> None:
        self._world.broker.recreate()
        self._world.stats["topics recreated"] += 1

    def _truncate(self) -> None:
        broker, tp = self._world.broker, self._partition()
        broker.truncate(tp, self._world.rng.randint(max(broker.begins[tp], broker.end(tp) - 20), broker.end(tp)))
        self._world.stats["truncated"] += 1

    def _open_transaction(self) -> None:
        """Somebody's open transaction hides what comes behind it, in the source or in the control log; or it ends."""
        world, tp = self._world, self._partition()
        partition = world.rng.randrange(world.store.partitions)
        if world.broker.stuck.pop(tp, None) is None:
            world.broker.stuck[tp] = world.broker.end(tp)
        if world.veils.pop(partition, None) is None:
            world.veils[partition] = len(world.store.log[partition])
        world.stats["open transactions"] += 1

    # The tables

    def _break_table(self) -> None:
        """One fails for long, or is mended."""
        broken = [table for table in self._world.tables.values() if table.broken]
        if not broken:
            self._world.rng.choice([*self._world.tables.values()]).broken = True
            self._world.stats["tables broken"] += 1
        elif self._world.chance(0.2):
            broken[0].broken = False

    def _expire_snapshots(self) -> None:
        """Somebody else writes without end, and all that is old has expired: the sink's summaries among it."""
        world = self._world
        name = world.rng.choice(sorted(world.tables))
        table = world.tables[name]
        table.append(self.others_snapshot(name), {})
        old = sum(s.at < world.now - KEPT for s in table.snapshots[:-1])
        table.expired = max(table.expired, old)
        if table.left and world.chance(_ABANDONED):
            table.left = {}
        world.stats["snapshots expired"] += 1

    def others_snapshot(self, name: TableId) -> Snapshot:
        """Of another writer: an empty one, or a compaction of all files; in a mutation table of some at least."""
        world, number = self._world, self._world.next_id()
        mutates = name in world.mutation_tables
        rows = compacted(world.tables[name].live, f"c{number}") if mutates else None
        compacts = world.chance(_COMPACTIONS if world.odds.rollbacks else 0.0)
        return Snapshot(number, (), {}, world.now, rows, compacts=world.tables[name].head if compacts else None)

    def _stall(self) -> None:
        self.stalled ^= {self._world.names[0]}
        self._world.stats["tables that hung"] += 1

    def _hush(self) -> None:
        """No records come for one of the tables, or they do again; not if they would show that it was restored."""
        broker = self._world.broker
        if not self.catalog_went_back:
            broker.quiet = self._world.rng.randrange(len(self._world.names)) if broker.quiet is None else None

    def _copy_tables(self) -> None:
        if self._world.broker.quiet is not None:
            return  # a copy that a table has not outgrown is none
        self._older_tables = {
            name: (list(table.snapshots), table.expired, dict(table.properties), table.sequence)
            for name, table in self._world.tables.items()
        }

    def _restore_tables(self) -> None:
        """The catalog is put back from a backup. Nobody tells the sink; it has to notice, and to call for an operator."""
        world = self._world
        if self.catalog_went_back:
            return
        changed = [name for name, older in self._older_tables.items() if older[-1] < world.tables[name].sequence]
        names, quiet = sorted(changed), world.broker.quiet
        if names and world.chance(0.8):
            names = [world.rng.choice(names)] if quiet is None else [n for n in names if n == world.names[quiet]]
        if not names:
            return
        for name in names:
            snapshots, expired, properties, sequence = self._older_tables[name]
            table = world.tables[name]
            before = set(table.rows)
            table.snapshots[:], table.expired, table.properties, table.sequence = (
                snapshots,
                expired,
                properties,
                sequence,
            )
            table.back_to(len(snapshots), world.files)
            table.left = {}
            world.checks.went_back(name)
            self.taken[name] = before - set(table.rows)
            self.catalog_went_back = True
        self._older_tables = {}
        world.stats["catalogs restored"] += 1

    def call_operator(self) -> None:
        """A worker has ended with a loss that it names."""
        people = self._world.people
        is_lost = self.catalog_went_back or people.is_renamed or any(people.discarded.values())
        if is_lost and self.operator_in is None:
            self.operator_in = self._world.rng.randint(0, 30)

    # The store

    def _copy_store(self) -> None:
        store = self._world.store
        self._older_store = replace(
            store,
            log=[list(shard) for shard in store.log],
            positions=dict(store.positions),
            topic_ids=dict(store.topic_ids),
            saved=dict(store.saved),
        )

    def _lose_store(self) -> None:
        """The store comes back empty, or as it was a while ago, under processes that go on.

        Only where they start over by chance do they notice: the guards are not part of this. Offsets are not given out
        again, as with clocks; an emptied store has a new identity.
        """
        world = self._world
        if self.operator_in is not None:
            return
        self.operator_in = world.rng.randint(0, 60)
        store, older, ends = world.store, self._older_store, world.store.ends()
        if older is None or world.chance(0.3):
            store.log, store.positions, store.topic_ids, store.saved = [[] for _ in store.log], {}, {}, {}
            store.identity = f"emptied at {world.now}"
            for member in world.members.values():
                member.die()
        else:
            store.positions, store.topic_ids, store.saved = older.positions, older.topic_ids, older.saved
            store.identity = older.identity
            store.log = [shard + [None] * (ends[p] - len(shard)) for p, shard in enumerate(older.log)]
        self._older_store = None
        world.stats["store lost"] += 1

    # The operator

    def recover(self) -> None:
        """An operator stops the sink and recovers it, as ``calving recover`` does. A worker may have been overlooked: the
        group had forgotten it, and it lives.

        A store that goes back to before that has another identity than the tables were marked with: the guards see it.
        """
        world = self._world
        self.operator_in = self._older_store = None
        self.catalog_went_back, self._older_tables = False, {}
        overlooked = self._overlooked() if world.chance(world.odds.zombies) else None
        for name, member in world.members.items():
            member.expecting = {}
            if name == overlooked:
                member.sever()
                world.stats["zombies"] += 1
            else:
                member.die()
        store, topic_ids = world.store, world.broker.topic_ids()
        cursor = MemorySession(store, "operator").follow(replay=True)
        key = world.key(store.identity)
        log = cursor.log
        older = self.older()
        for table in world.tables.values():
            table.supersede(Snapshot(world.next_id(), (), {}, world.now), key.recovered_at(log.identity, log.end))
        states = {".".join(name): table.state() for name, table in world.tables.items()}
        said = {name: world.ledger_of(state) for name, state in states.items()}
        wants_all = world.chance(0.5)  # `calving recover --table`, and not `calving rollback --then reread`
        for table_id in world.people.rolled_back if wants_all else ():
            said[".".join(table_id)] = replace(said[".".join(table_id)], forgotten={})
        ledgers = {name: ledger.present(topic_ids) for name, ledger in said.items()}
        back = world.people.to_bring_back({name: ledgers[".".join(name)] for name in world.tables})
        replaced = {name for name in older - back if ledgers[".".join(name)].gone}
        again = [".".join(name) for name in back | older]
        waiting = [name for name in self._still_awaiting(cursor, key, ledgers) if name not in again]
        complete = world.chance(0.5)
        plan = world.recovery(ledgers, again, waiting, complete=complete)
        for table_id, table in world.tables.items():
            for name, left in (
                (key.holding, plan.held[".".join(table_id)]),
                (key.of_table(AWAITED_OFFSETS), plan.awaited.get(".".join(table_id), {})),
            ):
                table.properties[name] = encode_coverage({world.known_as(tp): spans for tp, spans in left.items()})
        cursor.rewind({tp: plan.positions.get(tp, world.broker.begins[tp]) for tp in world.broker.content})
        former = world.people.former if world.people.is_renamed else None
        for table_id, table in world.tables.items():
            if former is not None:
                line = table.state().line
                changes = world.taken_over(key, line, table.properties, former.owner, table.sequence)
                table.properties |= changes
            if table_id in back | replaced:
                head, ledger = table.state().line.head, said[".".join(table_id)]
                table.properties |= brought_back(key, ledger, table.properties, head.place if head else None)
            table.properties |= {key.of_table(LOG_ID): store.identity, key.of_table(key.offsets): "{}"}
            table.properties |= key.recovered_at(store.identity, log.end)
        world.log_ids = dict.fromkeys(store.positions, store.identity)
        world.checks.keep_landed()
        world.people.again |= set().union(*self.taken.values())
        self.taken = {}
        world.people.brought_back(back, forgotten=wants_all)
        world.people.brought_back(replaced, forgotten=False)
        world.people.end_statements()
        # Of a partition that is read from offset 0 on the log tells nothing, once somebody has moved its position.
        world.strangers.recovered({tp for tp, at in plan.positions.items() if at}, complete=complete)
        world.people.is_renamed = False

    def _still_awaiting(self, cursor: Cursor, key: LedgerKey, ledgers: Mapping[str, Ledger]) -> list[str]:
        """The tables for which the last recovery has read again only in part."""
        world, buffer = self._world, Buffer(cursor.log.start)
        for entry in cursor.read(0):
            buffer.hear(entry)
        topic_ids, settled = world.broker.topic_ids(), buffer.progress().settled
        found = []
        for name, table in world.tables.items():
            awaited = decode_coverage(table.properties.get(key.of_table(AWAITED_OFFSETS), "{}"))
            ledger, now = ledgers[".".join(name)], present(settled, topic_ids)
            if world.still_awaited(present(awaited, topic_ids), ledger, now, world.broker.begins):
                found.append(".".join(name))
        world.stats["recovered before the last recovery had ended"] += bool(found)
        return found

    def older(self) -> set[TableId]:
        """The tables that show an older state than the control log."""
        marks, store = self._world.marks(), self._world.store
        for p, entries in enumerate(store.log):
            for entry in filter(None, entries[store.saved.get(p, 0) :]):
                for table, mark in entry.attached.marks.items():
                    marks.note(table, mark)
        key = self._world.key(store.identity)
        return marks.older({n: self._world.mark_of(table.state(), key) for n, table in self._world.tables.items()})

    def _overlooked(self) -> str:
        members = self._world.members
        return self._world.rng.choice([n for n, m in members.items() if m.is_coordinating] or sorted(members))
