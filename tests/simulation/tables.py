"""Tables and their catalog, in memory: it may refuse, lose a request, lose an answer, answer the wrong thing, hang, or
show what was a while ago; others write, expire, roll back.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING
from uuid import UUID

from calving.errors import (
    AlreadyHeldError,
    CommitRefusedError,
    CommitUncertainError,
    OtherSettingsError,
    SupersededError,
    UnansweredRollbackError,
)
from calving.iceberg.parking import ParkedCommit
from calving.model.events import DataWritten, Envelope, TableId, TableReference
from calving.model.marks import TableMark
from calving.model.tables import OnRollback, SnapshotPlace
from calving.protocol.commit import Admitted
from calving.protocol.coordinator import Committed, Failed
from calving.protocol.effects import CommitTables
from calving.protocol.ledger_key import LedgerKey
from calving.protocol.replacement import NO_LOG, LogExtent, table_mark
from calving.protocol.rollback import Ancestor, Line, RolledBack
from tests.simulation.broker import Record
from tests.simulation.mutations import Rows, appended, resolved
from tests.simulation.versions import SILENT, Settings

if TYPE_CHECKING:
    from tests.simulation.world import World


_LOOKS = 0.3
"""How likely a leader looks at a table before a cycle's commits, where heads go back: elsewhere a look finds nothing."""


@dataclass(frozen=True)
class Snapshot:
    id: int
    files: tuple[str, ...]
    summary: Mapping[str, str]
    at: float
    live: Rows | None = None
    """The rows of a mutation table; None: as before."""
    number: int = 0
    """The sequence number."""
    compacts: int | None = None
    """If it replaces files: those of this snapshot and of all below it."""

    @property
    def place(self) -> SnapshotPlace:
        return SnapshotPlace(self.id, self.number)


@dataclass(frozen=True)
class Abandoned:
    """A snapshot that a rollback has removed from its branch, and that has not expired."""

    snapshot: Snapshot
    parent: int | None

    @property
    def ancestor(self) -> Ancestor:
        return Ancestor(self.snapshot.place, self.parent, self.snapshot.summary)


@dataclass(frozen=True)
class Loaded:
    """A table as it was at one moment."""

    uuid: int
    snapshots: tuple[Snapshot, ...]
    """The ancestry of the head as far as it has not expired, oldest first."""
    properties: Mapping[str, str]
    sequence: int
    live: Rows = frozenset()
    """The rows of a mutation table."""
    expired: tuple[Snapshot, ...] = ()
    """The rest of the ancestry, oldest first."""
    left: Mapping[int, Abandoned] = field(default_factory=dict)
    """Snapshots of no branch."""

    @property
    def line(self) -> Line:
        shown = [*self.expired[-1:], *self.snapshots]
        found = [Ancestor(s.place, below.id, s.summary) for below, s in pairwise(shown)]
        if not self.expired and shown:
            found.insert(0, Ancestor(shown[0].place, None, shown[0].summary))
        by_id = {each.place.id: each for each in found} | {i: each.ancestor for i, each in self.left.items()}
        return Line(found[::-1], has_files_of=self._has_files_of, snapshot=by_id.get)

    def mark(self, key: LedgerKey) -> TableMark:
        """What the sink remembers of it."""
        every = [*self.snapshots, *(each.snapshot for each in self.left.values())]
        newest_first = sorted(every, key=lambda each: each.number, reverse=True)
        return table_mark(key, str(self.uuid), self.sequence, self.properties, (each.summary for each in newest_first))

    def _has_files_of(self, place: SnapshotPlace) -> bool:
        every = [*self.expired, *self.snapshots]
        at = next((i for i, s in enumerate(every) if s.id == place.id), None)
        replaced = {s.compacts for s in every} - {None}
        return at is not None and bool(every[at].files) and not any(s.id in replaced for s in every[at:])

    @property
    def head(self) -> int | None:
        return self.snapshots[-1].id if self.snapshots else None


@dataclass
class SimTable:
    uuid: int
    snapshots: list[Snapshot] = field(default_factory=list)
    """The ancestry of the head, oldest first, also what has expired: its files stay."""
    expired: int = 0
    """How many of these; never the head."""
    properties: dict[str, str] = field(default_factory=dict)
    sequence: int = 0
    """Grows with every change, and is not taken back by a rollback."""
    rows: Counter[Record] = field(default_factory=Counter)
    discarded: set[int] = field(default_factory=set)
    broken: bool = False
    left: dict[int, Abandoned] = field(default_factory=dict)
    """The snapshots that rollbacks have removed, and that have not expired, by id."""
    before: deque[Loaded] = field(default_factory=lambda: deque(maxlen=4))
    """The states that a replica may still show."""

    def state(self) -> Loaded:
        shown, expired = tuple(self.snapshots[self.expired :]), tuple(self.snapshots[: self.expired])
        return Loaded(self.uuid, shown, dict(self.properties), self.sequence, self.live, expired, dict(self.left))

    @property
    def head(self) -> int | None:
        return self.snapshots[-1].id if self.snapshots else None

    @property
    def live(self) -> Rows:
        """The rows of a mutation table."""
        return next((s.live for s in reversed(self.snapshots) if s.live is not None), frozenset())

    def append(self, snapshot: Snapshot, files: Mapping[str, tuple[Record, ...]]) -> None:
        self.before.append(self.state())
        self.sequence += 1
        self.snapshots.append(replace(snapshot, number=self.sequence))
        for path in snapshot.files:
            self.rows.update(files[path])

    def supersede(self, snapshot: Snapshot, properties: Mapping[str, str]) -> None:
        """As a recovery does: what was loaded before can no longer be committed to."""
        self.append(snapshot, {})
        self.properties |= properties

    def back_to(self, count: int, files: Mapping[str, tuple[Record, ...]]) -> None:
        """The head is the snapshot that was the ``count``-th."""
        self.lead_to(self.snapshots[:count], files)

    def lead_to(self, snapshots: Iterable[Snapshot], files: Mapping[str, tuple[Record, ...]]) -> None:
        """The head is the last of these snapshots. What both lines share has expired as before."""
        line = list(snapshots)
        shared = sum(1 for old, new in zip(self.snapshots, line, strict=False) if old.id == new.id)
        for below, snapshot in pairwise([None, *self.snapshots]):
            if snapshot is not None and snapshot not in self.snapshots[: max(shared, self.expired)]:
                self.left[snapshot.id] = Abandoned(snapshot, below.id if below is not None else None)
        self.left = {i: each for i, each in self.left.items() if i not in {s.id for s in line}}
        self.expired = min(self.expired, shared)
        self.snapshots[:] = line
        self.rows = Counter(r for s in self.snapshots for path in s.files for r in files[path])
        self.before.clear()

    def replace(self, begun: SimTable, snapshot: Snapshot | None) -> None:
        """As CREATE OR REPLACE TABLE does where the catalog swaps the whole metadata: the table is what it was when the
        statement began, and begins again, with this snapshot.
        """
        for below, old in pairwise([None, *begun.snapshots]):
            if old is not None and old not in begun.snapshots[: begun.expired]:
                begun.left[old.id] = Abandoned(old, below.id if below is not None else None)
        self.snapshots, self.expired, self.left = [], 0, dict(begun.left)
        self.properties, self.sequence = dict(begun.properties), begun.sequence
        self.rows = Counter()
        if snapshot is not None:
            self.append(snapshot, {})
        self.before.clear()


class WentBack(Exception):
    """The catalog shows a table as it was before it was last seen."""


class SimTarget:
    """One table for one commit."""

    version = SILENT
    """Of the leader."""
    settings = Settings()
    heard: Collection[str] = ()
    """Who has surely answered in its cycle."""
    is_complete = True
    """Whether all partitions may have answered in its cycle."""
    extent = NO_LOG
    """What its leader has read of the log."""
    minds_order = False
    """Whether the order of the entries counts for their workers."""

    def __init__(
        self, world: World, name: TableId, key: LedgerKey, uuids: frozenset[int], mark: TableMark | None
    ) -> None:
        self.world, self.name, self.key, self._uuids, self.mark = world, name, key, uuids, mark
        self._attempt = 0
        self._tried: set[int] = set()
        self._required: int | None = None

    @property
    def table(self) -> SimTable:
        return self.world.tables[self.name]

    @property
    def changes_rows(self) -> bool:
        """Whether records change rows of the table, as the leader's settings say."""
        return self.name in self.world.mutation_tables and not self.settings.appends

    def load(self) -> Loaded:
        world, table = self.world, self.table
        world.call("load")
        if table.broken:
            raise CommitUncertainError("the table cannot be loaded")
        if self._uuids - {table.uuid}:
            raise CommitUncertainError("the table was dropped and recreated")
        found = table.state()
        if table.before and world.chance(world.odds.staleness):
            world.stats["stale loads"] += 1
            found = world.rng.choice(table.before)
        if world.mark_of(found, self.key).is_older_than(self.mark):
            found = table.state()  # a replica that is behind is asked again
        if self.mark is not None and world.mark_of(found, self.key).is_older_than(self.mark):
            found = self._noted(found, self.mark)
        self.mark = world.mark_of(found, self.key)
        return found

    def _noted(self, found: Loaded, before: TableMark) -> Loaded:
        """The table says of itself that it was replaced."""
        world = self.world
        changes = world.replaced(self.key, found.line, found.properties, before, self.extent)
        if not changes:
            raise WentBack(f"{self.name} had {before}, and has {world.mark_of(found, self.key)}")
        world.hazard()
        if (self.table.uuid, self.table.state().head) != (found.uuid, found.head):
            raise CommitRefusedError("the head has moved")
        self.table.properties |= changes
        world.people.told(self.name, self.key)
        world.stats["replacements noted"] += 1
        return self.table.state()

    def attempt(self, state: Loaded, admitted: Admitted) -> int:
        world = self.world
        world.refuse_other_settings(self.name, "sim", admitted.delete_files, changes_rows=self.changes_rows)
        self._mind_rollback(admitted)
        if self.version.tells:
            world.checks.settings(self.name, admitted, self.settings, self.heard, is_complete=self.is_complete)
        admitted = world.versions.read(admitted, self.version)
        self._attempt, self._required = world.next_id(), state.head
        self._tried.add(self._attempt)
        live = self.resolve(state, admitted) if admitted.steps and self.changes_rows else None
        if self.settings.appends and self.name in world.mutation_tables:
            live = appended(state.live, admitted.data_files, world.changes)
        world.call("attempt")
        world.hazard()
        if world.chance(world.odds.interventions):
            world.accidents.recover()
        if world.chance(world.odds.contention):
            self._someone_writes()
        if world.chance(world.odds.contention):
            world.disturb()  # another of our coordinators
        fault = (
            world.rng.choice(["lost request", "lost answer", "false conflict"])
            if world.chance(world.odds.faults)
            else None
        )
        if fault == "lost request":
            raise CommitUncertainError(fault)
        now = self.table.state()
        if (now.head, now.uuid) != (state.head, state.uuid):
            raise CommitRefusedError("the head has moved")
        world.checks.table_commit(self.name, self.key, self._attempt, admitted, state, live)
        self.mark = world.mark_of(self.table.state(), self.key)
        world.hazard()
        if fault == "lost answer":
            raise CommitUncertainError(fault)
        if fault == "false conflict":
            raise CommitRefusedError(fault)
        return self._attempt

    def _mind_rollback(self, admitted: Admitted) -> None:
        before = replace(admitted.ledger, gone=admitted.gone)
        rollback = RolledBack.of(before.unanswered, before.doubt)
        policy: OnRollback = "stop" if self.name in self.world.stopping else "continue"
        if rollback is not None and self.world.stops(rollback, policy):
            self.world.stats["stopped by a rollback"] += 1
            raise UnansweredRollbackError(rollback.text(".".join(self.name)))

    def _someone_writes(self) -> None:
        """Another writer."""
        self.table.append(self.world.accidents.others_snapshot(self.name), self.world.files)

    def resolve(self, state: Loaded, admitted: Admitted) -> Rows:
        """The rows of a mutation table after this commit, found on exactly what was loaded."""
        return resolved(state.live, admitted.steps, self.world.changes)

    def landed(self, state: Loaded) -> int | None:
        return next((s.id for s in reversed(state.snapshots) if s.id in self._tried), None)

    def moved(self, state: Loaded) -> bool:
        return state.head != self._required

    def discard(self) -> None:
        self.table.discarded.add(self._attempt)

    def pause(self, tries: int) -> None:
        pass


class SimStorage:
    """A storage that may fail, or be slow."""

    def __init__(self, world: World) -> None:
        self._world = world

    def write(self, table: TableId, location: str, data: bytes) -> None:
        self._world.fail("storage", CommitUncertainError("not written"))
        self._world.stored[location] = data
        self._world.fail("storage", CommitUncertainError("written, or not"))

    def read(self, table: TableId, location: str) -> bytes:
        self._world.fail("storage", CommitUncertainError("not read"))
        if location not in self._world.stored:
            raise CommitUncertainError(f"there is no {location}")
        return self._world.stored[location]

    def delete(self, table: TableId, location: str) -> None:
        self._world.fail("storage", CommitUncertainError("not deleted"))
        self._world.stored.pop(location, None)


class Seen(SimStorage):
    """For one who only looks."""

    def read(self, table: TableId, location: str) -> bytes:
        return self._world.stored[location]


class SimCommitter:
    """Of one coordinator: it writes under the identity that the control log had when that coordinator opened it."""

    def __init__(self, world: World, key: LedgerKey, on_request: Callable[[CommitTables], None]) -> None:
        self._world, self._key, self._on_request = world, key, on_request
        self._parking = world.parking(SimStorage(world), lambda: str(world.next_id()))
        self.seen = {name: self._look(table) for name, table in world.tables.items() if not table.broken}
        self.version, self.settings = SILENT, Settings()
        """Of its leader."""
        self.heard: Callable[[UUID], Collection[str]] = lambda cycle: ()
        """Who has surely answered in a cycle."""
        self.is_complete: Callable[[UUID], bool] = lambda cycle: True
        """Whether all partitions may have answered in a cycle."""
        self.failing: set[TableId] = set()
        """Tables whose last commit failed."""
        self._late: dict[TableId, CommitTables] = {}
        """Commits that have not come back."""

    def _look(self, table: SimTable) -> TableMark:
        """As the catalog shows it, which may be a replica that is behind."""
        is_behind = bool(table.before) and self._world.chance(self._world.odds.staleness)
        return self._world.mark_of(self._world.rng.choice(table.before) if is_behind else table.state(), self._key)

    def look(self, name: TableId) -> None:
        """As the leader does between its commits (R2a)."""
        world, table = self._world, self._world.tables[name]
        if table.broken:
            return
        stale = bool(table.before) and world.chance(world.odds.staleness)
        state = world.rng.choice(table.before) if stale else table.state()
        changes = world.looked(self._key, state.line, state.properties)
        if changes and world.chance(world.odds.contention):
            world.disturb()
        now = world.tables[name].state()
        if changes and (now.uuid, now.head) == (state.uuid, state.head):
            world.tables[name].properties |= changes
            world.stats["looks that found something"] += 1

    def commit(self, request: CommitTables) -> Iterable[tuple[TableId, Committed | Failed]]:
        for name in self._world.names:
            if self._world.chance(_LOOKS if self._world.odds.rollbacks else 0.0):
                self.look(name)
        self._on_request(request)
        for table in sorted(request.tables, key=lambda _: self._world.rng.random()):
            self._world.hazard()
            if self._world.chance(self._world.odds.contention):
                self._world.disturb()
            outcome = self._in_time(table, request)
            (self.failing.add if isinstance(outcome, Failed) else self.failing.discard)(table)
            yield table, outcome

    def _in_time(self, table: TableId, request: CommitTables) -> Committed | Failed:
        if table in self._world.accidents.stalled:
            self._late.setdefault(table, request)
            return Failed("still committing")
        if table in self._late:  # it ends at last, and nobody waits for it any more
            self._settle(table, self._late.pop(table))
        return self._settle(table, request)

    def _settle(self, table: TableId, request: CommitTables) -> Committed | Failed:
        world = self._world
        last = ParkedCommit(request.tables[table], request.read, request.progress)
        parked, snapshot_id = request.parked.get(table), None
        try:
            self._parking.clear(table, parked)
            mark = self._parking.mark(table, request.marks.get(table))
            for commit in world.in_order(self._parking.commits(table, parked) if parked is not None else (), last):
                uuids = frozenset(
                    int(e.event.table.table_uuid or 0) for e in commit.entries if isinstance(e.event, DataWritten)
                )
                target = world.target(world, table, self._key, uuids, mark)
                target.version, target.settings = self.version, self.settings
                target.heard, target.is_complete = self.heard(request.commit_id), self.is_complete(request.commit_id)
                target.extent = LogExtent(
                    request.read, request.progress.covered, partial(self._waiting, table, request)
                )
                keeps_order = commit.changes_rows or not (world.has_read(request) or commit.files)
                target.minds_order = self.version.tells and keeps_order
                if self.version.tells:
                    world.refuse_disputed(request, table, "sim", commit.entries, self.settings.branch)
                progress = world.progress_of(commit, request.progress)
                done = world.commit_loop(target).settle(commit.entries, commit.read, progress)
                mark, snapshot_id = target.mark, done.snapshot_id or snapshot_id
                self._parking.made(table, commit, mark)
        except WentBack as error:
            return Failed(str(error), lost=True)
        except SupersededError as error:
            return Failed(str(error), lost=True)
        except OtherSettingsError as error:
            world.stats["other settings refused"] += 1
            return Failed(str(error), waits=True)
        except AlreadyHeldError as error:
            world.stats["held already"] += 1
            return self._park(table, last, request, str(error))
        except (CommitRefusedError, CommitUncertainError, UnansweredRollbackError) as error:
            return self._park(table, last, request, str(error))
        if parked is not None:
            self._parking.served(table, parked)
            world.stats["brought back"] += 1
        admitted, reference = done.admitted, TableReference("c", table[:-1], table[-1])
        world.stats["held back"] += bool(admitted.held_back)
        return Committed(reference, snapshot_id, mark, admitted.elsewhere, admitted.held_back)

    def _waiting(self, table: TableId, request: CommitTables) -> Iterable[Envelope]:
        parked = request.parked.get(table)
        for commit in self._parking.commits(table, parked) if parked is not None else ():
            yield from commit.entries
        yield from request.tables[table]

    def _park(self, table: TableId, commit: ParkedCommit, request: CommitTables, reason: str) -> Failed:
        if table not in request.park:
            return Failed(reason)
        held_back: tuple[Envelope, ...] = ()
        is_mutation = table in self._world.mutation_tables and not self.settings.appends
        if not is_mutation and commit.changes_rows:
            return Failed(reason)
        if is_mutation or not self._world.has_read(request):
            commit, held_back = self._world.to_park(commit)
        if not commit.entries:
            return Failed(reason)
        try:
            last = self._parking.park(table, commit, request.parked.get(table))
        except CommitUncertainError:
            return Failed(reason)
        self._world.stats["parked"] += 1
        self._world.stats["parked, in order"] += table in self._world.mutation_tables
        self._world.stats["held back from parking"] += bool(held_back)
        return Failed(reason, parked=last, held_back=held_back)
