"""Both drivers over the memory backend, with a group and batches that a test controls."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from typing import ClassVar
from uuid import uuid4

import pytest

from calving.backend import SinkIdentity
from calving.backend.memory import MemoryBackend, MemoryCursor, MemoryStore
from calving.model.events import NO_COMMIT, DataComplete, Envelope, Publication, TableFiles, TableId, TableReference
from calving.model.files import DataFile
from calving.model.marks import TableMark
from calving.model.offsets import SourceOffsets, Spans, TopicPartition
from calving.model.sink import Claim
from calving.protocol.coordinator import Committed, Coordinator, Failed, Intervals
from calving.protocol.effects import CommitTables
from calving.protocol.worker import BatchLimits, BatchOutcome, WorkerMachine
from calving.runtime.coordinator import CoordinatorLoop
from calving.runtime.policy import SourcePolicy
from calving.runtime.worker import WorkerLoop
from calving.source.interface import NOTHING, Bounds, Group, Listener
from calving.source.start import EARLIEST, Start
from calving.status.board import Board
from calving.status.cycle_times import CYCLE_STEPS, CycleTimes
from calving.status.values import SinkFacts

TP = TopicPartition("orders", 0)
TABLE = TableReference("iceberg", ("db",), "orders")


class OneMember(Group):
    """A group of one partition with records, which its only member has."""

    joined = True

    def __init__(self) -> None:
        self.end = 5
        self.waits: list[float] = []
        self._told = False

    def set_listener(self, listener: Listener) -> None:
        listener.assigned([TP])

    def poll(self, timeout: float, listener: Listener) -> None:
        self.waits.append(timeout)
        if not self._told:
            self._told = True
            listener.assigned([TP])

    def claim(self) -> Claim:
        return Claim("worker-1", None)

    def mirror(self, positions: SourceOffsets) -> None: ...

    def partitions(self) -> frozenset[TopicPartition]:
        return frozenset([TP])

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        return {}

    def bounds(self, partitions: Collection[TopicPartition], read_up_to: SourceOffsets = NOTHING) -> Bounds:
        return Bounds(dict.fromkeys(partitions, 0), dict.fromkeys(partitions, self.end))

    def starts(self, partitions: Collection[TopicPartition], start: Start) -> SourceOffsets:
        return dict.fromkeys(partitions, 0)

    def highs(self, partitions: Collection[TopicPartition]) -> SourceOffsets:
        return dict.fromkeys(partitions, self.end)

    def close(self) -> None: ...


class Batches:
    """The running batch ends when a test says so."""

    def __init__(self, times: CycleTimes) -> None:
        self._times = times
        self.running: Future[tuple[int, BatchOutcome]] | None = None
        self.number = 0

    def start(self, number: int, spans: Spans) -> None:
        self.running, self.number = Future(), number

    def end(self) -> None:
        assert self.running is not None
        self._times.mark("loaded")
        self._times.mark("batch")
        file = DataFile("s3://lake/1.parquet", "PARQUET", 5, 1200)
        now_us = int(time.time() * 1e6)
        outcome = BatchOutcome({TABLE: [TableFiles((file,))]}, {TP: now_us}, 5, 400, (), {TP: now_us - 3_000_000})
        self.running.set_result((self.number, outcome))

    def wait(self, timeout: float) -> None:
        assert self.running is not None
        wait([self.running], timeout)

    def poll(self) -> tuple[int, BatchOutcome] | None:
        if self.running is None or not self.running.done():
            return None
        running, self.running = self.running, None
        return running.result()


class OneTable:
    seen: ClassVar[Mapping[TableId, TableMark]] = {}

    def commit(self, request: CommitTables) -> Iterator[tuple[TableId, Committed | Failed]]:
        for table in request.tables:
            yield table, Committed(TABLE, snapshot_id=7)


class Sink:
    def __init__(self, interval: float = 5.0, *, asks: bool = False) -> None:
        self.board = Board(SinkFacts("s", "g", "m", "1", "memory", "local", 0.0, interval, 30.0))
        self.times = CycleTimes(time.monotonic, self.board.cycle)
        self.group, self.batches = OneMember(), Batches(self.times)
        session = self.session = MemoryBackend(SinkIdentity("sink", "group", "control"), store=MemoryStore()).open(
            "worker-1"
        )
        self.worker = WorkerLoop(
            group=self.group,
            session=session,
            cursor=session.follow(replay=False),
            runner=self.batches,
            machine=WorkerMachine(BatchLimits(1_000, 1_000_000), asks=asks),
            policy=SourcePolicy(EARLIEST, "fail", idle_seconds=0.0),
            clock=time.monotonic,
            times=self.times,
        )
        replay = session.follow(replay=True)
        self.coordinator = CoordinatorLoop(
            cursor=replay,
            committer=OneTable(),
            partitions=self.group.partitions,
            machine=Coordinator(Intervals(interval, 30.0, 5.0), replay.log.start, time.monotonic(), {}),
            clock=time.monotonic,
            fresh_id=uuid4,
            unknown=lambda asked: (),
            times=self.times,
        )

    def cycle(self) -> None:
        self.worker.step(0)  # the partition is assigned
        self.coordinator.step(0)  # StartCommit
        self.worker.step(0)  # a batch starts
        self.batches.end()
        self.worker.step(0)  # it is published
        self.coordinator.step(0)  # and committed
        self.worker.step(0)

    def answer_of_another(self) -> None:
        """An entry of another worker, which is none of this one's business."""
        self.session.publish(Publication((DataComplete(NO_COMMIT),), {}, {}), self.group.claim())


@pytest.fixture
def sink() -> Sink:
    return Sink()


def test_each_cycle_tells_what_it_spent_its_time_with(sink: Sink) -> None:
    sink.cycle()
    last = sink.coordinator.last
    assert last is not None and tuple(last.steps) == CYCLE_STEPS
    assert sum(last.steps.values()) == pytest.approx(last.seconds + last.steps["waited"], abs=0.005)
    assert {step: each.count for step, each in sink.board.status.cycle_steps.items()} == dict.fromkeys(CYCLE_STEPS, 1)


def test_the_longest_wait_of_the_records_is_observed_once_readers_see_them(sink: Sink) -> None:
    sink.cycle()
    latencies = sink.worker.publications.latencies
    assert latencies.count == 1 and latencies.sum == pytest.approx(3.0, abs=0.5)


def test_a_worker_that_waits_begins_as_soon_as_a_cycle_does(sink: Sink) -> None:
    sink.worker.step(0)
    threading.Timer(0.1, sink.coordinator.step, [0]).start()
    started = time.monotonic()
    sink.worker.step(30)
    assert sink.batches.running is not None
    assert time.monotonic() - started < 5


def test_a_worker_publishes_as_soon_as_its_batch_has_ended(sink: Sink) -> None:
    sink.worker.step(0)
    sink.coordinator.step(0)
    sink.worker.step(0)
    threading.Timer(0.1, sink.batches.end).start()
    started = time.monotonic()
    sink.worker.step(30)
    assert sink.worker.machine.positions == {TP: 5} and not sink.worker.machine.owes
    assert time.monotonic() - started < 5


def test_a_worker_without_partitions_waits_in_its_group(sink: Sink) -> None:
    sink.worker.step(3.0)
    sink.worker.step(0.01)
    assert sink.group.waits == [3.0, 0.0]


def test_what_is_no_beginning_of_a_cycle_does_not_end_a_workers_wait(sink: Sink) -> None:
    sink.cycle()
    sink.answer_of_another()
    steps, started = len(sink.group.waits), time.monotonic()
    sink.worker.step(0.2)
    assert time.monotonic() - started > 0.15 and len(sink.group.waits) == steps + 1


def test_entries_of_others_do_not_end_a_workers_wait(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    sink.cycle()
    reads: list[float] = []

    def read(self: MemoryCursor, timeout: float) -> Sequence[Envelope]:
        reads.append(timeout)
        time.sleep(0.01)
        return []

    monkeypatch.setattr(MemoryCursor, "read", read)
    steps = len(sink.group.waits)
    sink.worker.step(0.2)
    assert len(reads) > 3 and len(sink.group.waits) == steps + 1


def rested(interval: float, *, asks: bool) -> Sink:
    """After two cycles, of which the second had nothing to commit."""
    sink = Sink(interval, asks=asks)
    sink.cycle()
    while sink.coordinator.complete_cycles < 2:
        sink.coordinator.step(0.05)
        sink.worker.step(0)
    sink.worker.step(0)
    sink.group.end += 3
    return sink


def test_records_that_come_after_a_rest_are_committed_at_once_if_workers_ask() -> None:
    sink, started = rested(2.0, asks=True), time.monotonic()
    time.sleep(0.5)
    sink.worker.step(0)
    while sink.batches.running is None:
        sink.coordinator.step(0.01)
        sink.worker.step(0)
    assert time.monotonic() - started < 1.6
    sink.batches.end()
    sink.worker.step(0)
    sink.coordinator.step(0)
    last = sink.coordinator.last
    assert last is not None and last.outcome == "full" and last.steps["waited"] < 0.3


def test_records_that_come_after_a_rest_wait_for_the_interval_if_no_worker_asks() -> None:
    sink, started = rested(1.0, asks=False), time.monotonic()
    while sink.batches.running is None:
        sink.coordinator.step(0.01)
        sink.worker.step(0)
    assert time.monotonic() - started > 0.8


def test_a_cycle_begins_when_it_is_due_and_not_at_the_end_of_a_read() -> None:
    sink = Sink(1.0)
    sink.cycle()
    due, complete = sink.coordinator.machine.pace.due, sink.coordinator.machine.commit_id
    while sink.coordinator.machine.commit_id == complete:
        sink.coordinator.step(30)
    assert 0 <= sink.coordinator.machine.pace.started - due < 5
