"""Wires a sink together and keeps it running: the only place that knows every part."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from uuid import uuid4

from calving.backend.interface import Backend, ControlLog, Cursor, Session
from calving.engine.interface import Engine
from calving.engine.registry import open_engine
from calving.engine.watch import Patience
from calving.errors import FATAL, CalvingError
from calving.iceberg.attempts import Attempts
from calving.iceberg.catalog import open_catalog
from calving.iceberg.commit import IcebergCommitter
from calving.iceberg.tables import Tables
from calving.runtime.batch import BatchRunner
from calving.runtime.failures import Failures
from calving.runtime.guards import commit_style, own_tables, refuse_a_loss, refuse_reused_offsets, routed_tables
from calving.runtime.leading import CoordinatorThread, Leadership, Resigned
from calving.runtime.life import STEP_SECONDS, Apart, CaughtUp, Life, Membership, report
from calving.runtime.progress import Progress
from calving.runtime.watch import Steps, Watchdog
from calving.runtime.wiring import batch_settings, check_record_path, table_rules
from calving.runtime.worker import WorkerLoop
from calving.settings.load import Sink
from calving.source import dead_letters
from calving.source.interface import Group
from calving.source.kafka import Topics

log = logging.getLogger(__name__)

__all__ = ["App", "Progress", "check_record_path"]

_APART_SECONDS = 2.5
_RESIGNED_SECONDS = 5.0
"""So long another process has to take over the lead."""


class App:
    """One worker process of a sink."""

    def __init__(self, sink: Sink, engine: Engine | None = None) -> None:
        self._sink = sink
        keys = sink.keys
        check_record_path(sink)
        self._backend: Backend = sink.backend(sink.identity, sink.backend_settings)
        self._catalog = open_catalog(keys.catalog_name, sink.catalog)
        self._tables = Tables(self._catalog, keys.catalog_name, table_rules(sink))
        self._attempts = Attempts(keys.commit_threads, keys.table_timeout_ms / 1000)
        self._routed: list[str] | None = None
        self._engine = engine
        self._stop = threading.Event()
        self._member = str(uuid4())
        self._membership = Membership(sink)
        self._leadership = Leadership(self._coordinator, keys.table_timeout_ms / 1000, time.monotonic, random.random)
        self._well = time.monotonic()
        """When a step was last done."""
        self.progress = Progress()

    def stop(self) -> None:
        """Ask for a clean stop; may be called from any thread or a signal handler."""
        self._stop.set()

    def run(self, *, until_caught_up: bool = False, on_progress: Callable[[Progress], None] | None = None) -> None:
        """Until ``stop``, or until all that was in the topics is committed.

        :raises CalvingError: what an operator has to act on; everything else is tried again.
        """
        keys = self._sink.keys
        steps = Steps("the worker", keys.stalled_ms / 1000)
        failures = Failures()
        self._patiently(self._provision, failures, steps)
        if self._stop.is_set():
            return
        patience = Patience(keys.resources_timeout_ms / 1000, keys.job_timeout_ms / 1000)
        self._engine = self._engine or open_engine(keys.engine, keys.name, self._sink.spark, patience)
        runner = BatchRunner(self._engine, self._tables, batch_settings(self._sink))
        watchdog = Watchdog(lambda: steps.stalled() or runner.stalled(keys.stalled_ms / 1000) or self._stale())
        try:
            self._patiently(
                lambda: self._live(runner, steps, on_progress, until_caught_up=until_caught_up), failures, steps, runner
            )
        finally:
            watchdog.stop()
            self._leadership.stop(keys.stop_timeout_ms / 1000)
            self._membership.leave()
            stages = ", ".join(f"{name} {seconds:.2f}" for name, seconds in runner.stages.items())
            log.info("stopped after %d records; stages, CPU seconds: %s", runner.totals.read, stages or "none")
            runner.close()
            self._engine.close()

    def _patiently(
        self, act: Callable[[], None], failures: Failures, steps: Steps, runner: BatchRunner | None = None
    ) -> None:
        """Until ``act`` comes to its end, or nobody wants it any more.

        :raises CalvingError: it does not pass by itself.
        """
        while not self._stop.is_set():
            try:
                act()
                return
            except FATAL:
                raise
            except CalvingError as error:
                log.warning("starting over from what is on record: %s: %s", type(error).__name__, error)
                self.progress.restarts += 1
                batches = 0
                if runner is not None:
                    runner.drop()
                    batches = runner.totals.batches
                if isinstance(error, Resigned) or (isinstance(error, Apart) and self._is_apart()):
                    self._membership.leave()
                pause = failures.add(error, batches)
                self._stop.wait(_RESIGNED_SECONDS if isinstance(error, Resigned) else pause)
                steps.done()

    def _is_apart(self) -> bool:
        """Whether this process has not reached a store for long that others may reach: they should have its partitions.
        Where the store is Kafka, the group finds out by itself.
        """
        return self._backend.mirrors and time.monotonic() - self._well > _APART_SECONDS

    def _provision(self) -> None:
        self._backend.provision()
        if self._sink.identity.dead_letters is not None:
            dead_letters.provision(self._sink.kafka, self._sink.identity.dead_letters)

    def _live(
        self,
        runner: BatchRunner,
        steps: Steps,
        on_progress: Callable[[Progress], None] | None,
        *,
        until_caught_up: bool,
    ) -> None:
        caught_up = CaughtUp()
        leadership, progress = self._leadership, self.progress

        def step(loop: WorkerLoop, group: Group, session: Session) -> bool:
            loop.step(STEP_SECONDS)
            held = loop.machine.held
            leads = bool(held) and session.lead(held, group.partitions())
            if leads and not progress.leads:
                progress.full_cycle_at = time.monotonic()
            progress.leads = leads
            leadership.mind(leads)
            self._well = time.monotonic()
            report(loop, runner, progress)
            steps.done()
            if on_progress is not None:
                on_progress(progress)
            if until_caught_up and caught_up.check(loop, group, leadership.coordinator):
                return True
            return self._stop.is_set()

        life = Life(self._sink, self._backend, self._member, self._membership, leadership, runner, self._check)
        life.run(step, wind_down_seconds=self._sink.keys.stop_timeout_ms / 1000)

    def _stale(self) -> str | None:
        """Why the process should end, if commits have stood still for too long under its lead."""
        limit, progress = self._sink.keys.full_cycle_ms, self.progress
        if limit is None or not progress.leads:
            return None
        since = progress.since_full_cycle(time.monotonic())
        if since <= limit / 1000:
            return None
        failing = f", failing: {', '.join(sorted(progress.failing))}" if progress.failing else ""
        return f"no commit cycle was full for {since:.0f} s{failing}"

    def _held_tables(self) -> list[str]:
        """Every table that may hold something of the sink; those that records are routed to freely are looked for once,
        and known to this process from then on.
        """
        if self._routed is None:
            topics = Topics(self._sink.kafka, self._sink.keys.topics, self._sink.keys.topics_regex).partitions()
            self._routed = routed_tables(self._catalog, self._sink, {tp.topic for tp in topics})
        return [*own_tables(self._sink), *self._routed, *self._tables.specs()]

    def _check(self, session: Session, log: ControlLog) -> None:
        refuse_a_loss(self._catalog, self._sink, session, log, self._held_tables())

    def _coordinator(self) -> CoordinatorThread:
        return CoordinatorThread(self._sink, self._backend, self._committer, self.progress)

    def _committer(self, cursor: Cursor) -> IcebergCommitter:
        style = commit_style(self._sink, cursor.log.identity)
        refuse_reused_offsets(self._catalog, self._sink, cursor.log, self._held_tables())
        return IcebergCommitter(self._catalog, self._sink.keys.catalog_name, style, self._attempts)
