"""Wires a sink together and keeps it running: the only place that knows every part."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Literal
from uuid import uuid4

from calving.backend.interface import Backend, ControlLog, Cursor, Session
from calving.data.converters.registry import converter
from calving.data.spec import Evolution, Limits, RouteRule, Routing, Tolerance
from calving.data.transforms.chain import Chain
from calving.engine.interface import Engine
from calving.engine.registry import open_engine
from calving.errors import AccountingError, BadRecordError, CalvingError, ConfigError, DataLossError, ProtocolError
from calving.iceberg.catalog import open_catalog
from calving.iceberg.commit import IcebergCommitter
from calving.iceberg.tables import TableRules, Tables, TableSettings
from calving.model.coverage import Coverage, present
from calving.model.offsets import SourceOffsets, named
from calving.protocol.coordinator import Pace
from calving.protocol.worker import BatchLimits
from calving.runtime.batch import BatchRunner, BatchSettings, ErrorLimits
from calving.runtime.coordinator import CoordinatorLoop
from calving.runtime.guards import (
    commit_style,
    ledger_key,
    own_tables,
    refuse_a_loss,
    refuse_reused_offsets,
    routed_tables,
)
from calving.runtime.worker import SourcePolicy, WorkerLoop
from calving.settings.load import Sink
from calving.source import dead_letters
from calving.source.interface import Group
from calving.source.kafka import KafkaGroup, Topics

log = logging.getLogger(__name__)

_FATAL = (AccountingError, ConfigError, DataLossError, BadRecordError, ProtocolError)
_STEP_SECONDS = 0.05
_RESTART_SECONDS = (0.2, 10.0)
_CAUGHT_UP_SECONDS = 0.3
_REELECTION_SECONDS = 1.0
"""A coordinator that stepped down waits, or two that believe to lead would fence each other without end."""


@dataclass
class Progress:
    """What the sink has done since it started; read by the log lines, the demo and the tests."""

    read: int = 0
    behind: int = 0
    files: int = 0
    commits: int = 0
    committed_records: int = 0
    valid_through_us: int | None = None
    leads: bool = False
    held: int = 0
    degraded: dict[str, int] = field(default_factory=dict)
    stages: dict[str, float] = field(default_factory=dict)
    restarts: int = 0


class App:
    """One worker process of a sink."""

    def __init__(self, sink: Sink, engine: Engine | None = None) -> None:
        self._sink = sink
        keys = sink.keys
        check_record_path(sink)
        self._backend: Backend = sink.backend(sink.identity, sink.backend_settings)
        self._catalog = open_catalog(keys.catalog_name, sink.catalog)
        self._tables = Tables(self._catalog, keys.catalog_name, _table_rules(sink))
        self._routed: list[str] | None = None
        self._engine = engine
        self._stop = threading.Event()
        self.progress = Progress()

    def stop(self) -> None:
        """Ask for a clean stop; may be called from any thread or a signal handler."""
        self._stop.set()

    def run(self, *, until_caught_up: bool = False, on_progress: Callable[[Progress], None] | None = None) -> None:
        """Until ``stop``, or until all that was in the topics is committed.

        :raises CalvingError: what an operator has to act on; everything else is tried again.
        """
        self._backend.provision()
        if self._sink.identity.dead_letters is not None:
            dead_letters.provision(self._sink.kafka, self._sink.identity.dead_letters)
        self._engine = self._engine or open_engine(self._sink.keys.engine, self._sink.keys.name, self._sink.spark)
        runner = BatchRunner(self._engine, self._tables, _batch_settings(self._sink))
        delay, batches = _RESTART_SECONDS[0], 0
        try:
            while not self._stop.is_set():
                life = _Life(
                    self._sink, self._backend, self._check, self._catalog_committer, runner, self.progress, self._stop
                )
                try:
                    life.run(until_caught_up=until_caught_up, on_progress=on_progress)
                    if until_caught_up:
                        return
                except _FATAL:
                    raise
                except CalvingError as error:
                    log.warning("starting over from what is on record: %s: %s", type(error).__name__, error)
                    self.progress.restarts += 1
                    runner.wait()
                    runner.forget()
                    delay = (
                        _RESTART_SECONDS[0] if runner.totals.batches > batches else min(_RESTART_SECONDS[1], delay * 2)
                    )
                    batches = runner.totals.batches
                    self._stop.wait(delay)
        finally:
            stages = ", ".join(f"{name} {seconds:.2f}" for name, seconds in runner.stages.items())
            log.info("stopped after %d records; stages, CPU seconds: %s", runner.totals.read, stages or "none")
            runner.close()
            self._engine.close()

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

    def _catalog_committer(self, cursor: Cursor) -> IcebergCommitter:
        style = commit_style(self._sink, cursor.log.identity)
        refuse_reused_offsets(self._catalog, self._sink, cursor.log, self._held_tables())
        return IcebergCommitter(self._catalog, self._sink.keys.catalog_name, style, self._sink.keys.commit_threads)


class _Life:
    """One membership: a session, a group member, and a coordinator thread while it leads. Ends with the first error."""

    def __init__(
        self,
        sink: Sink,
        backend: Backend,
        check: Callable[[Session, ControlLog], None],
        committer: Callable[[Cursor], IcebergCommitter],
        runner: BatchRunner,
        progress: Progress,
        stop: threading.Event,
    ) -> None:
        self._sink, self._backend, self._check, self._committer = sink, backend, check, committer
        self._runner, self._progress, self._stop = runner, progress, stop
        self._coordinator: _CoordinatorThread | None = None
        self._elect_after = 0.0

    def run(self, *, until_caught_up: bool, on_progress: Callable[[Progress], None] | None) -> None:
        keys = self._sink.keys
        session = self._backend.open(str(uuid4()))
        group: Group | None = None
        cursor: Cursor | None = None
        try:
            # The cursor first: a StartCommit that answers our joining must find us listening.
            cursor = session.follow(replay=False)
            self._check(session, cursor.log)
            group = KafkaGroup(self._sink.kafka, self._sink.group, keys.topics, keys.topics_regex)
            topics = Topics(self._sink.kafka, keys.topics, keys.topics_regex)
            stop_at = topics.bounds(topics.partitions()).ends if self._sink.replayed else None
            look_seconds = min(1.0, keys.commit_interval_ms / 1000)
            policy = SourcePolicy(keys.reset, keys.on_data_loss, look_seconds, self._backend.mirrors, stop_at)
            limits = BatchLimits(keys.batch_records, keys.batch_bytes)
            loop = WorkerLoop(group, session, cursor, self._runner, limits, policy, time.monotonic)
            self._loop(loop, session, group, until_caught_up, on_progress)
            self._wind_down(loop)
        finally:
            if self._coordinator is not None:
                self._coordinator.stop()
            for part in (group, cursor, session):
                if part is not None:
                    part.close()

    def _loop(
        self,
        loop: WorkerLoop,
        session: Session,
        group: Group,
        until_caught_up: bool,
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        caught_up = _CaughtUp(loop.stop_at)
        while not self._stop.is_set():
            loop.step(_STEP_SECONDS)
            self._elect(session, loop, group)
            self._report(loop, on_progress)
            if until_caught_up and caught_up.check(loop, group, self._coordinator):
                return

    def _elect(self, session: Session, loop: WorkerLoop, group: Group) -> None:
        held = loop.machine.held
        leads = bool(held) and session.lead(held, group.partitions())
        if self._coordinator is not None and self._coordinator.ended:
            self._coordinator.stop()
            self._coordinator.raise_if_fatal()
            self._coordinator = None
            self._elect_after = time.monotonic() + _REELECTION_SECONDS * (1 + random.random())  # noqa: S311 - jitter
        if leads and self._coordinator is None and time.monotonic() >= self._elect_after:
            self._coordinator = _CoordinatorThread(self._sink, self._backend, self._committer, self._progress)
        elif not leads and self._coordinator is not None:
            self._coordinator.stop()
            self._coordinator = None

    def _report(self, loop: WorkerLoop, on_progress: Callable[[Progress], None] | None) -> None:
        progress = self._progress
        progress.read, progress.behind = self._runner.totals.read, loop.behind
        progress.held, progress.leads = len(loop.machine.held), self._coordinator is not None
        progress.stages = dict(self._runner.stages)
        if on_progress is not None:
            on_progress(progress)

    def _wind_down(self, loop: WorkerLoop) -> None:
        """The batch that runs is let finish, and what is finished is published (W6)."""
        loop.machine.stop()
        while loop.machine.busy:
            loop.step(_STEP_SECONDS)
        loop.finish()


class _CaughtUp:
    """Whether everything that was in the topics when the first look was taken is committed."""

    def __init__(self, stop_at: SourceOffsets | None) -> None:
        self._ends: dict[object, int] | None = None if stop_at is None else dict(stop_at)
        self._since: int | None = None
        self._next = 0.0

    def check(self, loop: WorkerLoop, group: Group, coordinator: _CoordinatorThread | None) -> bool:
        every = group.partitions()
        if self._ends is None:
            self._ends = dict(group.bounds(every).ends)
        now = time.monotonic()
        if not loop.machine.held or loop.machine.busy or now < self._next:
            return False
        self._next = now + _CAUGHT_UP_SECONDS
        if coordinator is not None:
            coordinator.hurry.set()
        stored = loop.stored(every)
        if any(stored.get(tp, 0) < end for tp, end in self._ends.items() if end > 0):  # type: ignore[call-overload]
            return False
        if coordinator is None:
            return True  # another worker leads and commits
        if self._since is None:
            self._since = coordinator.complete_cycles
        return coordinator.complete_cycles > self._since and not coordinator.buffered


class _CoordinatorThread:
    """The coordinator of this worker, on its own thread and session, from election until an error or ``stop``."""

    def __init__(
        self, sink: Sink, backend: Backend, committer: Callable[[Cursor], IcebergCommitter], progress: Progress
    ) -> None:
        self._sink, self._backend, self._make_committer, self._progress = sink, backend, committer, progress
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self.hurry = threading.Event()
        """Set it to have the next cycle start at once."""
        self.complete_cycles = 0
        self.buffered = 0
        self._thread = threading.Thread(target=self._run, name="calving-coordinator", daemon=True)
        self._thread.start()

    @property
    def ended(self) -> bool:
        return not self._thread.is_alive()

    def raise_if_fatal(self) -> None:
        if isinstance(self._error, _FATAL):
            raise self._error

    def stop(self) -> None:
        """After the commit that is running, if one is."""
        self._stop.set()
        self._thread.join(120)

    def _run(self) -> None:
        try:
            self._coordinate()
        except CalvingError as error:
            self._error = error
            log.warning("the coordinator steps down: %s: %s", type(error).__name__, error)
        except Exception as error:  # a thread has nobody else to tell
            self._error = error
            log.exception("the coordinator steps down")

    def _coordinate(self) -> None:
        keys = self._sink.keys
        session = self._backend.open(str(uuid4()))
        cursor: Cursor | None = None
        committer: IcebergCommitter | None = None
        try:
            cursor = session.follow(replay=True)
            committer = self._make_committer(cursor)
            topics = Topics(self._sink.kafka, keys.topics, keys.topics_regex)
            timeout = keys.commit_timeout_ms / 1000
            pace = Pace(keys.commit_interval_ms / 1000, timeout, max(0.5, min(5.0, timeout / 6)))
            loop = CoordinatorLoop(cursor, committer, topics.partitions, pace, time.monotonic, uuid4)
            log.info("coordinating group %s, control log from %s", self._sink.group, dict(cursor.log.start))
            while not self._stop.is_set():
                if self.hurry.is_set():
                    self.hurry.clear()
                    loop.hurry()
                loop.step(min(0.2, keys.commit_interval_ms / 5000))
                self._after_step(loop, committer)
        finally:
            if committer is not None:
                committer.close()
            if cursor is not None:
                cursor.close()
            session.close()

    def _after_step(self, loop: CoordinatorLoop, committer: IcebergCommitter) -> None:
        self.buffered = sum(loop.machine.buffered.values())
        progress = self._progress
        progress.files, progress.committed_records = committer.files, committer.records
        progress.degraded = {".".join(t): n for t, n in loop.machine.failures.items()}
        if loop.last is None or loop.complete_cycles == self.complete_cycles:
            return
        self.complete_cycles = loop.complete_cycles
        progress.commits = loop.complete_cycles
        progress.valid_through_us = loop.last.valid_through_us
        log.info(
            "commit %s: %d tables, %d failed, %.2f s, lag %d%s",
            loop.last.commit_id,
            loop.last.tables,
            loop.last.failed,
            loop.last.seconds,
            progress.behind,
            f", DEGRADED: {', '.join(progress.degraded)}" if progress.degraded else "",
        )
        limit = self._sink.keys.max_failures
        for table, failures in progress.degraded.items():
            if limit is not None and failures >= limit:
                raise ConfigError(f"table {table} could not be committed {failures} times in a row")


def check_record_path(sink: Sink) -> None:
    """Make every converter and transform once, here, where a wrong option is the user's to see.

    :raises ConfigError: one of them cannot be made.
    """
    Chain(sink.transforms)
    for found in sink.converters.values():
        converter(found.value.name, found.value.options, is_key=False)
        converter(found.key.name, found.key.options, is_key=True)


def _batch_settings(sink: Sink) -> BatchSettings:
    keys = sink.keys
    rules = tuple(
        RouteRule(name, sink.tables[name].route_regex if name in sink.tables else None) for name in keys.tables
    )
    return BatchSettings(
        sink.kafka,
        Routing(
            rules,
            keys.route_field,
            keys.dynamic,
            keys.topic_pattern,
            keys.topic_regex,
            keys.on_unrouted,
            keys.on_missing_table,
        ),
        Evolution(keys.auto_create, keys.evolve, keys.case_insensitive),
        sink.converters,
        sink.transforms,
        _tolerance(sink),
        ErrorLimits(keys.errors_per_batch, keys.errors_share),
        Limits(
            record_bytes=keys.record_bytes,
            nesting=keys.nesting,
            learned_names=keys.learned_names,
            new_columns=keys.new_columns,
            columns=keys.columns,
        ),
    )


def _tolerance(sink: Sink) -> Tolerance:
    keys = sink.keys
    if keys.errors_tolerance == "none":
        return Tolerance()
    to: Literal["topic", "table"] = "topic" if keys.dead_letter_topic is not None else "table"
    return Tolerance(to, keys.dead_letter_table, keys.errors_per_batch, sink.replayed)


def _left_out(sink: Sink) -> Callable[[str, Mapping[str, str]], Coverage]:
    topics = cache(lambda: Topics(sink.kafka, sink.keys.topics, sink.keys.topics_regex))  # rarely needed: no client yet

    def look(name: str, properties: Mapping[str, str]) -> Coverage:
        found = ledger_key(sink, "", name).left_out(properties)
        return present(found, topics().identities({named(tp).topic for tp in found})) if found else {}

    return look


def _table_rules(sink: Sink) -> TableRules:
    keys = sink.keys
    defaults = TableSettings(keys.default_partition_by, keys.default_id_columns)
    tables = {
        name: TableSettings(
            defaults.partition_by if t.partition_by is None else t.partition_by,
            defaults.id_columns if t.id_columns is None else t.id_columns,
            t.location,
        )
        for name, t in sink.tables.items()
    }
    return TableRules(
        sink.write_properties,
        sink.create_properties,
        tables,
        defaults,
        keys.force_optional,
        _left_out(sink),
        keys.case_insensitive,
        keys.new_columns,
        keys.columns,
    )
