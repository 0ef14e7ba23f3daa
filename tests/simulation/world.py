"""The world of the simulation: three worker processes over a memory backend, two tables, and a seed.

The loops, machines, ledger and commit loop are the product's own; around them every service call may fail before or
after it takes effect, or hang while the others go on; every process may die there, and a process may be expelled and not
notice. What else happens is up to the world's theme. What must hold is in ``checks``.

One seed: ``python -m tests.simulation.run --seed 17``.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar
from uuid import UUID

from calving.backend.memory import MemoryCursor, MemoryStore
from calving.cli.release import discard
from calving.errors import CalvingError, UnavailableError
from calving.iceberg.locations import refuse_disputed, refuse_other_settings
from calving.iceberg.parking import ParkedCommit, Parking
from calving.model.events import Envelope, TableFiles, TableId, TableReference
from calving.model.files import DataFile, FileContent
from calving.model.forms import StoredForm
from calving.model.offsets import Coverage, Spans, Topic, TopicPartition, decode_coverage, within
from calving.protocol.answers import abandoned, way_forward
from calving.protocol.commit import CommitLoop
from calving.protocol.coordinator import Coordinator
from calving.protocol.effects import CommitTables
from calving.protocol.ledger import Ledger, SourceProgress
from calving.protocol.ledger_key import LedgerKey
from calving.protocol.ledger_updates import committed, looked, of_both_names, replaced, rolled_back, taken_over
from calving.protocol.recovery import recovery, still_awaited
from calving.protocol.rollback import Marks, RolledBack
from calving.protocol.worker import BatchOutcome, WorkerMachine
from calving.runtime.coordinator import CoordinatorLoop
from calving.runtime.policy import SourcePolicy
from calving.runtime.worker import WorkerLoop
from calving.source.start import EARLIEST
from tests.simulation.accidents import Accidents
from tests.simulation.answers import Answers
from tests.simulation.broker import Broker, Record
from tests.simulation.checks import Checks
from tests.simulation.compactions import Compaction, Compactions
from tests.simulation.ending import Ending
from tests.simulation.members import INTERVALS, Crash, Member, SimSession
from tests.simulation.mutations import Changes, Rows, changes, inserts
from tests.simulation.odds import THEMES, TURNS
from tests.simulation.operators import Operators
from tests.simulation.strangers import Strangers
from tests.simulation.tables import Loaded, SimCommitter, SimTable, SimTarget, Snapshot
from tests.simulation.versions import ANY_FORM, Version, Versions

_STARTING_OVER = ("truncated", "truncated while a table fails", "topic without identity")


class World:
    """``run()`` raises ``Violation``, or returns. Mutants replace the class attributes or override the hooks."""

    theme: ClassVar[str | None] = None
    """By the seed, if it is not given."""
    first_seed: ClassVar[int] = 0
    """Of a broken rule that few seeds notice: the one to begin with."""
    worker = WorkerMachine
    worker_loop = WorkerLoop
    coordinator = Coordinator
    coordinator_loop = CoordinatorLoop
    session = SimSession
    target = SimTarget
    parking = Parking
    table = SimTable
    policy = SourcePolicy(EARLIEST, on_data_loss="skip", bounds_seconds=2)
    ledger_key = LedgerKey
    committed = staticmethod(committed)
    looked = staticmethod(looked)
    rolled_back = staticmethod(rolled_back)
    replaced = staticmethod(replaced)
    taken_over = staticmethod(taken_over)
    mark_of = staticmethod(Loaded.mark)
    abandoned = staticmethod(abandoned)
    way_forward = staticmethod(way_forward)
    stops = staticmethod(RolledBack.stops)
    recovery = staticmethod(recovery)
    still_awaited = staticmethod(still_awaited)
    marks = Marks
    release = staticmethod(discard)
    operators: type[Operators] = Operators
    strangers_of: type[Strangers] = Strangers
    committer = SimCommitter
    intervals = INTERVALS
    park_behind = 10
    eagerness = 0.7
    """How often a coordinator gets all that is there of a partition of the control log."""
    names: tuple[TableId, ...] = (("db", "t0"), ("db", "t1"))
    mutates: ClassVar[bool | None] = None
    """Whether the last table is a mutation table; by the seed, if it is not given."""
    changes_of = staticmethod(changes)
    refuse_other_settings = staticmethod(refuse_other_settings)
    refuse_disputed = staticmethod(refuse_disputed)
    digest = staticmethod(str.upper)
    """Of the settings of a member."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        themes = list(THEMES)
        theme = self.theme or themes[seed % len(themes)]
        seed //= 1 if self.theme else len(themes)
        self.odds = self.odds_of_theme = THEMES[theme]
        self.now = 0.0
        self.fences_by_claim = seed % 5 < 3
        self.names_leaders = seed % 4 == 3
        self.asks = seed % 4 == 1
        """Whether workers ask for cycles."""
        """Whether coordinators name themselves. One of an early version does not, so its successor knows no workers."""
        self.broker = Broker(self.rng, partitions=4, knows_ids=theme != "topic without identity")
        self.store = MemoryStore(
            partitions=1 + seed % 3 if theme != TURNS else 2 + seed % 2,
            fences_coordinators=seed % 2 == 0
            or max(self.odds.zombies, self.odds.drops, self.odds.breakage, self.odds.moves) > 0,
            is_current=self.broker.is_current,
        )
        if seed % 3 == 0:  # milder weather, in which cycles do complete and leaders live long
            odds = self.odds
            self.odds = replace(odds, crashes=odds.crashes / 5, faults=odds.faults / 5, expulsions=odds.expulsions / 6)
            self.odds = replace(self.odds, coups=odds.coups / 10)
            self.broker.late_arrival = 0.9
        self.control_topic, self.group = "control", "connect-sim"
        self._ids = 0
        self.tables = {name: self.table(self.next_id()) for name in self.names}
        for table in self.tables.values():
            if self.chance(self.odds.backfills):
                table.append(Snapshot(self.next_id(), (), {}, self.now), {})
        self.passed_by: set[Record] = set()
        """Records that some batch left out because their table held them: what it held may be cleared while it runs."""
        self.files: dict[str, tuple[Record, ...]] = {}
        self.changes: dict[str, Changes] = {}
        """By data file and by key file of a mutation table."""
        self.plain: set[str] = set()
        """The data files of it that a member wrote whose settings append."""
        self.inserts_append = theme == TURNS
        """Whether an insert deletes no row: then the files of a publication may delete none."""
        # Where offsets start over, only a control log of one partition tells what came first.
        is_told = theme not in _STARTING_OVER or self.store.partitions == 1
        mutates = self.mutates or (self.mutates is None and seed % 4 in (1, 2) and is_told) or theme == TURNS
        self.mutation_tables = frozenset(self.names[-1:] if mutates else ())
        if mutates and seed % 4 == 1:
            self.odds = replace(self.odds, stuck=0)
        self.stopping = frozenset(self.names[-1:] if seed % 2 == 1 else ())
        """Tables that take nothing after a rollback until somebody has answered."""
        self.skipped: Counter[TopicPartition] = Counter()
        self.stats: Counter[str] = Counter()
        self.expected_at: dict[UUID, frozenset[TopicPartition]] = {}
        self.started_at: dict[UUID, float] = {}
        self.completed: list[UUID] = []
        self.stored: dict[str, bytes] = {}
        self.veils: dict[int, int] = {}
        """Where an open transaction hides the rest of a partition of the control log."""
        self.log_ids: dict[TopicPartition, str] = {}
        """Which control log each stored position belongs to."""
        self.checks, self.accidents, self.people = Checks(self), Accidents(self), self.operators(self)
        self.answers, self.compactions = Answers(self), Compactions(self)
        self.strangers = self.strangers_of(self)
        self.versions = Versions(self)
        self._disturbed = False
        self._ignorant = 0
        """How often in a row the broker has not known of topics that it has."""
        self.members = {name: Member(self, name) for name in "abc"}
        self.stepping = self.members["a"]

    # What can go wrong

    def chance(self, probability: float) -> bool:
        return probability > 0 and self.rng.random() < probability

    def hazard(self) -> None:
        if self.chance(self.odds.crashes):
            raise Crash

    def call(self, name: str) -> None:
        """Somebody calls a service. It may hang: then the others go on, and whoever waits may be ended meanwhile."""
        if self._disturbed or not self.chance(self.odds.hangs):
            return
        self.stats[f"hung: {name}"] += 1
        self._meanwhile(self.rng.randint(5, 60), self._storm)
        if self.chance(0.3):
            raise Crash

    def fail(self, name: str, error: CalvingError) -> None:
        self.call(name)
        self.hazard()
        if self.chance(self.odds.faults):
            raise error

    def disturb(self) -> None:
        """Others go on while one is in the middle of something; it may be expelled meanwhile."""
        if not self._disturbed:
            self._meanwhile(self.rng.randrange(1, 12), self._weather)

    def _meanwhile(self, steps: int, weather: Callable[[], None]) -> None:
        self._disturbed = True
        try:
            for _ in range(steps):
                weather()
                self.rng.choice(self._bystanders())()
        finally:
            self._disturbed = False

    def _bystanders(self) -> list[Callable[[], None]]:
        others: list[Callable[[], None]] = [m.step for m in self.members.values() if m is not self.stepping]
        return [*others, self.stepping.work] if self.stepping.is_coordinating else others

    def _weather(self) -> None:
        if self.chance(self.odds.expulsions) and self.broker.members:
            self.broker.leave(self.rng.choice(sorted(self.broker.members)))
            self.stats["expelled"] += 1
        if self.chance(self.odds.expulsions):
            table = self.rng.choice(sorted(self.tables))
            self.tables[table].broken = not self.tables[table].broken

    @property
    def is_upset(self) -> bool:
        """Whether something is lost, and no operator has been there yet."""
        return self.accidents.operator_in is not None or self.accidents.catalog_went_back or self.people.is_renamed

    # What the fakes ask of the world

    def next_id(self) -> int:
        self._ids += 1
        return self._ids

    def fresh_id(self) -> UUID:
        commit_id = UUID(int=self.next_id() + 1)
        self.expected_at[commit_id] = frozenset(self.broker.content)
        self.started_at[commit_id] = self.now
        return commit_id

    def key(self, log_id: str) -> LedgerKey:
        return self.ledger_key(self.control_topic, self.group, log_id)

    def in_order(self, parked: Iterable[ParkedCommit], last: ParkedCommit) -> Iterator[ParkedCommit]:
        """Parked commits come first."""
        yield from parked
        yield last

    def progress_of(self, commit: ParkedCommit, now: SourceProgress) -> SourceProgress:
        """What a commit goes by that is parked: what was known at its time, and what has restarted since."""
        return commit.judged_by(now.restarted).progress

    def to_park(self, commit: ParkedCommit) -> tuple[ParkedCommit, tuple[Envelope, ...]]:
        """The entries of a mutation table's commit that are parked, and those that are not."""
        return commit.in_order()

    def is_current(self, cursor: MemoryCursor, fetched: Mapping[int, Sequence[Envelope]]) -> bool:
        """Whether a cursor's reader has all entries of the log. ``fetched``: those that it has not been given."""
        return cursor.is_current and not any(fetched.values())

    def has_read(self, request: CommitTables) -> bool:
        """Whether the leader has read all that is older than what it has read."""
        return request.has_read

    def commit_loop(self, target: SimTarget) -> CommitLoop[Loaded]:
        return CommitLoop(target, target.key, 3, in_order=target.changes_rows or target.minds_order)

    def answered(self, head: Callable[[], None], properties: Callable[[], None]) -> None:
        """The commit of an answer: the head of a table, and what its properties say of it (R8)."""
        head()
        properties()

    def is_to_be_maintained(self, ledger: Ledger) -> bool:
        """Whether ``calving maintain`` may expire snapshots of the table with this ledger (R12)."""
        return RolledBack.of(ledger.unanswered, ledger.doubt) is None

    def has_inputs(self, planned: Loaded, now: Loaded) -> bool:
        """Whether a branch still holds the files that a compaction has rewritten (K3, K14)."""
        return planned.uuid == now.uuid and planned.head in {each.id for each in (*now.expired, *now.snapshots)}

    def ledgers_of_compaction(self, planned: Loaded, now: Loaded) -> Snapshot:
        """The snapshot whose ledgers a compaction copies: the head on which it is committed (K7)."""
        return now.snapshots[-1]

    def compacted_rows(self, compaction: Compaction, live: Rows) -> Rows:
        """The rows of a mutation table after a compaction."""
        return compaction.rows(live)

    def minds(self, version: Version) -> StoredForm:
        """The newest form for which a member of this version does not stop."""
        return version.form if version.tells else ANY_FORM

    def ledger_of(self, state: Loaded) -> Ledger:
        """The table's ledger of the sink; until a recovery has taken the table over, also the one under its former name."""
        key, former = self.key(self.store.identity), self.people.former
        if not self.people.is_renamed or former is None:
            return key.read(state.line, state.properties)
        return of_both_names(key, state.line, state.properties, former.owner)

    def known_as(self, tp: TopicPartition) -> TopicPartition:
        """As ledgers name a partition of the topic that is there now."""
        return within(tp, self.broker.topic_ids().get(tp.topic, ""))

    def left_out(self, name: TableId) -> Coverage:
        """The offsets of the present topic that no batch may write to this table again."""
        held = decode_coverage(self.tables[name].properties.get(self.key("").holding, "{}"))
        return {tp: held.get(self.known_as(tp), ()) for tp in self.broker.content} if held else {}

    def unknown(self, topics: Collection[Topic]) -> Collection[Topic]:
        """The topics that the broker does not know. One that has just started may know none."""
        self.call("topics")
        if self.chance(self.odds.faults):
            raise UnavailableError("no answer")
        self._ignorant = self._ignorant + 1 if self._ignorant < 2 and self.chance(0.3) else 0
        there = {self.known_as(tp).whole for tp in self.broker.content} | {tp.whole for tp in self.broker.content}
        return topics if self._ignorant else [topic for topic in topics if topic not in there]

    def read(self, spans: Spans, *, appends: bool = False) -> BatchOutcome:
        """A record goes to a table by its offset, every seventh is filtered. ``appends``: whether the settings of the
        member say that rows of the mutation table are appended.
        """
        written: dict[TableId, list[Record]] = {}
        latest: dict[TopicPartition, int] = {}
        records = 0
        left_out = {name: self.left_out(name) for name in self.names}
        for tp, span in spans.items():
            found = self.broker.content[tp][slice(*span)]
            if len(found) < span.end - span.start:
                raise UnavailableError(f"{tp} ends before {span.end}")
            for record in found:
                records += 1
                latest[tp] = max(latest.get(tp, 0), record.timestamp)
                name = self.names[record.table]
                out = left_out[name].get(tp, ())
                if any(o.start <= record.offset < o.end for o in out):
                    self.passed_by.add(record)
                elif not record.is_filtered:
                    written.setdefault(name, []).append(record)
        files = {
            TableReference("c", name[:-1], name[-1], self.uuid(self.tables[name].uuid)): self._files_of(
                name, found, appends=appends
            )
            for name, found in written.items()
        }
        return BatchOutcome(files, latest, records, records * 100)

    @staticmethod
    def uuid(number: int) -> UUID:
        return UUID(int=number)

    def _files_of(self, name: TableId, records: list[Record], *, appends: bool) -> list[TableFiles]:
        """Of a mutation table sometimes in two steps, as tasks write them that read whole partitions."""
        if name not in self.mutation_tables or appends:
            file = self._file(records, self.tables[name].uuid)
            if name in self.mutation_tables:
                self.plain.add(file.file_path)
                self.changes[file.file_path] = Changes(frozenset(), frozenset(records))
            return [TableFiles((file,))]
        half = len(records) // 2 if records[0].offset % 3 == 0 else 0
        return [self._files_of_step(name, some) for some in (records[:half], records[half:]) if some]

    def _files_of_step(self, name: TableId, records: list[Record]) -> TableFiles:
        data = self._file(records, self.tables[name].uuid)
        keys = DataFile(f"k{self.next_id()}", "PARQUET", 1, 100, FileContent.EQUALITY_DELETES)
        done = inserts(records) if self.inserts_append else self.changes_of(records)
        self.changes[data.file_path] = self.changes[keys.file_path] = done
        return TableFiles((data,), (keys,) if done.keys else ())

    def _file(self, records: list[Record], table: int) -> DataFile:
        path = f"f{self.next_id()}"
        self.people.written_for[path] = table
        self.files[path] = tuple(records)
        return DataFile(path, "PARQUET", len(records), 100)

    # The run

    def run(self, steps: int = 900) -> None:
        for _ in range(steps):
            self._storm()
            self._step(self.rng.choice(sorted(self.members)))
        Ending(self).run()
        self.strangers.audit()
        self.checks.audit()

    def _storm(self) -> None:
        self.now += 1
        self._weather()
        for tp in sorted(self.broker.content):
            if self.chance(0.15) and self._may_grow(tp):
                self.broker.produce(tp, int(self.now))
        if self.chance(0.006) and len(self.broker.content) < 9:
            self.broker.add_partition()
            self.stats["partitions added"] += 1
        self.accidents.happen()

    def _may_grow(self, tp: TopicPartition) -> bool:
        """Offsets that are given out again beyond what was read look as if nothing had happened; nobody can tell."""
        if tp not in self.broker.reused:
            return True
        reached = max(m.reaches(tp) for m in self.members.values())
        return self.broker.end(tp) >= max(reached, self.store.positions.get(tp, 0))

    def _step(self, name: str) -> None:
        self.stepping = self.members[name]
        self.stepping.step()

    def rounds(self, count: int) -> None:
        for _ in range(count):
            self.now += 1
            for name in sorted(self.members):
                self._step(name)
            if self.accidents.operator_in is not None:
                self.accidents.recover()
            self.people.release()
            self.versions.mend()


def simulate(seed: int, world: Callable[[int], World] = World) -> Counter[str]:
    """Run one seed; its statistics."""
    run = world(seed)
    run.run()
    return run.stats
