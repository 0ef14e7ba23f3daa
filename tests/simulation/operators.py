"""Deliberate acts of people on a sink and its tables: rename it, drop tables and recreate them, roll tables back; and
the commands that lead on from there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from calving.backend.memory import MemorySession
from calving.cli.release import Stale
from calving.errors import CalvingError, ConfigError
from calving.iceberg.parking import ParkedCommit, Parking
from calving.model.events import CommitComplete, DataWritten, TableId, TableReference
from calving.protocol.ledger import Ledger
from calving.protocol.ledger_key import LedgerKey
from calving.protocol.recovery import mind_order
from calving.protocol.rollback import Line
from calving.runtime.names import check_logs, check_names_kept
from calving.runtime.preflight import TableRecord, former_names, others_of
from tests.simulation.broker import Record
from tests.simulation.checks import Violation, covers
from tests.simulation.members import Crash
from tests.simulation.mutations import Row
from tests.simulation.tables import Seen, SimStorage, SimTable, Snapshot

if TYPE_CHECKING:
    from tests.simulation.world import World


KEPT = 25
"""Nobody expires snapshots of a branch that are younger."""
_FORWARD = 0.25
"""How likely a head that is moved back is moved forward again later."""


@dataclass(frozen=True)
class _Statement:
    """The table as it was at the beginning, and what rollbacks had taken away from it then."""

    table: SimTable
    taken: Set[Record]
    unanswered: Set[Record]

    @staticmethod
    def begun(table: SimTable, taken: Iterable[Record], unanswered: Iterable[Record]) -> _Statement:
        copy = replace(
            table,
            snapshots=list(table.snapshots),
            properties=dict(table.properties),
            left=dict(table.left),
            rows=Counter(table.rows),
        )
        return _Statement(copy, frozenset(taken), frozenset(unanswered))


class Operators:
    def __init__(self, world: World) -> None:
        self._world = world
        self.former: LedgerKey | None = None
        """The name that the sink had before."""
        self.is_renamed = False
        """And nobody has recovered the sink since."""
        self.rolled_back: set[TableId] = set()
        """Tables that are to have everything again at the next recovery."""
        self.taken: dict[TableId, set[Record]] = {}
        """The rows that rollbacks have taken away for good."""
        self.unanswered: dict[TableId, set[Record]] = {}
        """The rows that rollbacks have taken away, and of which nobody has said what becomes of them."""
        self.written_for: dict[str, int] = {}
        """Which table each file was written for, by the table's identity."""
        self.again: set[Record] = set()
        """The offsets that a rollback took away, and that are read again: other tables know them as settled."""
        self.recreated: set[TableId] = set()
        self._discarded: set[str] = set()
        """Files that operators have released."""
        self._abandoned: dict[TableId, tuple[int, list[Snapshot]]] = {}
        """Of tables that were rolled back, and whose heads will be moved forward again: their ids and their snapshots
        before.
        """

        self.discarded: dict[TableId, set[Record]] = {}
        """The rows of commits that a replacement of the table has discarded, as long as the table does not say so: they
        come again with their entries, or the table will tell that they are gone.
        """
        self._statements: dict[TableId, _Statement] = {}
        """CREATE OR REPLACE TABLE statements that run."""

    # Names

    def rename(self) -> None:
        """The sink is stopped, and started with another group or control topic."""
        world = self._world
        if self.former is not None:
            return
        for member in world.members.values():
            member.die()
        self.former = world.key("")
        self.end_statements()
        store = world.store
        store.log, store.saved, store.identity = [[] for _ in store.log], {}, "renamed"
        if world.chance(0.5):
            world.group = "connect-other"
            for stored in (store.positions, store.topic_ids, world.log_ids):
                stored.clear()
        else:
            world.control_topic = "another-control"
        said = (self.former.read(table.state().line, table.properties) for table in world.tables.values())
        self.is_renamed = bool(store.positions) or any(any(ledger.source.values()) for ledger in said)
        if not self.is_renamed:
            world.checks.keep_landed()  # all starts again, and nothing is in the tables yet
        world.stats["renamed"] += 1

    def guard(self) -> None:
        """A worker's checks of names before it starts.

        :raises DataLossError: the sink had another name before.
        """
        world = self._world
        every = frozenset(world.broker.content)
        own = (world.control_topic, world.group)
        found = {
            ".".join(name): TableRecord(
                world.key("").read(Line(()), {}),
                None,
                {},
                others_of(table.properties, (), [".".join(own)]),
                world.mark_of(table.state(), world.key("")),
                {},
            )
            for name, table in world.tables.items()
        }
        stored = world.store.positions
        check_names_kept(*own, former_names(found, every, world.broker.topic_ids()), stored, unknown=False)
        check_logs(*own, world.store.identity, world.log_ids, stored)

    # Tables

    def recreate_table(self) -> None:
        """A table is dropped and created again; what was in it is gone, and its user knows."""
        world = self._world
        name = world.rng.choice(world.names)
        landed = {path for s in world.tables[name].snapshots for path in s.files}
        world.checks.discard(landed)
        world.tables[name] = world.table(world.next_id())
        self.recreated.add(name)
        world.stats["tables recreated"] += 1

    def _waiting(self) -> set[TableId]:
        """Tables with files that wait, parked or not, for the table as it was before."""
        log = [(p, o, e) for p, entries in enumerate(self._world.store.log) for o, e in enumerate(entries) if e]
        released = {place for *_, entry in log for place in entry.attached.released}
        events = [e.event for p, o, e in log if o >= self._saved(p) and (p, o) not in released]
        events += [e.event for found in self._parked() for commit in found for e in commit.entries]
        return {e.table.identifier for e in events if isinstance(e, DataWritten) and self._is_former(e.table)}

    def _saved(self, partition: int) -> int:
        return self._world.store.saved.get(partition, 0)

    def _is_former(self, table: TableReference) -> bool:
        world = self._world
        return table.table_uuid != world.uuid(world.tables[table.identifier].uuid)

    def _parked(self) -> Iterator[Iterable[ParkedCommit]]:
        """As the last CommitComplete says, and the files that it names."""
        parking = Parking(Seen(self._world))
        last = (e for e in reversed(self._world.store.log[0]) if e and isinstance(e.event, CommitComplete))
        said = next(last, None)
        return (parking.commits(table, parked) for table, parked in (said.attached.parked if said else {}).items())

    def release(self) -> None:
        """As ``calving release`` does, while the sink runs."""
        if self.recreated:
            for table in sorted(self._waiting()):
                self._release(table)

    def _release(self, table: TableId) -> None:
        world = self._world
        try:
            world.release(
                MemorySession(world.store, "operator").follow(replay=True),
                world.parking(SimStorage(world), lambda: str(world.next_id())),
                [table],
                world.fresh_id(),
                lambda name: world.uuid(world.tables[name].uuid),
                self._written,
            )
        except (Crash, CalvingError) as error:
            world.stats[f"release: {type(error).__name__}"] += 1
            return
        now = world.tables[table].uuid
        stale = {path for path in self._released if self.written_for[path] != now}
        if (again := stale & self._discarded) and not world.stats["store lost"]:
            raise Violation(f"C4: {len(again)} files that were released have to be released again")
        self._discarded |= stale
        world.checks.discard(stale)
        world.stats["released"] += 1

    def _written(self, released: Stale) -> None:
        events = [e.event for entries in released.values() for e in entries]
        self._released = {f.file_path for e in events if isinstance(e, DataWritten) for f in e.data_files}

    def roll_back(self) -> None:
        """The head of a table is an older snapshot. Its user wants it so, or has the sink bring back what it took."""
        world = self._world
        name = world.rng.choice(world.names)
        table, key = world.tables[name], world.key("")
        good = [i for i in range(1, len(table.snapshots)) if i > table.expired]
        if not good or world.accidents.operator_in is not None:
            return
        uuid, abandoned = self._abandoned.pop(name, (0, []))
        if uuid == table.uuid:
            self.lead(name, abandoned)
            world.stats["moved forward again"] += 1
            return
        if world.chance(_FORWARD):
            self._abandoned[name] = table.uuid, list(table.snapshots)
        count = world.rng.choice([*good[-6:], *good[:2]])
        is_own = any(key.offsets in s.summary for s in table.snapshots[table.expired : count])
        self.lead(name, table.snapshots[:count])
        if world.chance(0.5):
            self.rolled_back.add(name)
            world.accidents.operator_in = world.rng.randint(0, 30)
        world.stats["rolled back" if is_own else "rolled back to another's"] += 1

    def lead(self, name: TableId, snapshots: Sequence[Snapshot]) -> None:
        """The branch is this line of snapshots from now on."""
        world, table, checks = self._world, self._world.tables[name], self._world.checks
        files, rows = {path for s in table.snapshots for path in s.files}, set(table.rows)
        table.lead_to(snapshots, world.files)
        files_now = {path for s in snapshots for path in s.files}
        taken, back = rows - set(table.rows), set(table.rows) - rows
        checks.discard(files - files_now)
        checks.files_of |= dict.fromkeys(files_now - files, name)
        checks.forgiven -= back
        checks.went_back(name)
        self.taken[name] = self.taken.get(name, set()) - back | taken
        self.unanswered[name] = self.unanswered.get(name, set()) - back | taken
        self.again -= taken

    def replace_table(self) -> None:
        """A CREATE OR REPLACE TABLE statement begins, or ends. What the sink has committed meanwhile is discarded."""
        world = self._world
        name = world.rng.choice(world.names)
        table, statement = world.tables[name], self._statements.pop(name, None)
        if world.is_upset or table.broken:
            return
        if statement is None or statement.table.uuid != table.uuid:
            self._statements[name] = _Statement.begun(table, self.taken.get(name, ()), self.unanswered.get(name, ()))
            return
        live = frozenset[Row]() if name in world.mutation_tables else None
        first = Snapshot(world.next_id(), (), {}, world.now, live) if world.chance(0.7) else None
        before, landed = set(table.rows), [path for s in table.snapshots for path in s.files]
        table.replace(statement.table, first)
        taken = set(statement.table.rows)
        known = taken | statement.taken
        lost = before | self.taken.get(name, set()) | self.discarded.get(name, set())
        self.discarded[name] = lost - known
        self.taken[name], self.unanswered[name] = known, taken | statement.unanswered
        self._abandoned.pop(name, None)
        self.again -= lost
        world.checks.discard(path for path in landed if known.issuperset(world.files[path]))
        world.checks.went_back(name)
        world.stats["replaced by others"] += bool(taken)
        world.stats["commits discarded"] += bool(before - taken)

    def end_statements(self) -> None:
        """All of them are cancelled."""
        self._statements.clear()
        for name in [*self.discarded]:
            self.again |= self.discarded.pop(name)

    def told(self, name: TableId, key: LedgerKey) -> None:
        """A table says what it has lost by a replacement."""
        world = self._world
        state = world.tables[name].state()
        gone = key.read(state.line, state.properties).gone
        lost = {r for r in self.discarded.pop(name, set()) if covers(gone.get(world.known_as(r.tp), ()), r.offset)}
        self.taken[name] = self.taken.get(name, set()) | lost
        self.unanswered[name] = self.unanswered.get(name, set()) | lost
        world.checks.discard(
            [path for path, at in world.checks.files_of.items() if at == name and lost & {*world.files[path]}]
        )

    def maintain(self) -> None:
        """As ``calving maintain`` does: what is old expires, also snapshots of no branch."""
        world = self._world
        name = world.rng.choice(world.names)
        table = world.tables[name]
        if table.broken or not world.is_to_be_maintained(world.ledger_of(table.state())):
            return
        unanswered = self.unanswered.get(name, set())
        lost = [
            i for i, each in table.left.items() for path in each.snapshot.files if unanswered & {*world.files[path]}
        ]
        if lost:
            raise Violation(f"R12: snapshots {lost} of {name} expire, and nobody has answered for their records")
        table.expired = max(table.expired, sum(s.at < world.now - KEPT for s in table.snapshots[:-1]))
        table.left = {}
        world.stats["maintained"] += 1

    def to_bring_back(self, ledgers: Mapping[TableId, Ledger]) -> set[TableId]:
        """The tables that can have everything again. The others stay as they are, and the command says so."""
        return {name for name in self.rolled_back if self._has_more(name, ledgers[name])}

    def _has_more(self, name: TableId, ledger: Ledger) -> bool:
        try:
            mind_order([".".join(name)] if name in self._world.mutation_tables else [], {".".join(name): ledger})
        except ConfigError:
            self._world.stats["rolled back, changed since"] += 1
            return False
        return ledger.doubt is None

    def brought_back(self, names: Iterable[TableId], *, forgotten: bool) -> None:
        """A recovery has had these tables read everything again; what was ``forgotten``, too, or not."""
        for name in names:
            unanswered, taken = self.unanswered.pop(name, set()), self.taken.pop(name, set())
            self.again |= taken if forgotten else unanswered
            if not forgotten:
                self.taken[name] = taken - unanswered
                self._world.stats["forgotten records stay away"] += bool(self.taken[name])
            self._abandoned.pop(
                name, None
            )  # while its records are read again, nobody moves the head to the former ones
        self._world.checks.forgiven -= self.again
        self.rolled_back = set()
