"""One attempt of a worker: from the stored positions to the first error. The group membership outlives the attempt."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future
from functools import partial

from calving.backend.interface import Backend, ControlLog, Cursor, Session
from calving.errors import CalvingError, SilentError, UnavailableError, UnexpectedError, UnreachableError
from calving.model.offsets import SourceOffsets, TopicPartition
from calving.model.text import counted
from calving.protocol.worker import BatchLimits, WorkerMachine
from calving.runtime.batch import BatchRunner
from calving.runtime.leading import CoordinatorThread
from calving.runtime.policy import SourcePolicy
from calving.runtime.positions import Resumed, skipping
from calving.runtime.reporting import Reporter
from calving.runtime.worker import WorkerLoop
from calving.settings.load import Sink
from calving.settings.records import branches
from calving.source.interface import Group, Listener, Source
from calving.threads import LateError, in_thread, within

log = logging.getLogger(__name__)

STEP_SECONDS = 0.05
_LEAVING_SECONDS = 10.0
_APART_SECONDS = 2.5
_CAUGHT_UP_SECONDS = 0.3


class Membership:
    """The membership in the consumer group. It is kept from one attempt to the next, because each leave and join makes
    all other members wait.
    """

    def __init__(self, sink: Sink, topics: Source) -> None:
        self._sink, self._topics = sink, topics
        self._group: Group | None = None

    def group(self) -> Group:
        """The present membership, or a new one."""
        if self._group is not None and self._group.broken:
            self.leave()
        if self._group is None:
            self._group = self._topics.join(self._sink.group)
        return self._group

    def leave(self) -> None:
        """Leave the group. Safe to call twice."""
        if self._group is not None:
            group, self._group = self._group, None
            try:
                within(_LEAVING_SECONDS, "calving-leaving", group.close)
            except LateError:
                log.warning("the group could not be left in time: its broker removes this member after a timeout")


def is_apart(error: CalvingError, seconds: float) -> bool:
    """Whether a worker should leave the group, so that other workers take its partitions: they may reach a store that
    this process cannot reach. A store that refuses connections refuses all workers, and is usually back soon. With
    Kafka the group itself decides. ``seconds``: since the last success.
    """
    return isinstance(error, SilentError) or (isinstance(error, UnreachableError) and seconds > _APART_SECONDS)


class _Nobody(Listener):
    """Ignores changes of the assignment; the loop gets the assignment later."""

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        pass

    revoked = lost = assigned


_NOBODY = _Nobody()


class Attempt:
    """A session, a cursor and a loop over them, until the first error; the next attempt starts at the stored
    positions.
    """

    def __init__(
        self,
        sink: Sink,
        backend: Backend,
        member: str,
        membership: Membership,
        prepare: Callable[[Session, ControlLog], BatchRunner],
        meanwhile: Callable[[Group], None],
        stopping: Callable[[], bool],
        reporter: Reporter,
        resumed: Resumed,
    ) -> None:
        """``member`` is the process's name in the backend. ``prepare`` checks that reading may continue, and returns
        the runner of batches. ``meanwhile`` is called on another thread at the same time. ``stopping``: whether a clean
        stop was requested. ``resumed``: see ``WorkerLoop``.
        """
        self._sink, self._backend, self._member = sink, backend, member
        self._membership, self._prepare, self._meanwhile = membership, prepare, meanwhile
        self._stopping, self._reporter, self._resumed = stopping, reporter, resumed

    def run(self, step: Callable[[WorkerLoop, Group, Session], bool], *, wind_down_seconds: float) -> None:
        """Call ``step`` until it returns true, or until a stop is requested before its first call."""
        session: Session | None = None
        cursor: Cursor | None = None
        loop: WorkerLoop | None = None
        try:
            try:
                session = self._backend.open(self._member)
                # Open the cursor before joining: this member's join makes the coordinator send StartCommit, which the
                # cursor must read.
                cursor = session.follow(replay=False)
            except (UnreachableError, UnexpectedError):
                raise
            except UnavailableError as error:
                raise UnreachableError(str(error)) from error
            group = self._membership.group()
            preparing = in_thread("calving-preparing", partial(self._prepare, session, cursor.log))
            if not self._is_prepared(preparing, group, wind_down_seconds):
                # The checks may still use the session and the cursor, so the process ends without closing them.
                session = cursor = None
                return
            runner = preparing.result()
            loop = self._loop(group, session, cursor, runner)
            group.set_listener(loop)
            while not step(loop, group, session):
                pass
            self._wind_down(loop, runner, wind_down_seconds)
        finally:
            if loop is not None:
                self._reporter.ended(loop)
            for part in (cursor, session):
                if part is not None:
                    part.close()

    def _loop(self, group: Group, session: Session, cursor: Cursor, runner: BatchRunner) -> WorkerLoop:
        keys = self._sink.keys
        limits = BatchLimits(keys.batch_records, keys.batch_bytes, runner.fewer)
        return WorkerLoop(
            group=group,
            session=session,
            cursor=cursor,
            runner=runner,
            machine=WorkerMachine(limits, asks=keys.when_idle_ms > 0),
            policy=SourcePolicy(
                keys.start,
                keys.on_data_loss,
                idle_seconds=keys.when_idle_ms / 1000,
                mirror=self._backend.mirrors,
                stop_at=self._stop_at(group),
                skipping=skipping(self._sink.group),
                deaf_seconds=2 * keys.commit_interval_ms / 1000 + keys.commit_timeout_ms / 1000,
            ),
            clock=time.monotonic,
            table_states=self._reporter.table_states,
            publications=self._reporter.publications,
            members=self._reporter.members,
            resumed=self._resumed,
            branches=branches(keys, self._sink.tables),
            changes_rows=lambda table: self._sink.mutations(".".join(table)) is not None,
            times=self._reporter.times,
        )

    def _stop_at(self, group: Group) -> SourceOffsets | None:
        if self._sink.scope is not None:
            return self._sink.scope.ends
        return group.bounds(group.partitions()).ends if self._sink.replayed else None

    def _is_prepared(self, preparing: Future[BatchRunner], group: Group, seconds: float) -> bool:
        """Wait for the start's checks to end, but at most ``seconds`` after a stop is requested. Returns false if the
        checks have not ended.

        Meanwhile the group is polled, because a member that joins and does not poll makes all others wait.
        """
        deadline = float("inf")
        try:
            while not preparing.done() and time.monotonic() < deadline:
                group.poll(STEP_SECONDS, _NOBODY)
                self._meanwhile(group)
                if self._stopping():
                    deadline = min(deadline, time.monotonic() + seconds)
        except CalvingError:
            preparing.exception()  # wait until the checks no longer use the session
            raise
        if not preparing.done():
            log.warning("the start's checks are abandoned: they have not ended %.0f s after the stop", seconds)
        return preparing.done()

    def _wind_down(self, loop: WorkerLoop, runner: BatchRunner, seconds: float) -> None:
        """Let the running batch end, and publish the finished batches (W6)."""
        loop.machine.stop()
        deadline = time.monotonic() + seconds
        while loop.machine.busy and time.monotonic() < deadline:
            loop.step(STEP_SECONDS)
        if loop.machine.busy:
            log.warning("the running batch is dropped after %.0f s: it is %s", seconds, runner.place)
        loop.finish()


class CaughtUp:
    """Decides whether every record that the topics held at the first call is committed."""

    def __init__(self, nothing_waits: Callable[[], bool]) -> None:
        """``nothing_waits``: whether every publication is committed; called on its own thread."""
        self._nothing_waits = nothing_waits
        self._looking: Future[bool] | None = None
        self._ends: SourceOffsets | None = None
        self._since: int | None = None
        self._next = 0.0

    def check(self, loop: WorkerLoop, group: Group, coordinator: CoordinatorThread | None) -> bool:
        if not self._is_so(loop, group, coordinator):
            return False
        _tell_hidden(group)
        return True

    def _is_so(self, loop: WorkerLoop, group: Group, coordinator: CoordinatorThread | None) -> bool:
        every = group.partitions()
        if self._ends is None:
            stop_at: SourceOffsets | None = loop.stop_at
            self._ends = dict(group.bounds(every).ends if stop_at is None else stop_at)
        now = time.monotonic()
        if not loop.machine.held or loop.machine.busy or now < self._next:
            return False
        self._next = now + _CAUGHT_UP_SECONDS
        stored = loop.stored(every)
        is_published = all(stored.get(tp, 0) >= end for tp, end in self._ends.items() if end > 0)
        if coordinator is None:
            return is_published and self._others_have_committed()
        # A stop within a cycle, or right after a cycle that committed tables, would leave entries in the control log
        # above the saved position. So the last cycle must be one that finds nothing to commit.
        if not coordinator.idle:
            return False
        if is_published and not coordinator.buffered:
            if self._since is None:
                self._since = coordinator.complete_cycles
            if coordinator.complete_cycles > self._since:
                return True
        coordinator.trigger.set()
        return False

    def _others_have_committed(self) -> bool:
        """Whether every publication is committed. Another worker leads, or it has died and its lease is still valid."""
        if self._looking is None:
            self._looking = in_thread("calving-looking", self._nothing_waits)
        if not self._looking.done():
            return False
        looked, self._looking = self._looking, None
        return looked.result()


def _tell_hidden(group: Group) -> None:
    every = group.partitions()
    stable, ends = group.bounds(every).ends, group.highs(every)
    for tp in sorted(every):
        if (records := ends.get(tp, 0) - stable.get(tp, 0)) > 0:
            behind = counted(records, "record is", "records are")
            log.warning("%s: %s behind an open transaction of a producer, and not read", tp, behind)
