"""Wires a sink together and keeps it running: the only module that uses every part."""

from __future__ import annotations

import gc
import logging
import random
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

from calving.backend.interface import Backend, ControlLog, Session
from calving.engine.interface import Engine
from calving.engine.opening import OpeningEngine
from calving.errors import FATAL, CalvingError, ConfigError, ResignedError, RestartNeededError, UnavailableError
from calving.importing import IMPORTING
from calving.lean import without_pandas
from calving.model.events import Leader
from calving.model.offsets import SourceOffsets
from calving.retries import Failures, Retries
from calving.runtime import components
from calving.runtime.attempt import STEP_SECONDS, Attempt, CaughtUp, Membership, is_apart
from calving.runtime.batch import BatchRunner
from calving.runtime.leading import CoordinatorThread, Leadership
from calving.runtime.presenters import Presenters
from calving.runtime.reporting import Reporter, facts, what_was_done
from calving.runtime.stopping import Leaving, StoppedSink, state_in, stopped_text
from calving.runtime.worker import WorkerLoop
from calving.settings.load import Sink
from calving.source import producing
from calving.source.interface import Group
from calving.status.board import Board, Progress
from calving.status.values import Batches, Status
from calving.threads import Steps, Watchdog
from calving.version import __version__

if TYPE_CHECKING:
    from calving.runtime.parts import Parts

log = logging.getLogger(__name__)

T = TypeVar("T")

__all__ = ["App", "Progress"]

_STEP_SECONDS = 20.0
"""The longest step of the worker's loop: a call to a broker that does not answer."""
_LEAVING_SECONDS = 15.0
"""How much longer than a commit may take the leader of a stopped sink waits for what is published to be committed."""
_RESIGNED_SECONDS = 5.0
"""How long this process waits, so that another process can take over the lead."""


class App:
    """One worker process of a sink."""

    def __init__(self, sink: Sink, engine: Engine | None = None, *, alone: bool = False) -> None:
        """``alone``: the process runs only this sink, and needs only the sink's libraries."""
        self._sink, self._alone = sink, alone
        keys = sink.keys
        self._backend: Backend = components.backend(sink)
        self._engine = OpeningEngine(lambda: self._staying(engine or components.engine(sink)), sink.patience)
        self._parts: Parts | None = None
        self._stop = threading.Event()
        self._member = str(uuid4())
        self._topics = components.source(sink)
        self.control = StoppedSink(sink, self._backend, self._topics)
        self._membership = Membership(sink, self._topics)
        self._leadership = Leadership(
            self._coordinator,
            keys.table_timeout_ms / 1000,
            Retries(keys.retry_seconds),
            time.monotonic,
            random.random,
        )
        self._last_success = self._last_step = time.monotonic()
        self._led_since: float | None = None
        self._board = Board(facts(sink, self._member))
        self._reporter = Reporter(self._board)
        self._restart = False
        self._paused_ms: int | None = None
        self._presenters = Presenters(sink)
        self._leaving = Leaving(keys.commit_timeout_ms / 1000 + _LEAVING_SECONDS, time.monotonic)

    @property
    def status(self) -> Status:
        """The status of the sink, as this process knows it."""
        return self._board.status

    @property
    def url(self) -> str | None:
        """The URL of the status page; None until it is served."""
        return self._presenters.url

    @property
    def progress(self) -> Progress:
        """A summary of the status."""
        return Progress.of(self._board.status)

    def stopped_loops(self) -> Mapping[str, float]:
        """Loops whose last step ended longer ago than three times their longest step, each with the seconds since
        then.
        """
        now, moved = time.monotonic(), self._leadership.moved
        still = {"worker": (now - self._last_step, _STEP_SECONDS)}
        if moved is not None:
            still["coordinator"] = (now - moved, self._leadership.step_seconds)
        return {name: seconds for name, (seconds, longest) in still.items() if seconds > 3 * longest}

    @property
    def is_stopped(self) -> bool:
        """Whether an operator has stopped the sink."""
        return self._reporter.table_states.target.stopped

    def pause(self) -> None:
        """Start no more batches; answer the coordinator with the finished batches."""
        if self._paused_ms is None:
            self._paused_ms = time.time_ns() // 1_000_000

    def resume(self) -> None:
        """Start batches again after a pause."""
        self._paused_ms = None

    def restart(self) -> None:
        """Start over from the stored positions, as after an error."""
        self._restart = True

    def commit(self) -> bool:
        """Start a commit cycle now; false if this worker does not lead."""
        coordinator = self._leadership.coordinator
        if coordinator is not None:
            coordinator.trigger.set()
        return coordinator is not None

    def stop(self) -> None:
        """Ask for a clean stop; may be called from any thread or a signal handler."""
        self._stop.set()

    def run(self, *, until_caught_up: bool = False, on_progress: Callable[[Progress], None] | None = None) -> None:
        """Run until ``stop``. With ``until_caught_up``, also end when every record now in the topics is committed.

        :raises CalvingError: an operator has to act; other errors are retried.
        """
        try:
            self._run(on_progress, until_caught_up=until_caught_up)
        except Exception as error:
            self._report_end(error)
            raise

    def _run(self, on_progress: Callable[[Progress], None] | None, *, until_caught_up: bool) -> None:
        keys = self._sink.keys
        steps = Steps("the worker", keys.stalled_ms / 1000)
        failures = Failures(Retries(keys.retry_seconds))
        watchdog = Watchdog(
            lambda: steps.stalled() or self._stalled_batch() or self._stale(),
            lambda why: self._report_end(RestartNeededError(f"this process ends itself: {why}")),
        )
        try:
            self._presenters.start(self)
            self._patiently(self._provision, failures, steps)
            while True:
                self._patiently(
                    lambda: self._live(steps, on_progress, until_caught_up=until_caught_up), failures, steps
                )
                if self._stop.is_set() or not self._leaving.has_left:  # the sink may have been resumed meanwhile
                    break
                if until_caught_up and self.is_stopped:
                    raise ConfigError(stopped_text(keys.name))
                self._patiently(lambda: self._stay_stopped(steps), failures, steps)
        finally:
            watchdog.stop()
            self._leadership.stop(keys.stop_timeout_ms / 1000)
            self._membership.leave()
            if self._parts is not None:
                self._parts.runner.close()
                log.info("%s", what_was_done(self._parts.runner))
            self._engine.close()
            self._presenters.close()

    def _stay_stopped(self, steps: Steps) -> None:
        """Leave the group, and wait until an operator resumes the sink, or ends the process."""
        self._leadership.stop(self._sink.keys.stop_timeout_ms / 1000)
        self._membership.leave()
        self._reporter.stopped()
        self._led_since = None
        log.info("the sink is stopped: this worker has left the group, and waits until it is resumed")

        def meanwhile() -> None:
            self._last_step = self._last_success = time.monotonic()
            steps.done()

        self._reporter.table_states.target = self.control.wait(self._member, self._stop.is_set, meanwhile)
        self._leaving.forget()

    def _report_end(self, error: Exception) -> None:
        from calving.runtime.reporting import report_end

        report_end(self._sink, self._backend, self._topics, self._member, error)

    def _patiently(self, act: Callable[[], None], failures: Failures, steps: Steps) -> None:
        """Repeat ``act`` until it succeeds or a stop is asked for.

        :raises CalvingError: a retry does not help.
        """
        while not self._stop.is_set():
            try:
                act()
                return
            except FATAL:
                raise
            except CalvingError as error:
                log.warning("starting over from the stored positions: %s: %s", type(error).__name__, error)
                done = Batches()
                if self._parts is not None:
                    self._parts.runner.drop()
                    done = self._parts.runner.totals
                self._reporter.failed(error, done)
                lasts = time.monotonic() - self._last_success
                if isinstance(error, ResignedError) or (self._backend.mirrors and is_apart(error, lasts)):
                    self._membership.leave()
                pause = failures.add(error, self._reporter.publications.outcomes["done"], time.monotonic())
                self._stop.wait(_RESIGNED_SECONDS if isinstance(error, ResignedError) else pause)
                self._last_step = time.monotonic()
                steps.done()

    def _provision(self) -> None:
        self._backend.provision()
        if self._sink.identity.dead_letters is not None:
            producing.provision(self._sink.kafka, self._sink.identity.dead_letters)

    def _live(self, steps: Steps, on_progress: Callable[[Progress], None] | None, *, until_caught_up: bool) -> None:
        caught_up = CaughtUp(lambda: self._made().nothing_waits(self._backend))
        leadership = self._leadership

        def meanwhile(group: Group) -> None:
            self._last_step = time.monotonic()
            # Start Spark only after joining: Spark takes longest to start, and other workers do not have to wait for
            # it.
            if group.joined:
                self._engine.begin()
            if self._parts is None:
                steps.done()  # importing is progress, too

        def step(loop: WorkerLoop, group: Group, session: Session) -> bool:
            if self._leaving.has_left:
                return True
            loop.paused_ms = self._leaving.since_ms(stopped=self.is_stopped) or self._paused_ms
            if self._restart:
                self._restart = False
                raise UnavailableError("a restart was requested")
            loop.step(STEP_SECONDS)
            meanwhile(group)
            held = loop.machine.held
            leads = bool(held) and session.lead(held, group.partitions())
            self._led_since = (self._led_since or time.monotonic()) if leads else None
            leadership.update(leads)
            self._last_success = time.monotonic()
            has_heard = not leads or leadership.caught_up
            self._reporter.step(loop, self._made().runner, joined=group.joined, leads=leads, caught_up=has_heard)
            steps.done()
            if on_progress is not None:
                on_progress(self.progress)
            return self._is_over(loop, group, caught_up if until_caught_up else None, leads=leads)

        parts = self._sink, self._backend, self._member, self._membership
        attempt = Attempt(*parts, self._prepare, meanwhile, self._stop.is_set, self._reporter, self._resumed)
        attempt.run(step, wind_down_seconds=self._sink.keys.stop_timeout_ms / 1000)

    def _is_over(self, loop: WorkerLoop, group: Group, caught_up: CaughtUp | None, *, leads: bool) -> bool:
        coordinator = self._leadership.coordinator
        if self.is_stopped and self._leaving.may_leave(coordinator, leads=leads):
            return True
        if caught_up is None or not caught_up.check(loop, group, coordinator):
            return self._stop.is_set()
        if coordinator is not None:
            coordinator.stop()  # before it begins another cycle
        return True

    def _stale(self) -> str | None:
        """The reason to end the process, if it leads and no commit cycle was full for too long; otherwise None."""
        limit, led_since = self._sink.keys.full_cycle_ms, self._led_since
        if limit is None or led_since is None:
            return None
        since = time.monotonic() - max(led_since, self._board.full_at)
        if since <= limit / 1000:
            return None
        tables = self.status.coordinator.failing
        failing = f", failing: {', '.join(sorted(tables))}" if tables else ""
        return f"no commit cycle was full for {since:.0f} s{failing}"

    def _prepare(self, session: Session, log: ControlLog) -> BatchRunner:
        parts = self._made()
        self._reporter.table_states.target = state_in(session)
        if self.is_stopped:  # an operator may have stopped it to repair what the checks would refuse
            self._leaving.has_left = True
            return parts.runner
        self._leaving.forget()
        parts.check(session, log)
        if self._presenters.server is not None and not self._reporter.cluster:
            self._reporter.cluster = self._topics.cluster()
        return parts.runner

    def _resumed(self, log: ControlLog) -> SourceOffsets:
        return self._made().resumed(log)

    def _made(self) -> Parts:
        if self._parts is None:
            # Imported here, because the import takes longer than joining the group.
            with IMPORTING:
                if self._alone:
                    without_pandas()
                from calving.runtime.parts import Parts
                from calving.settings.digest import described
            self._parts = self._staying(Parts(self._sink, self._topics, self._engine, self._reporter.times.mark))
            sink, host = self._sink, socket.gethostname()
            self._reporter.members.own = described(sink, __version__, host, sink.file, self._member)
        return self._parts

    def _staying(self, made: T) -> T:
        if self._alone:
            gc.freeze()  # imported modules stay; otherwise every full garbage collection would scan them again
        return made

    def _stalled_batch(self) -> str | None:
        return None if self._parts is None else self._parts.runner.stalled(self._sink.keys.stalled_ms / 1000)

    def _coordinator(self) -> CoordinatorThread:
        leader = Leader(self._member, socket.gethostname(), self._presenters.advertised)
        return CoordinatorThread(
            sink=self._sink,
            topics=self._topics,
            backend=self._backend,
            committer=self._made().committer,
            maintenance=self._made().maintenance,
            board=self._board,
            leader=leader,
            own=self._reporter.members.own,
            times=self._reporter.times,
        )
