"""Writes the state of the worker's loop to the status board each time the state has changed, and why a worker ends into
the control log, for those who look at the sink later.
"""

from __future__ import annotations

import contextlib
import logging
import re
import socket
import time
from collections import Counter
from collections.abc import Hashable
from dataclasses import replace
from uuid import uuid4

from calving.backend.interface import Backend
from calving.errors import BadRecordError, CalvingError, first_line
from calving.model.events import WorkerEnd
from calving.model.offsets import TopicPartition
from calving.model.text import counted, printable
from calving.protocol.members import Members
from calving.runtime import components
from calving.runtime.batch import BatchRunner
from calving.runtime.publications import Publications
from calving.runtime.worker import WorkerLoop
from calving.secrets import without_secrets
from calving.settings.load import Sink
from calving.source.interface import Source
from calving.status.backlog import Backlog
from calving.status.board import Board
from calving.status.cycle_times import CycleTimes
from calving.status.health import HealthLog, reasons
from calving.status.partitions import HeldPartitions
from calving.status.table_states import TableStates
from calving.status.values import Batches, SinkFacts, WorkerStatus
from calving.threads import within
from calving.version import __version__

log = logging.getLogger(__name__)

_LOOK_SECONDS = 5.0


class Reporter:
    """The reporter of one process. The worker's thread uses it."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self.table_states = TableStates()
        self.publications = Publications()
        self.times = CycleTimes(time.monotonic, board.cycle)
        self.members = Members()
        """They begin to know this worker once it has joined its group."""
        self.restarts = 0
        self.cluster = ""
        """The id of the cluster of Kafka, once it is known."""
        self._error: str | None = None
        self._lost: Counter[str] = Counter()
        self._passed_over: Counter[str] = Counter()
        self._undecodable = 0
        self._unsigned: tuple[str, float] | None = None
        self._seen: Hashable = None
        self._told = HealthLog()
        self._backlog = Backlog()
        self._looked = float("-inf")
        """When the reasons of the sink's health were last computed. Some reasons arise only because time has passed."""

    def step(self, loop: WorkerLoop, runner: BatchRunner, *, joined: bool, leads: bool, caught_up: bool) -> None:
        """Report a step of the loop."""
        seen = (_version(loop), runner.totals, leads, joined, caught_up)
        now = time.time()
        if seen == self._seen:
            if now - self._looked > _LOOK_SECONDS:
                self._tell_degraded(now)
            return
        self._seen = seen
        if loop.unsigned and loop.unsigned != (self._unsigned or ("",))[0]:
            self._unsigned = loop.unsigned, now
        table_states = self.table_states
        wall = now - time.monotonic()
        read = dict(loop.latest_us)
        partitions = HeldPartitions(loop.machine.positions, loop.ends, table_states.settled, read, loop.arrivals, wall)
        read_now, behind, held = runner.totals.read, partitions.known_behind, frozenset(partitions)
        self._backlog = self._backlog.then(now - wall, read_now, behind, held)
        worker = WorkerStatus(
            joined,
            prepared=True,
            caught_up=caught_up,
            paused_at=None if loop.paused_ms is None else loop.paused_ms / 1000,
            leads=leads,
            partitions=partitions,
            behind=partitions.behind,
            hidden=loop.hidden.records,
            batches=runner.totals,
            lost=dict(self._lost + _by_topic(loop.skipped)),
            passed_over=dict(self._passed_over + _by_topic(loop.passed_over)),
            unread=loop.unread,
            undecodable=self._undecodable + loop.undecodable,
            unsigned=self._unsigned,
            disagreements=self.members.disagreements,
            publications=dict(self.publications.outcomes),
            refused_in_a_row=self.publications.refused_in_a_row,
            latencies=self.publications.latencies,
            restarts=self.restarts,
            error=self._error,
            cluster=self.cluster,
            backlog=self._backlog.shifted(wall),
        )
        self._board.worker(worker, table_states.status(wall))
        self._tell_degraded(now)

    def stopped(self) -> None:
        """Report that an operator has stopped the sink, and this worker has left the group."""
        self._backlog, self._seen = Backlog(), None
        status = self._board.status
        worker = replace(
            status.worker,
            joined=True,
            prepared=True,
            caught_up=True,
            stopped=True,
            leads=False,
            partitions={},
            behind=0,
            backlog=self._backlog,
            error=None,
        )
        self._board.worker(worker, status.log)

    def ended(self, loop: WorkerLoop) -> None:
        """Keep the totals of a loop that has ended."""
        self._lost += _by_topic(loop.skipped)
        self._passed_over += _by_topic(loop.passed_over)
        self._undecodable += loop.undecodable

    def failed(self, error: Exception, batches: Batches) -> None:
        """Report an error after which the worker starts over."""
        self.restarts += 1
        self._error = f"{type(error).__name__}: {error}"
        self._backlog, self._seen = Backlog(), None
        status = self._board.status
        # What is not known meanwhile stays as it was last: nothing of it has recovered.
        worker = replace(
            status.worker,
            joined=False,
            batches=batches,
            lost=dict(self._lost),
            passed_over=dict(self._passed_over),
            undecodable=self._undecodable,
            unsigned=self._unsigned,
            disagreements=self.members.disagreements,
            publications=dict(self.publications.outcomes),
            refused_in_a_row=self.publications.refused_in_a_row,
            latencies=self.publications.latencies,
            restarts=self.restarts,
            error=self._error,
            cluster=self.cluster,
            backlog=self._backlog,
        )
        self._board.worker(worker, status.log)

    def _tell_degraded(self, now: float) -> None:
        self._looked = now
        status = self._board.status
        for line in self._told.lines(reasons(status, now), status.worker):
            log.warning(line)


def what_was_done(runner: BatchRunner) -> str:
    """The totals of a process, when it ends."""
    done = runner.totals
    stages = ", ".join(f"{name} {seconds:.2f}" for name, seconds in done.stages.items())
    return f"stopped after {counted(done.read, 'record')}; stages, CPU seconds: {stages or 'none'}"


def _version(loop: WorkerLoop) -> Hashable:
    """What differs whenever a loop has something new to report."""
    counts = len(loop.skipped), len(loop.passed_over), loop.undecodable
    return loop.version, loop.machine.held, loop.paused_ms, counts


def _by_topic(skipped: dict[TopicPartition, int]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for tp, records in skipped.items():
        counts[tp.topic] += records
    return counts


def facts(sink: Sink, member: str) -> SinkFacts:
    """What does not change while a worker of the sink runs. ``member`` is the process's name in the backend."""
    keys = sink.keys
    return SinkFacts(
        name=keys.name,
        group=sink.group,
        member=member,
        version=__version__,
        backend=keys.backend,
        engine=keys.engine,
        started_at=time.time(),
        interval=keys.commit_interval_ms / 1000,
        timeout=keys.commit_timeout_ms / 1000,
    )


_SECONDS = 10.0
_PLACE = re.compile(r".*?topic '[^']*', partition \d+, offset \d+(?=:)|table [^:]*, column '[^':]*'(?=:)")
"""A bad record's place in an error, or the column of bad records. The reason after it may show a value."""
_LONGEST = 500
"""The longest reported error, in characters."""


def report_end(sink: Sink, backend: Backend, topics: Source, member: str, error: BaseException) -> None:
    """Write down why this worker ends, if the control log takes it within 10 s. Raises nothing."""
    text = _text(sink, error)
    try:
        within(_SECONDS, "calving-ending", lambda: _write(sink, backend, topics, member, text))
    except Exception as failure:  # whoever looks at the sink later sees less, and the worker's own error counts
        log.info("the control log does not tell why this worker ends: %s: %s", type(failure).__name__, failure)


def _write(sink: Sink, backend: Backend, topics: Source, member: str, text: str) -> None:
    # Imported here: most workers end without an error.
    from calving.runtime.preflight import held, own_tables, refuse_reused_offsets
    from calving.runtime.routed import routed_tables
    from calving.version import __version__

    catalog = components.catalog(sink)
    with contextlib.closing(backend.open(str(uuid4()))) as session:
        with contextlib.closing(session.watch()) as cursor:
            control = cursor.log
        # B3: a log that lost its end must not grow. Otherwise it would reach the offsets that tables have seen, and no
        # start would notice the loss any more.
        routed = routed_tables(catalog, sink, {tp.topic for tp in topics.partitions()}).sound(sink)
        tables = dict(held(catalog, sink, control.identity, [*own_tables(sink), *routed]))
        refuse_reused_offsets(sink, control, tables)
        session.report_end(WorkerEnd(__version__, time.time_ns() // 1_000_000, member, socket.gethostname(), text))


def _text(sink: Sink, error: BaseException) -> str:
    """The error as one line of printable text, without values of records, or secrets of the sink's settings."""
    text = first_line(error)
    if isinstance(error, BadRecordError):
        place = _PLACE.match(text)
        text = f"{place[0] if place else 'some records'}: a bad record; the worker's log has the reason"
    if not isinstance(error, CalvingError):
        text = f"{type(error).__name__}: {text}"
    backend = {name: str(value) for name, value in sink.backend_settings.model_dump(by_alias=True).items()}
    for settings in (sink.kafka, sink.control_kafka, sink.catalog, sink.spark, backend):
        text = without_secrets(text, settings)
    text = printable(text)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
