"""The coordinator of a worker process: started while the process leads, watched, and abandoned if it hangs.

The worker never waits for the coordinator: a slow catalog makes a commit slow, and meanwhile the worker runs batches.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol
from uuid import uuid4

from calving.backend.interface import Backend, Cursor
from calving.errors import FATAL, CalvingError, ConfigError, FencedError, ResignedError
from calving.model.events import Leader
from calving.model.members import Member
from calving.model.text import counted
from calving.protocol.coordinator import Coordinator, Intervals
from calving.retries import Backoff, Retries
from calving.runtime.coordinator import CoordinatorLoop, Looks
from calving.settings.load import Sink
from calving.source.interface import Source
from calving.status.board import Board, after_cycle
from calving.status.cycle_times import CycleTimes
from calving.status.values import CommitCycle, CoordinatorStatus, WorkerStatus
from calving.threads import where

if TYPE_CHECKING:
    from calving.iceberg.commit import IcebergCommitter  # slow to import

log = logging.getLogger(__name__)

_REPEAT_SECONDS = 1.0
"""Interval between repetitions of StartCommit: a new worker learns of the open cycle within this time."""
_AGAIN, _REELECTION = Backoff(0.2, 2.0), Backoff(1.0, 4.0)
"""The back-off of a coordinator after an error, and after it was fenced: two processes that both believe that they lead
must not fence each other for ever, nor an operator's command.
"""
_RESIGN_AFTER, _FAILING_SECONDS = 3, 30.0
"""Another process should lead after this many coordinators in a row without a complete cycle, over this many
seconds.
"""
_HUNG_TABLES = 2
_HUNG_SECONDS = 30.0
"""A coordinator hangs if it makes no progress for this time plus the time that its tables may take."""


class BackgroundMaintenance(Protocol):
    """What maintains the tables while this process leads, on a thread of its own."""

    def stop(self) -> None: ...

    def join(self, seconds: float) -> None: ...


class CoordinatorThread:
    """A coordinator on its own thread and session, from its election until an error or ``stop``."""

    def __init__(
        self,
        sink: Sink,
        topics: Source,
        backend: Backend,
        committer: Callable[[Cursor], IcebergCommitter],
        board: Board,
        leader: Leader | None = None,
        own: Member | None = None,
        times: CycleTimes | None = None,
        maintenance: Callable[[IcebergCommitter, Board], BackgroundMaintenance | None] = lambda committer, board: None,
    ) -> None:
        """``leader``: this process, as its events name it to the others. ``own``: its worker, with all its settings.
        ``times``: of its cycles, and its worker's. ``maintenance``: begins to maintain the tables beside the commits.
        """
        self._own, self._begin_maintenance, self._times = own, maintenance, times
        self._sink, self._topics, self._backend, self._leader = sink, topics, backend, leader
        self._make_committer, self._board = committer, board
        self._stop = threading.Event()
        self.error: BaseException | None = None
        self.trigger = threading.Event()
        """When set, the next cycle starts at once."""
        self.complete_cycles = 0
        self.buffered = 0
        self._loop: CoordinatorLoop | None = None
        self._looks: Looks | None = None
        self._maintenance: BackgroundMaintenance | None = None
        self.moved = time.monotonic()
        """When this coordinator last made progress or found nothing to do. At first, when it was made."""
        self.has_moved = False
        self._thread = threading.Thread(target=self._run, name="calving-coordinator", daemon=True)
        self._thread.start()

    @property
    def ended(self) -> bool:
        return not self._thread.is_alive()

    @property
    def caught_up(self) -> bool:
        """Whether it has read all entries that the control log held when it started."""
        return self._loop is not None and self._loop.machine.caught_up

    @property
    def idle(self) -> bool:
        """Whether it is between two commit cycles, and does not begin one now."""
        if self._loop is None or not self._loop.idle or self.trigger.is_set():
            return False
        return time.monotonic() < self._loop.machine.pace.due

    @property
    def place(self) -> str:
        """Where its thread is now, to find out why it hangs."""
        return where(self._thread.ident)

    def stop(self) -> None:
        """Request its end after the present step."""
        self._stop.set()

    def join(self, seconds: float) -> None:
        """Wait until it and its maintenance have ended, at most ``seconds``."""
        until = time.monotonic() + seconds
        self._thread.join(seconds)
        if self._maintenance is not None:
            self._maintenance.join(max(0.0, until - time.monotonic()))

    def _run(self) -> None:
        try:
            self._coordinate()
        except CalvingError as error:
            self.error = error
            log.warning("the coordinator steps down: %s: %s", type(error).__name__, error)
        except Exception as error:  # the thread has no caller that could catch it
            self.error = error
            log.exception("the coordinator steps down")

    def _coordinate(self) -> None:
        keys = self._sink.keys
        session = self._backend.open(str(uuid4()))
        cursor: Cursor | None = None
        try:
            cursor = session.follow(replay=True)
            committer = self._make_committer(cursor)
            intervals = Intervals(keys.commit_interval_ms / 1000, keys.commit_timeout_ms / 1000, _REPEAT_SECONDS)
            machine = Coordinator(intervals, cursor.log.start, self._now(), committer.seen)
            topics = self._topics
            loop = CoordinatorLoop(
                cursor=cursor,
                committer=committer,
                partitions=topics.partitions,
                machine=machine,
                clock=self._now,
                fresh_id=uuid4,
                unknown=topics.unknown,
                leader=self._leader,
                own=self._own,
                times=self._times,
            )
            self._loop = loop
            self._looks = Looks(committer, keys.look_ms / 1000)
            log.info("coordinating group %s, control log from %s", self._sink.group, dict(cursor.log.start))
            while not self._stop.is_set():
                if self.trigger.is_set():
                    self.trigger.clear()
                    loop.trigger()
                loop.step(min(0.2, keys.commit_interval_ms / 5000))
                self._after_step(loop, committer)
        finally:
            for beside in (self._looks, self._maintenance):
                if beside is not None:
                    beside.stop()
            if cursor is not None:
                cursor.close()
            session.close()

    def _now(self) -> float:
        """The loop's clock. A loop that reads the time makes progress."""
        self.moved = time.monotonic()
        self.has_moved = True
        return self.moved

    def _after_step(self, loop: CoordinatorLoop, committer: IcebergCommitter) -> None:
        self.buffered = sum(loop.machine.buffered.values())
        if loop.last is None or loop.complete_cycles == self.complete_cycles:
            return
        if not self.complete_cycles:  # now it is known to lead
            self._maintenance = self._begin_maintenance(committer, self._board)
        self.complete_cycles = loop.complete_cycles
        cycle = replace(loop.last, ended_at=time.time(), tables=committer.reports())
        failing = {".".join(t): n for t, n in loop.machine.failures.items()}
        if is_full(cycle, failing):
            self._board.full_at = time.monotonic()
        missing = {".".join(t): offsets for t, offsets in list(committer.missing.items())}
        status = self._board.status
        held_back = {".".join(t): waits for t, waits in committer.held_back.items()}
        now = replace(
            after_cycle(status.coordinator, cycle, failing, missing, self.buffered),
            held_back=held_back,
            rolled_back={".".join(t): rollback for t, rollback in list(committer.rolled_back.items())},
            key_cache=committer.key_cache_bytes,
            unread=loop.unread,
        )
        self._board.coordinator(now)
        log.info("commit %s", cycle_text(cycle, now, _to_read(status.worker)))
        limit = self._sink.keys.max_failures
        waiting = {".".join(t) for t in loop.machine.waiting}  # for a leader with other settings; this one may not end
        for table, failures in failing.items():
            if limit is not None and failures >= limit and table not in waiting:
                raise ConfigError(
                    f"table {table}: {counted(failures, 'commit')} failed in a row; the warnings above say why. The"
                    " files stay buffered: remove the cause and start the sink again"
                )


def is_full(cycle: CommitCycle, failing: Collection[str]) -> bool:
    """Whether all partitions answered and all tables are committed. A failing table is not tried in each cycle."""
    return not cycle.unanswered and not failing


def _to_read(worker: WorkerStatus) -> int | None:
    """The number that the live view calls "to read"."""
    return None if worker.backlog.behind is None else worker.behind + worker.hidden


def cycle_text(cycle: CommitCycle, coordinator: CoordinatorStatus, to_read: int | None) -> str:
    """The log line of a cycle. Its seconds are those of the commit, without the wait for answers. ``to_read``: records
    of the leader's own partitions, None if it does not know yet.
    """
    left = "" if to_read is None else f", {counted(to_read, 'record')} to read"
    text = (
        f"{cycle.commit_id}: {counted(cycle.committed, 'table')}, {cycle.failed} failed, {cycle.commit_seconds:.2f} s"
        f" ({cycle.seconds:.2f} s after its start){left}"
    )
    if cycle.unanswered:
        silent = cycle.unanswered
        more = f" and {len(silent) - 10} more" if len(silent) > 10 else ""
        text += f", PARTIAL: no answer for {', '.join(silent[:10])}{more}"
    if degraded := sorted({*coordinator.failing, *coordinator.missing, *coordinator.rolled_back}):
        text += f", DEGRADED: {', '.join(degraded)}"
    return text


class Leadership:
    """Runs a coordinator while this process leads."""

    def __init__(
        self,
        start: Callable[[], CoordinatorThread],
        table_seconds: float,
        retries: Retries,
        clock: Callable[[], float],
        jitter: Callable[[], float],
    ) -> None:
        """``table_seconds``: the longest commit of a table. ``retries``: of coordinators that end with an error.
        ``jitter``: random numbers from 0 to 1.
        """
        self._start, self._retries, self._clock, self._jitter = start, retries, clock, jitter
        self._hung_seconds = _HUNG_SECONDS + _HUNG_TABLES * table_seconds
        self.step_seconds = self._hung_seconds / 2
        """Seconds within which a coordinator should commit a table or read the log."""
        self.coordinator: CoordinatorThread | None = None
        self.caught_up = False
        """Whether a coordinator of this process has ever read the control log to its end."""
        self._hung_since: float | None = None
        """When the coordinator that was given up last made progress; None once its successor makes progress."""
        self._elect_after = float("-inf")
        self._failures = 0
        self._failing_since = float("inf")

    def update(self, leads: bool) -> None:
        """Start, watch or stop the coordinator. Call it often; ``leads`` comes from the session.

        :raises ResignedError: coordinators of this process make no progress.
        :raises CalvingError: an operator has to act.
        """
        running = self.coordinator
        if running is not None:
            self.caught_up = self.caught_up or running.caught_up
            if running.has_moved:
                self._hung_since = None
            if running.complete_cycles:
                self._failures, self._failing_since = 0, float("inf")
                self._retries.succeeded()
            if running.ended:
                self._ended(running)
            elif self._clock() - running.moved > self._hung_seconds:
                log.error("the coordinator hangs and is abandoned: it is %s", running.place)
                running.stop()
                self._hung_since = running.moved if self._hung_since is None else self._hung_since
                self._give_up(0.0)
            elif not leads:
                running.stop()
                self.coordinator = None
        if not leads:
            self._hung_since = None
        if leads and self.coordinator is None and self._clock() >= self._elect_after:
            self.coordinator = self._start()

    @property
    def moved(self) -> float | None:
        """When a coordinator of this process last made progress; None if no coordinator should run. Abandoning a
        coordinator that hangs is no progress.
        """
        running = self.coordinator
        if running is not None and (running.has_moved or self._hung_since is None):
            return running.moved
        return self._hung_since

    def stop(self, seconds: float) -> None:
        """Stop the coordinator after the running commit, but wait at most ``seconds``."""
        if self.coordinator is not None:
            self.coordinator.stop()
            self.coordinator.join(seconds)
            if not self.coordinator.ended:
                log.warning("the coordinator is abandoned: it is %s", self.coordinator.place)
            self.coordinator = None

    def _ended(self, coordinator: CoordinatorThread) -> None:
        error = coordinator.error
        if isinstance(error, FATAL):
            raise error
        if error is not None:
            self._retries.failed(error, self._clock())
        if isinstance(error, FencedError):
            self._give_up(_REELECTION.pause(self._failures + 1, self._jitter()))
        else:
            self._give_up(_AGAIN.pause(self._failures + 1))

    def _give_up(self, pause: float) -> None:
        self.coordinator = None
        self._elect_after = self._clock() + pause
        self._failures += 1
        self._failing_since = min(self._failing_since, self._clock())
        # Do not resign at once: a short outage of the store affects all processes.
        if self._failures >= _RESIGN_AFTER and self._clock() - self._failing_since > _FAILING_SECONDS:
            count, self._failures, self._failing_since = self._failures, 0, float("inf")
            raise ResignedError(f"{count} coordinators of this process in a row made no progress")
