"""Worker processes: the product's loops over a memory backend whose every call may fail, hang or be the last."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from calving.backend.entries import check_starts
from calving.backend.interface import Cursor
from calving.backend.memory import MemoryCursor, MemoryStore
from calving.errors import (
    CalvingError,
    DataLossError,
    FencedError,
    NewerVersionError,
    OutcomeUnknownError,
    ProtocolError,
    UnavailableError,
)
from calving.model.events import (
    NOTHING_ATTACHED,
    Attachment,
    CommitComplete,
    CommitToTable,
    DataComplete,
    DataWritten,
    Envelope,
    Event,
    Leader,
    Publication,
    StartCommit,
)
from calving.model.forms import OLDEST, StoredForm
from calving.model.offsets import ControlOffsets, SourceOffsets, Spans, Topic, TopicPartition
from calving.model.sink import Claim
from calving.protocol.coordinator import Intervals
from calving.protocol.members import Members
from calving.protocol.worker import BatchLimits, BatchOutcome
from calving.runtime.coordinator import CoordinatorLoop
from calving.runtime.worker import WorkerLoop
from tests.simulation.broker import SimGroup
from tests.simulation.checks import Judge, Violation
from tests.simulation.strangers import OpenSession
from tests.simulation.versions import SILENT, NoForm, Settings, Version

if TYPE_CHECKING:
    from tests.simulation.world import World

INTERVALS = Intervals(interval=5, timeout=20, repeat=7)


class Crash(Exception):
    """The process dies here."""


class SimRunner:
    """Takes a while; see ``World.read`` for where records go."""

    def __init__(self, world: World, settings: Settings) -> None:
        self._world, self._settings = world, settings
        self._running: tuple[int, Spans] | None = None

    @property
    def reaches(self) -> Spans:
        return self._running[1] if self._running else {}

    def start(self, number: int, spans: Spans) -> None:
        assert self._running is None
        self._world.call("start")
        self._world.hazard()
        self._running = (number, spans)

    def wait(self, timeout: float) -> None: ...

    def poll(self) -> tuple[int, BatchOutcome] | None:
        if self._running is None or self._world.chance(0.4):
            return None
        (number, spans), self._running = self._running, None
        self._world.call("batch")
        self._world.hazard()
        return number, self._world.read(spans, appends=self._settings.appends)


class SimSession(OpenSession):
    """Fences in one of two ways, by seed.

    As the Kafka backend: positions are compared first, the broker checks the claim at the end. As the others: both in
    one atomic act, but the store knows nothing of the consumer group, so the claim is worth nothing.
    """

    version = SILENT
    """Of its member."""
    form = OLDEST
    """The newest that a leader has named."""

    def __init__(self, world: World, store: MemoryStore, member: str) -> None:
        super().__init__(world, store, member)

    def committed(self, partitions: Collection[TopicPartition]) -> SourceOffsets:
        self._world.call("committed")
        return super().committed(partitions)

    def publish(self, publication: Publication, claim: Claim) -> None:
        world = self._world
        world.fail("publish", UnavailableError("before the publication"))
        if world.fences_by_claim:
            self.compare(publication)
        if world.chance(world.odds.contention):
            world.disturb()
        if not world.fences_by_claim:
            self.compare(publication)
        self.write(publication, claim)
        passed = world.strangers.published(publication)
        world.fail("published", OutcomeUnknownError("after the publication"))
        world.strangers.confirmed(passed)

    def compare(self, publication: Publication) -> None:
        check_starts(publication, self._store.positions)

    def write(self, publication: Publication, claim: Claim) -> None:
        if not self._world.fences_by_claim:
            self.check()
        if self._world.fences_by_claim and not self._store.is_current(claim):
            raise FencedError(claim.member_id)
        self._world.versions.publish(self._store, publication, self._member, min(self.version.form, self.form))
        self._store.topic_ids.update(publication.identities)
        self._store.positions.update({tp: advance.end for tp, advance in publication.advances.items()})
        self._world.log_ids.update(dict.fromkeys(publication.advances, self._store.identity))
        self._world.checks.published(publication)

    def follow(self, *, replay: bool) -> SimCursor:
        self._world.call("follow")
        judge = Judge(self._world) if replay else None
        return SimCursor(self._world, MemoryCursor(self._store, self._member, replay), judge, self._hear)

    def _hear(self, form: StoredForm) -> None:
        self.form = max(self.form, form)


class SimCursor(Cursor):
    def __init__(
        self, world: World, inner: MemoryCursor, judge: Judge | None, on_form: Callable[[StoredForm], None]
    ) -> None:
        self._world, self._inner, self.judge, self.log, self._on_form = world, inner, judge, inner.log, on_form
        self._fetched: dict[int, list[Envelope]] = {}
        self._late = (0, 0.0)
        """A partition, and until when nothing of it arrives."""
        self._ended = False
        if judge is not None and world.store.partitions > 1 and world.chance(world.odds.slowness):
            self._late = world.rng.randrange(world.store.partitions), world.now + world.rng.randint(20, 120)
        self._is_slow_at_times = judge is not None and world.store.partitions > 1 and world.odds.replacements > 0

    @property
    def has_ended(self) -> bool:
        self._ended = self._ended or (self._inner.has_ended and not any(self._fetched.values()))
        return self._ended

    @property
    def is_current(self) -> bool:
        return self._world.is_current(self._inner, self._fetched)

    def read(self, timeout: float) -> Sequence[Envelope]:
        """As a consumer does: partition by partition, and not always everything there is."""
        self._world.call("read")
        rng = self._world.rng
        for envelope in self._inner.read(0):
            self._fetched.setdefault(envelope.partition, []).append(envelope)
        found: list[Envelope] = []
        if (
            self._is_slow_at_times
            and self._world.now >= self._late[1]
            and self._world.chance(self._world.odds.slowness / 5)
        ):
            self._late = rng.randrange(self._world.store.partitions), self._world.now + rng.randint(5, 30)
        for partition, entries in self._fetched.items():
            count = len(entries) if rng.random() < self._world.eagerness else rng.randint(0, len(entries))
            veil = self._world.veils.get(partition)
            if veil is not None:  # an open transaction hides what is behind it
                count = min(count, sum(e.offset < veil for e in entries))
            late, until = self._late
            if partition == late and self._world.now < until and self._world.odds.slowness:
                count = 0
            found += entries[:count]
            del entries[:count]
        if self.judge is not None:
            found = [envelope for envelope in found if not self._passes_over(envelope)]
            self.judge.heard(found)
        for envelope in found:
            if not isinstance(envelope.event, DataWritten | DataComplete):
                self._on_form(envelope.attached.form)
        return found

    def _passes_over(self, envelope: Envelope) -> bool:
        """An entry that never reaches the coordinator, such as one that an older version cannot decode."""
        away = isinstance(envelope.event, DataWritten) and self._world.chance(self._world.odds.omissions)
        self._world.stats["entries passed over"] += away
        return away

    def acknowledge(
        self,
        position: ControlOffsets,
        events: Sequence[Event],
        attached: Attachment = NOTHING_ATTACHED,
        departed: Collection[Topic] = (),
    ) -> None:
        assert self.judge is not None
        self._world.fail("acknowledge", UnavailableError("before the acknowledgement"))
        self._inner.acknowledge(position, events, attached, departed)
        for event in events:
            if isinstance(event, CommitComplete):
                self.judge.complete(event)
                self.judge.saved(position)
                self._named(attached.form, event.commit_id)
            elif isinstance(event, CommitToTable):
                self.judge.committed(event)
            elif isinstance(event, StartCommit):
                self.judge.announced(event, INTERVALS.interval)
        self._world.fail("acknowledged", OutcomeUnknownError("after the acknowledgement"))

    def _named(self, form: StoredForm, cycle: UUID) -> None:
        assert self.judge is not None
        versions = self._world.versions
        heard = self.judge.surely.get(cycle, ())
        if unaware := versions.unaware(form, heard):
            raise Violation(f"F1: form {form.number} is named, and {unaware} have answered that do not know it")
        versions.named(form, heard)

    def rewind(self, positions: SourceOffsets) -> None:
        self._inner.rewind(positions)

    def close(self) -> None:
        self._inner.close()


class Member:
    """One worker process: a worker loop, and a coordinator loop while it leads (or believes so)."""

    def __init__(self, world: World, name: str) -> None:
        self._world, self._name, self._starts = world, name, 0
        self.loop: WorkerLoop | None = None
        self._coordinator: tuple[CoordinatorLoop, Judge] | None = None
        self.is_coordinating = False
        """Right now, on a thread of its own."""
        self._elect_after = 0.0
        self.version, self.settings = world.versions.first(), world.versions.usual
        self.successor: tuple[Version, Settings] | None = None
        """The same of the one that takes its place, as soon as it has left."""
        self.sender = ""
        """As the control log names it, while it runs."""
        self.others: Members | None = None
        self.expecting: dict[TopicPartition, int] = {}
        """Where the partitions must be stored that it hands over right now; empty once an operator has moved positions."""

    def step(self) -> None:
        self.work()
        if self._coordinator is not None:
            self._coordinate(*self._coordinator)

    def work(self) -> None:
        """A step of the worker alone: its coordinator, a thread of its own, may be in the middle of something."""
        world = self._world
        try:
            loop = self.loop or self._start()
            loop.step(0)
            if self.loop is loop:  # it may have died while it waited
                self._elect(loop)
                if world.chance(world.odds.restarts) or self.successor is not None:
                    loop.finish()
                    world.stats["stopped cleanly"] += 1
                    self.die()
        except ProtocolError:
            raise
        except (Crash, CalvingError) as error:
            if isinstance(error, DataLossError):
                world.accidents.call_operator()
            if isinstance(error, NewerVersionError):
                world.versions.install(self)
            world.stats[type(error).__name__] += 1
            self.die()

    def _coordinate(self, coordinator: CoordinatorLoop, judge: Judge) -> None:
        world = self._world
        self.is_coordinating = True
        try:
            coordinator.step(0)
            judge.stepped(coordinator.machine.missing, INTERVALS.repeat)
        except ProtocolError:
            raise
        except NewerVersionError as error:
            world.versions.install(self)
            world.stats[type(error).__name__] += 1
            self.die()
        except CalvingError as error:
            if isinstance(error, DataLossError):
                world.accidents.call_operator()
            world.stats[type(error).__name__] += 1
            self._coordinator, self._elect_after = None, world.now + world.rng.randint(1, 5)
        except Crash:
            world.stats["Crash"] += 1
            self.die()
        finally:
            self.is_coordinating = False

    def _elect(self, loop: WorkerLoop) -> None:
        world = self._world
        leads = self._session.lead(loop.machine.held, self._group.partitions()) or world.chance(world.odds.coups)
        if leads and self._coordinator is None and world.now >= self._elect_after:
            cursor = self._session.follow(replay=True)
            judge = cursor.judge
            assert judge is not None
            committer = world.committer(world, world.key(cursor.log.identity), judge.committing)
            judge.committer = committer
            committer.is_complete = judge.is_complete
            committer.heard = lambda cycle: judge.surely.get(cycle, frozenset())
            committer.version, committer.settings = self.version, self.settings
            machine = world.coordinator(INTERVALS, cursor.log.start, world.now, committer.seen)
            # What is parked is handed on by the last one that writes: there must be one.
            parks = world.store.fences_coordinators and not world.versions.turns
            machine.park_behind = world.park_behind if parks else sys.maxsize
            coordinator = world.coordinator_loop(
                cursor,
                committer,
                judge.seen(self._group.partitions),
                machine,
                lambda: world.now,
                world.fresh_id,
                world.unknown,
                leader=Leader(self.sender, "", "") if world.names_leaders else None,
                newest=world.minds(self.version),
                own=None if self.others is None else self.others.own,
            )
            if not self.version.tells:
                coordinator._form = NoForm()  # type: ignore[assignment]
            self._coordinator = (coordinator, judge)
        elif not leads and not world.chance(world.odds.coups * 30):  # a deposed one may live on for a while
            self._coordinator = None

    def _start(self) -> WorkerLoop:
        world = self._world
        world.people.guard()
        self._starts += 1
        member = self.sender = f"{self._name}{self._starts}"
        self._session = world.session(world, world.store, member)
        self._session.version, settings = self.version, self.settings
        cursor = self._session.follow(replay=False)
        self._runner = SimRunner(world, self.settings)
        self._group = SimGroup(world.broker, member, self._on_revoked, world.call)
        self._elect_after = 0.0
        machine = world.worker(BatchLimits(12, 10_000), world.minds(self.version), asks=world.asks)
        self.others = world.versions.described(self._name, member, self.version, self.settings)
        self.loop = world.worker_loop(
            group=self._group,
            session=self._session,
            cursor=cursor,
            runner=self._runner,
            machine=machine,
            policy=world.policy,
            clock=lambda: world.now,
            members=self.others,
            resumed=world.strangers.resumed,
            branches=world.versions.joined(member, self.version, self.settings),
            changes_rows=lambda table: self.version.tells and not settings.appends and table in world.mutation_tables,
        )
        return self.loop

    def _on_revoked(self, leaving: Collection[TopicPartition]) -> None:
        if self.loop is None:
            return  # it has died while it handed over
        machine, positions = self.loop.machine, self._world.store.positions
        if leaving:
            self.expecting = {tp: machine.positions[tp] for tp in leaving} if machine.unpublished else {}
            return
        for tp, expected in self.expecting.items():
            if positions.get(tp, -1) < expected and not self._world.is_upset:
                raise Violation(
                    f"W6: {tp} was handed over at {positions.get(tp)}, finished batches had read to {expected}"
                )

    def reaches(self, tp: TopicPartition) -> int:
        """How far it has read, or is about to."""
        if self.loop is None:
            return 0
        span = self._runner.reaches.get(tp)
        return max(self.loop.machine.positions.get(tp, 0), span.end if span else 0)

    def sever(self) -> None:
        """The group has expelled it; it goes on all the same, as a process does that was stopped for a while."""
        if self.loop is not None:
            self._world.broker.leave(self._group.member_id)

    def die(self) -> None:
        """At once; a thread of it that hangs goes on from there, as a request that is under way does."""
        if self.loop is not None:
            self._world.skipped.update(self.loop.skipped)
            self._world.strangers.counted.update(self.loop.passed_over)
            self._group.close()
        self.loop = self._coordinator = self.others = None
        self.sender = ""
        if self.successor is not None:
            (self.version, self.settings), self.successor = self.successor, None
