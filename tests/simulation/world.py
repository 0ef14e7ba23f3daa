"""The world of the simulation: three worker processes over a memory backend, two tables, and a seed.

The loops, machines, ledger and commit loop are the product's own; around them every service call may fail before or
after it takes effect, every process may die there, and a process may be expelled and not notice. What is checked:

I1  every record below a stored position is counted once: in a published file, or filtered, or reported as lost
I2  every published file is in exactly one snapshot, once its table commits
I3  a table's ledger never goes back
I4  stored positions and published files change together
I5  is what the faults are for
I6  with all components back, everything is committed within two cycles
plus: what a ledger says of the source is true; VTTS holds; a graceful handover drops nothing; the coordinator waits for all partitions; a position found by
reset is stored; tables stay readable.

One seed: ``python -m tests.simulation.run --seed 17``.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from calving.backend.interface import Cursor
from calving.backend.memory import MemoryBackend, MemorySession, MemoryStore
from calving.errors import CalvingError, Fenced, OutcomeUnknown, ProtocolError, Unavailable
from calving.model.coverage import Coverage, decode_coverage, encode_coverage
from calving.model.events import (
    CommitComplete,
    DataComplete,
    DataWritten,
    Envelope,
    Event,
    Publication,
    TableFiles,
    TableId,
    TableMark,
    TableReference,
)
from calving.model.files import DataFile
from calving.model.membership import Claim
from calving.model.offsets import ControlOffsets, SourceOffsets, Spans, TopicPartition
from calving.protocol.commit import AlreadyHeldError, CommitLoop, CommitRefused, CommitUncertain
from calving.protocol.coordinator import Committed, Failed, Pace
from calving.protocol.effects import CommitTables
from calving.protocol.ledger import Admitted, Ledger, LedgerKey
from calving.protocol.recovery import recovery
from calving.protocol.worker import BatchLimits, BatchOutcome
from calving.runtime.coordinator import CoordinatorLoop
from calving.runtime.worker import SourcePolicy, WorkerLoop
from tests.simulation.broker import Broker, SimGroup

TABLES = (TableReference("c", ("db",), "t0"), TableReference("c", ("db",), "t1"))
PACE = Pace(interval=5, timeout=20, invite=7)
Record = tuple[TopicPartition, int]


class Crash(Exception):
    """The process dies here."""


class Violation(AssertionError):
    """A rule is broken. Starts with its name."""


@dataclass
class Snapshot:
    id: int
    files: tuple[str, ...]
    summary: dict[str, str]


@dataclass
class SimTable:
    snapshots: list[Snapshot] = field(default_factory=list)
    properties: dict[str, str] = field(default_factory=dict)
    discarded: set[int] = field(default_factory=set)
    broken: bool = False


@dataclass
class Loaded:
    snapshots: tuple[Snapshot, ...]
    properties: Mapping[str, str]

    @property
    def ancestry(self) -> Iterable[Mapping[str, str]]:
        return (s.summary for s in reversed(self.snapshots))


class SimTarget:
    """A table behind a catalog that may refuse, lose the request, lose the answer, or answer the wrong thing."""

    def __init__(self, world: World, name: TableId) -> None:
        self.world, self.table, self._attempt = world, world.tables[name], 0
        self._tried: set[int] = set()
        self._required = 0

    def load(self) -> Loaded:
        if self.table.broken:
            raise CommitUncertain("the table cannot be loaded")
        return Loaded(tuple(self.table.snapshots), dict(self.table.properties))

    def attempt(self, state: Loaded, admitted: Admitted) -> int:
        world = self.world
        self._attempt = world.next_id()
        self._tried.add(self._attempt)
        self._required = len(state.snapshots)
        world.hazard()
        if world.chance(world.contention):
            self.table.snapshots.append(Snapshot(world.next_id(), (), {}))  # another writer
        if world.chance(world.contention):
            world.disturb()  # another of our coordinators
        fault = (
            world.rng.choice(["lost request", "lost answer", "false conflict"]) if world.chance(world.faults) else None
        )
        if fault == "lost request":
            raise CommitUncertain(fault)
        if len(self.table.snapshots) != len(state.snapshots):
            raise CommitRefused("the head has moved")
        world.on_table_commit(self.table, self._attempt, admitted)
        world.hazard()
        if fault == "lost answer":
            raise CommitUncertain(fault)
        if fault == "false conflict":
            raise CommitRefused(fault)
        return self._attempt

    def landed(self, state: Loaded) -> int | None:
        return next((s.id for s in state.snapshots if s.id in self._tried), None)

    def moved(self, state: Loaded) -> bool:
        return len(state.snapshots) != self._required

    def discard(self) -> None:
        self.table.discarded.add(self._attempt)

    def pause(self, tries: int) -> None:
        pass


class SimCommitter:
    def __init__(self, world: World) -> None:
        self._world = world

    def commit(self, request: CommitTables) -> Iterable[tuple[TableId, Committed | Failed]]:
        for table in sorted(request.tables, key=lambda _: self._world.rng.random()):
            self._world.hazard()
            if self._world.chance(self._world.contention):
                self._world.disturb()
            yield table, self._settle(table, request)

    def _settle(self, table: TableId, request: CommitTables) -> Committed | Failed:
        try:
            done = self._world.commit_loop(self._world.target(self._world, table)).settle(
                request.tables[table], request.read, request.reach
            )
        except AlreadyHeldError as error:
            self._world.stats["held already"] += 1
            return Failed(str(error))
        except (CommitRefused, CommitUncertain) as error:
            return Failed(str(error))
        return Committed(next(t for t in TABLES if t.identifier == table), done.snapshot_id)


class SimRunner:
    """Takes a while; a record goes to a table by its offset, every seventh is filtered."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._running: tuple[int, Spans] | None = None

    def start(self, number: int, spans: Spans) -> None:
        assert self._running is None
        self._world.hazard()
        self._running = (number, spans)

    def poll(self) -> tuple[int, BatchOutcome] | None:
        if self._running is None or self._world.chance(0.4):
            return None
        (number, spans), self._running = self._running, None
        self._world.hazard()
        return number, self._world.read(spans)


class SimSession(MemorySession):
    """Fences in one of two ways, by seed.

    As the Kafka backend: positions are compared first, the broker checks the claim at the end. As the others: both in
    one atomic act, but the store knows nothing of the consumer group, so the claim is worth nothing.
    """

    def __init__(self, world: World, store: MemoryStore, member: str) -> None:
        super().__init__(store, member)
        self._world = world

    def publish(self, publication: Publication, claim: Claim) -> None:
        world = self._world
        world.fail(Unavailable("before the publication"))
        if world.fences_by_claim:
            self.compare(publication)
        if world.chance(world.contention):
            world.disturb()
        if not world.fences_by_claim:
            self.compare(publication)
        self.write(publication, claim)
        world.fail(OutcomeUnknown("after the publication"))

    def compare(self, publication: Publication) -> None:
        stored = self.committed(publication.advances)
        for tp, advance in publication.advances.items():
            if stored.get(tp) != advance.start:
                raise Fenced(f"{tp} is stored at {stored.get(tp)}, not at {advance.start}")

    def write(self, publication: Publication, claim: Claim) -> None:
        if self._world.fences_by_claim and not self._store.is_current(claim):
            raise Fenced(claim.member_id)
        self._store.append(self._member, publication.events, publication.spans)
        self._store.topic_ids.update(publication.identities)
        self._store.positions.update({tp: advance.end for tp, advance in publication.advances.items()})
        self._world.on_published(publication)

    def follow(self, *, replay: bool) -> Cursor:
        return SimCursor(self._world, super().follow(replay=replay), replay)


class SimCursor(Cursor):
    def __init__(self, world: World, inner: Cursor, replay: bool) -> None:
        self._world, self._inner, self.log, self._replay = world, inner, inner.log, replay
        self._fetched: dict[int, list[Envelope]] = {}

    def read(self, timeout: float) -> Sequence[Envelope]:
        """As a consumer does: partition by partition, and not always everything there is."""
        rng = self._world.rng
        for envelope in self._inner.read(0):
            self._fetched.setdefault(envelope.partition, []).append(envelope)
        found: list[Envelope] = []
        for entries in self._fetched.values():
            count = len(entries) if rng.random() < 0.7 else rng.randint(0, len(entries))
            found += entries[:count]
            del entries[:count]
        return [envelope for envelope in found if not self._passes_over(envelope)]

    def _passes_over(self, envelope: Envelope) -> bool:
        """An entry that never reaches the coordinator, such as one that an older version cannot decode."""
        away = self._replay and isinstance(envelope.event, DataWritten) and self._world.chance(self._world.omissions)
        self._world.stats["entries passed over"] += away
        return away

    def acknowledge(
        self,
        position: ControlOffsets,
        events: Sequence[Event],
        settled: Coverage | None = None,
        marks: Mapping[TableId, TableMark] | None = None,
    ) -> None:
        self._world.fail(Unavailable("before the acknowledgement"))
        for event in events:
            if isinstance(event, CommitComplete):
                self._world.on_complete(event)
        self._inner.acknowledge(position, events, settled, marks)
        self._world.fail(OutcomeUnknown("after the acknowledgement"))

    def rewind(self, positions: SourceOffsets) -> None:
        self._inner.rewind(positions)

    def close(self) -> None:
        self._inner.close()


class Member:
    """One worker process: a worker loop, and a coordinator loop while it leads (or believes so)."""

    def __init__(self, world: World, name: str) -> None:
        self._world, self._name, self._starts = world, name, 0
        self._loop: WorkerLoop | None = None
        self._coordinator: CoordinatorLoop | None = None
        self._expecting: dict[TopicPartition, int] = {}

    def step(self) -> None:
        world = self._world
        try:
            loop = self._loop or self._start()
            loop.step(0)
            self._elect(loop)
            if self._coordinator is not None:
                self._coordinator.step(0)
            if world.chance(world.restarts):
                loop.finish()
                world.stats["stopped cleanly"] += 1
                self._stop()
        except ProtocolError:
            raise
        except (Crash, CalvingError) as error:
            world.stats[type(error).__name__] += 1
            self._stop()

    def _elect(self, loop: WorkerLoop) -> None:
        world = self._world
        leads = self._session.lead(loop.machine.held, self._group.partitions()) or world.chance(world.coups)
        if leads and self._coordinator is None:
            cursor = self._session.follow(replay=True)
            self._coordinator = world.coordinator(
                cursor, SimCommitter(world), self._group.partitions, PACE, lambda: world.now, world.fresh_id
            )
        elif not leads and not world.chance(world.coups * 30):  # a deposed coordinator may live on for a while
            self._coordinator = None

    def _start(self) -> WorkerLoop:
        world = self._world
        self._starts += 1
        member = f"{self._name}{self._starts}"
        self._session = world.session(world, world.store, member)
        cursor = self._session.follow(replay=False)
        self._group = SimGroup(world.broker, member, self._on_revoked)
        self._loop = world.worker_loop(
            self._group,
            self._session,
            cursor,
            SimRunner(world),
            BatchLimits(12, 10_000),
            world.policy,
            lambda: world.now,
        )
        return self._loop

    def _on_revoked(self, leaving: Collection[TopicPartition]) -> None:
        assert self._loop is not None
        machine, positions = self._loop.machine, self._world.store.positions
        if leaving:
            self._expecting = {tp: machine.positions[tp] for tp in leaving} if machine.unpublished else {}
            return
        for tp, expected in self._expecting.items():
            if positions.get(tp, -1) < expected and self._world.operator_in is None:
                raise Violation(
                    f"W6: {tp} was handed over at {positions.get(tp)}, finished batches had read to {expected}"
                )

    def die(self) -> None:
        if self._loop is not None:
            self._stop()

    def _stop(self) -> None:
        for tp, count in (self._loop.skipped if self._loop else {}).items():
            self._world.skipped[tp] += count
        self._group.close()
        self._loop = self._coordinator = None


class World:
    """``run()`` raises ``Violation``, or returns. Mutants replace the class attributes or override the hooks."""

    worker_loop = WorkerLoop
    coordinator = CoordinatorLoop
    session = SimSession
    target = SimTarget
    policy = SourcePolicy(on_data_loss="skip", bounds_seconds=2)
    ledger_key = LedgerKey
    recover = staticmethod(recovery)

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now = 0.0
        self.crashes, self.faults, self.contention = 0.02, 0.05, 0.05
        self.restarts, self.expulsions, self.coups = 0.004, 0.02, 0.03
        self.fences_by_claim = seed % 5 < 3
        self.retention = 0.05 if seed % 4 == 0 else 0.0
        self.broker = Broker(self.rng, partitions=4)
        self.store = MemoryStore(
            partitions=1 + seed % 3, fences_coordinators=seed % 2 == 0, is_current=self.broker.is_current
        )
        self.losses = 0.004 if seed % 4 == 1 else 0.0
        self.omissions = 0.02 if seed % 7 == 3 else 0.0
        self._older: tuple[object, ...] | None = None
        self.operator_in: int | None = None
        self.backend = MemoryBackend
        if seed % 3 == 0:  # milder weather, in which cycles do complete and leaders live long
            self.crashes, self.faults, self.expulsions, self.coups = 0.004, 0.01, 0.003, 0.003
            self.broker.late_arrival = 0.9
        self.tables = {table.identifier: SimTable() for table in TABLES}
        self.files: dict[str, tuple[Record, ...]] = {}
        self.published: dict[str, TableId] = {}
        self.gone: set[Record] = set()
        self.skipped: Counter[TopicPartition] = Counter()
        self.stats: Counter[str] = Counter()
        self.expected_at: dict[UUID, frozenset[TopicPartition]] = {}
        self.started_at: dict[UUID, float] = {}
        self._ids = 0
        self._disturbed = False
        self.members = {name: Member(self, name) for name in "abc"}

    # What can go wrong

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def hazard(self) -> None:
        if self.chance(self.crashes):
            raise Crash

    def fail(self, error: CalvingError) -> None:
        self.hazard()
        if self.chance(self.faults):
            raise error

    def disturb(self) -> None:
        """Others go on while one is in the middle of something; it may be expelled meanwhile."""
        if self._disturbed:
            return
        self._disturbed = True
        try:
            for _ in range(self.rng.randrange(1, 12)):
                self._weather()
                self.rng.choice(self._bystanders()).step()
        finally:
            self._disturbed = False

    def _bystanders(self) -> list[Member]:
        return [m for m in self.members.values() if m is not self._stepping]

    def _weather(self) -> None:
        if self.chance(self.expulsions) and self.broker.members:
            self.broker.leave(self.rng.choice(sorted(self.broker.members)))
            self.stats["expelled"] += 1
        if self.chance(self.expulsions):
            table = self.rng.choice(sorted(self.tables))
            self.tables[table].broken = not self.tables[table].broken

    # What the fakes ask of the world

    def next_id(self) -> int:
        self._ids += 1
        return self._ids

    def fresh_id(self) -> UUID:
        commit_id = UUID(int=self.next_id() + 1)
        self.expected_at[commit_id] = frozenset(self.broker.timestamps)
        self.started_at[commit_id] = self.now
        return commit_id

    @property
    def key(self) -> LedgerKey:
        return self.ledger_key("control", "connect-sim", self.store.identity)

    def commit_loop(self, target: SimTarget) -> CommitLoop[Loaded]:
        return CommitLoop(target, self.key, 3)

    def read(self, spans: Spans) -> BatchOutcome:
        written: dict[TableReference, list[Record]] = {}
        latest: dict[TopicPartition, int] = {}
        records = 0
        for tp, span in spans.items():
            for offset in range(span.start, span.end):
                records += 1
                latest[tp] = max(latest.get(tp, 0), self.broker.timestamps[tp][offset])
                table = TABLES[offset % 2]
                if offset % 7 and not self._holds(table.identifier, (tp, offset)):
                    written.setdefault(table, []).append((tp, offset))
        files = {table: TableFiles((self._new_file(found),)) for table, found in written.items()}
        return BatchOutcome(files, latest, records, records * 100)

    def _new_file(self, records: list[Record]) -> DataFile:
        path = f"f{self.next_id()}"
        self.files[path] = tuple(records)
        return DataFile(path, "PARQUET", len(records), 100)

    # What is checked as it happens

    def on_published(self, publication: Publication) -> None:
        held = {
            r
            for e in publication.events
            if isinstance(e, DataWritten)
            for f in e.data_files
            for r in self.files[f.file_path]
        }
        covered = {
            (tp, o)
            for tp, spans in publication.spans.items()
            for o in range(*spans[-1])
            if o % 7 and not self._holds(TABLES[o % 2].identifier, (tp, o))
        }
        if not covered - self.gone <= held <= covered:
            raise Violation(f"I4: published files hold {len(held)} records, the advance covers {len(covered)}")
        for event in publication.events:
            if isinstance(event, DataWritten):
                self.published.update((f.file_path, event.table.identifier) for f in event.data_files)
        known = {
            tp for e in publication.events if isinstance(e, DataComplete) for tp in (a.source for a in e.assignments)
        }
        for tp in known - self.store.positions.keys() if self.operator_in is None else ():
            raise Violation(f"W1: {tp} was answered for, but the position found by reset was not stored")

    def on_table_commit(self, table: SimTable, snapshot_id: int, admitted: Admitted) -> None:
        before = self.key.read((s.summary for s in reversed(table.snapshots)), {}).control
        if any(admitted.ledger.control.get(p, 0) < offset for p, offset in before.items()):
            raise Violation(f"I3: the ledger goes from {before} back to {admitted.ledger.control}")
        if snapshot_id in table.discarded:
            raise Violation("C6: a snapshot was committed whose manifests had been deleted")
        files = tuple(f.file_path for f in admitted.data_files)
        table.snapshots.append(Snapshot(snapshot_id, files, self.key.summary(admitted.ledger)))
        if self.key.outdated(table.properties, admitted.ledger):
            del table.properties[self.key.holding]
            self.stats["caught up after a loss"] += 1
        self.stats["commits"] += 1
        self._check_ledger(table, admitted.ledger)

    def _check_ledger(self, table: SimTable, ledger: Ledger) -> None:
        """What it says of the source is true: recovery is built on it."""
        rows = {
            name: {r for s in t.snapshots for path in s.files for r in self.files[path]}
            for name, t in self.tables.items()
        }
        name = next(n for n, t in self.tables.items() if t is table)

        def is_held(record: Record) -> bool:
            return any(span.start <= record[1] < span.end for span in ledger.held(record[0]))

        if unknown := [r for r in rows[name] if not is_held(r)]:
            raise Violation(f"C6: the table holds {unknown[0]}, its ledger does not know")
        for path, owner in self.published.items():
            for record in self.files[path]:
                if record in rows[owner]:
                    continue
                if owner == name and is_held(record):
                    raise Violation(f"C6: the ledger claims {record}, which is in no snapshot of the table")
                if record[1] < ledger.settled.get(record[0], 0):
                    raise Violation(f"C6: {record} is called settled, and is in no snapshot")

    def _holds(self, table: TableId, record: Record) -> bool:
        held = decode_coverage(self.tables[table].properties.get(self.key.holding, "{}"))
        return any(span.start <= record[1] < span.end for span in held.get(record[0], ()))

    def on_complete(self, event: CommitComplete) -> None:
        unheard = self.expected_at[event.commit_id] - self._answered(event.commit_id)
        if (
            unheard
            and self.operator_in is None
            and (event.valid_through_us is not None or self.now - self.started_at[event.commit_id] < PACE.timeout)
        ):
            raise Violation(f"C2: cycle {event.commit_id} was called complete without {sorted(unheard)}")

    # The run

    def run(self, steps: int = 900) -> None:
        for _ in range(steps):
            self._storm()
        self._calm()
        self._audit()

    def _storm(self) -> None:
        self.now += 1
        self._weather()
        for tp in sorted(self.broker.timestamps):
            if self.chance(0.15):
                self.broker.produce(tp, int(self.now))
        if self.chance(0.006) and len(self.broker.timestamps) < 9:
            self.broker.add_partition()
            self.stats["partitions added"] += 1
        if self.chance(self.retention):
            self._expire(self.rng.choice(sorted(self.broker.timestamps)))
        if self.losses and self.chance(0.03):
            store = self.store
            log = [list(shard) for shard in store.log]
            self._older = (log, dict(store.positions), dict(store.topic_ids), dict(store.saved), store.identity)
        if self.chance(self.losses) and self.operator_in is None:
            self.operator_in = self.rng.randint(0, 60)
            self._lose_store()
        if self.operator_in is not None:
            self.operator_in -= 1
            if self.operator_in < 0:
                self._recover()
        self._step(self.rng.choice(sorted(self.members)))

    def _lose_store(self) -> None:
        """The store comes back empty, or as it was a while ago, under processes that go on.

        Only where they start over by chance do they notice: the guards are not part of this. Offsets are not given out
        again, as with clocks; an emptied store has a new identity.
        """
        store = self.store
        ends = store.ends()
        if self._older is None or self.chance(0.3):
            store.log, store.positions, store.topic_ids, store.saved = [[] for _ in store.log], {}, {}, {}
            store.identity = f"emptied at {self.now}"
            for member in self.members.values():
                member.die()
        else:
            log, store.positions, store.topic_ids, store.saved, store.identity = self._older  # type: ignore[assignment]
            store.log = [shard + [None] * (ends[p] - len(shard)) for p, shard in enumerate(log)]  # type: ignore[attr-defined]
        self._older = None
        self.stats["store lost"] += 1

    def _recover(self) -> None:
        """An operator stops the sink and recovers it.

        A store that goes back to before that has another identity than the tables were marked with: the guards see it.
        """
        self.operator_in = self._older = None
        for member in self.members.values():
            member.die()
        store = self.store
        found = self.recover(
            {
                ".".join(name): self.key.read((s.summary for s in reversed(table.snapshots)), {})
                for name, table in self.tables.items()
            },
            complete=self.chance(0.5),
        )
        for name, table in self.tables.items():
            table.properties[self.key.holding] = encode_coverage(found.held[".".join(name)])
        MemorySession(store, "operator").follow(replay=True).rewind(found.positions)
        landed = {path for t in self.tables.values() for s in t.snapshots for path in s.files}
        self.published = {path: owner for path, owner in self.published.items() if path in landed}

    def _expire(self, tp: TopicPartition) -> None:
        end = len(self.broker.timestamps[tp])
        begin = self.rng.randint(self.broker.begins[tp], end)
        # Only what no batch has taken up yet: a range that vanishes under a batch is the reader's to report.
        floor = max((m._loop.machine.positions.get(tp, 0) for m in self.members.values() if m._loop), default=0)
        busy = any(m._loop and m._loop.machine.busy for m in self.members.values())
        if not busy and begin > floor:
            wanted = self.store.positions.get(tp)
            self.gone.update((tp, o) for o in range(wanted or 0, begin))
            if wanted is None:
                self.skipped[tp] += begin - self.broker.begins[tp]  # no reader has ever wanted these
            self.broker.begins[tp] = begin
            self.stats["expired"] += 1

    def _step(self, name: str) -> None:
        self._stepping = self.members[name]
        self._stepping.step()

    def _calm(self) -> None:
        if self.operator_in is not None:
            self._recover()
        self.crashes = self.faults = self.contention = self.restarts = self.expulsions = self.coups = 0.0
        self.omissions = 0.0
        self.broker.late_notice = self.broker.late_arrival = 0.0
        for table in self.tables.values():
            table.broken = False
        self._rounds(40)
        for _ in range(600):  # what is read again after a loss may be a long way
            if all(self.store.positions.get(tp) == len(t) for tp, t in self.broker.timestamps.items()):
                break
            self._rounds(1)
        started = self._completed()
        for _ in range(80):
            if self._completed() >= started + 2:
                break
            self._rounds(1)
        else:
            raise Violation("I6: two cycles did not complete in time")
        if self._partial:
            raise Violation("I6: with every worker alive a cycle still ended partially")

    def _rounds(self, count: int) -> None:
        for _ in range(count):
            self.now += 1
            for name in sorted(self.members):
                self._step(name)

    def _log(self) -> list[Event]:
        return [entry[0] for shard in self.store.log for entry in shard if entry is not None]

    def _completed(self) -> int:
        return sum(isinstance(e, CommitComplete) for e in self._log())

    @property
    def _partial(self) -> bool:
        """Whether the newest complete cycle had to do without an answer."""
        log = self._log()
        last = max((e.commit_id for e in log if isinstance(e, CommitComplete)), key=lambda i: i.int)
        return bool(frozenset(self.broker.timestamps) - self._answered(last))

    def _answered(self, commit_id: UUID) -> set[TopicPartition]:
        return {
            a.source
            for e in self._log()
            if isinstance(e, DataComplete) and e.commit_id == commit_id
            for a in e.assignments
        }

    def _audit(self) -> None:
        for member in self.members.values():
            for tp, count in (member._loop.skipped if member._loop else {}).items():
                self.skipped[tp] += count
        landed = Counter(path for t in self.tables.values() for s in t.snapshots for path in s.files)
        for path, count in landed.items():
            if count > 1:
                raise Violation(f"I2: {path} is in {count} snapshots")
        if missing := self.published.keys() - landed.keys():
            raise Violation(f"I2: {len(missing)} published files are in no snapshot")
        rows = Counter(r for path in landed for r in self.files[path])
        if twice := [r for r, n in rows.items() if n > 1]:
            raise Violation(f"I1: {len(twice)} records are in the tables twice, such as {twice[0]}")
        wanted = {(tp, o) for tp, t in self.broker.timestamps.items() for o in range(len(t)) if o % 7}
        lost = wanted - rows.keys()
        if unexplained := lost - self.gone:
            raise Violation(f"I1: {len(unexplained)} records are lost, such as {min(unexplained)}")
        for tp in {tp for tp, _ in lost}:
            if self.skipped[tp] < sum(1 for t, _ in lost if t == tp):
                raise Violation(f"W7: records of {tp} were skipped silently")
        for tp, timestamps in self.broker.timestamps.items():
            if self.store.positions.get(tp) != len(timestamps):
                raise Violation(f"I6: {tp} is stored at {self.store.positions.get(tp)}, its end is {len(timestamps)}")
        for table in self.tables.values():
            if broken := table.discarded & {s.id for s in table.snapshots}:
                raise Violation(f"C6: the manifests of landed snapshots {broken} were deleted; the table is unreadable")


def simulate(seed: int, world: Callable[[int], World] = World) -> Counter[str]:
    """Run one seed; its statistics."""
    run = world(seed)
    run.run()
    return run.stats
