"""How far a worker is behind, and how fast it catches up."""

from __future__ import annotations

import time
from functools import partial
from types import SimpleNamespace
from typing import cast
from uuid import UUID, uuid4

import pytest

from calving.model.events import DataComplete, Envelope
from calving.model.offsets import Span, TopicPartition
from calving.runtime.batch import BatchRunner
from calving.runtime.reporting import Reporter
from calving.runtime.worker import WorkerLoop
from calving.status.backlog import Backlog, Published
from calving.status.board import Board
from calving.status.values import Batches, RecordCounts, SinkFacts

HELD = frozenset({TopicPartition("t", 0)})
CATCHING_UP = ((0.0, 0, 1_000), (10.0, 300, 700), (20.0, 600, 400))


def after(*looks: tuple[float, int, int | None], held: frozenset[TopicPartition] = HELD) -> Backlog:
    """A backlog after looks at a worker: when, records read, records to read."""
    backlog = Backlog()
    for now, read, behind in looks:
        backlog = backlog.then(now, read, behind, held)
    return backlog


def test_before_the_ends_are_known_nothing_is_known() -> None:
    backlog = after((0.0, 0, None))
    assert (backlog.behind, backlog.share, backlog.rate(0.0), backlog.pace) == (None, None, None, "unknown")
    assert backlog.seconds_left(0.0) is None


def test_before_the_first_batch_ends_its_speed_is_not_known() -> None:
    backlog = after((0.0, 0, 1_000), (5.0, 0, 1_000))
    assert (backlog.share, backlog.rate(5.0), backlog.pace) == (0.0, None, "unknown")


def test_a_worker_that_catches_up_has_a_speed_a_share_and_a_time() -> None:
    backlog = after((0.0, 0, 1_000), (10.0, 300, 800), (20.0, 600, 600))
    assert (backlog.rate(20.0), backlog.seconds_left(20.0), backlog.share) == (30.0, 30.0, 0.5)
    assert backlog.pace == "catching-up"


def test_a_worker_that_reads_less_than_comes_falls_behind_and_has_no_time() -> None:
    backlog = after((0.0, 0, 1_000), (10.0, 300, 1_200), (20.0, 600, 1_400))
    assert (backlog.pace, backlog.seconds_left(20.0)) == ("falling-behind", None)


def test_a_worker_whose_batches_read_nearly_all_keeps_up() -> None:
    assert after((0.0, 0, 100), (10.0, 100, 5), (19.0, 100, 90)).pace == "keeping-up"


def test_a_speed_falls_while_a_batch_takes_longer_than_all_before() -> None:
    backlog = after((0.0, 0, 1_000), (10.0, 300, 700), (20.0, 600, 400))
    assert backlog.rate(30.0) == 30.0
    assert backlog.rate(50.0) == 15.0


def test_speeds_are_those_of_the_last_minute() -> None:
    looks = [(10.0 * n, 10 * n if n < 20 else 200 + 1_000 * (n - 20), 10**6 - n) for n in range(40)]
    assert after(*looks).rate(390.0) == 100.0


def test_long_batches_are_measured_over_two_of_them_at_least() -> None:
    assert after((0.0, 0, 9_000), (300.0, 3_000, 6_000), (600.0, 6_000, 3_000)).rate(600.0) == 10.0


def test_many_short_batches_keep_few_marks() -> None:
    assert len(after(*((0.01 * n, n, 10_000 - n) for n in range(9_000))).marks) < 100


def test_time_without_records_is_no_slow_reading() -> None:
    idle = after((0.0, 0, 100), (1.0, 100, 0))
    assert idle.rate(400.0) == 0.0
    late = idle.then(500.0, 100, 1_000, HELD).then(510.0, 600, 500, HELD)
    assert (late.rate(510.0), late.share) == (50.0, 0.5)


def test_speeds_are_measured_anew_when_partitions_come_or_go() -> None:
    backlog = after((0.0, 0, 1_000), (10.0, 500, 500)).then(11.0, 500, 90_000, HELD | {TopicPartition("t", 1)})
    assert (backlog.rate(11.0), backlog.pace, backlog.share) == (None, "unknown", 0.0)


def test_speeds_are_measured_anew_when_as_many_other_partitions_come() -> None:
    backlog = after(*CATCHING_UP).then(21.0, 900, 9, frozenset({TopicPartition("t", 1)}))
    assert (backlog.rate(21.0), backlog.pace, backlog.seconds_left(21.0)) == (None, "unknown", None)


def test_a_worker_that_reads_nothing_while_more_comes_falls_behind_and_has_no_time() -> None:
    waits = after(*CATCHING_UP, *((20.0 + n, 600, 400 + 10 * n) for n in range(1, 200)))
    assert (waits.pace, waits.seconds_left(219.0), len(waits.marks)) == ("falling-behind", None, 4)
    assert waits.rate(219.0) == pytest.approx(600 / 219)
    reads = waits.then(220.0, 2_600, 0, HELD)
    assert [mark.at for mark in reads.marks] == [10.0, 20.0, 220.0]


def test_a_batch_that_takes_no_longer_than_those_before_is_no_wait() -> None:
    backlog = after((0.0, 0, 9_000), (300.0, 3_000, 6_000), (590.0, 3_000, 8_999))
    assert (backlog.rate(590.0), backlog.pace) == (10.0, "catching-up")


def test_a_clock_that_is_set_back_changes_no_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    board = Board(SinkFacts("s", "g", "m", "0", "kafka", "local", 0.0, 10.0, 5.0))
    reporter, tp = Reporter(board), TopicPartition("t", 0)
    for n in range(6):
        wall = 5_000.0 if n < 3 else 1_000.0
        monkeypatch.setattr(time, "monotonic", lambda n=n: 10.0 * n)
        monkeypatch.setattr(time, "time", lambda n=n, wall=wall: wall + 10.0 * n)
        machine = SimpleNamespace(positions={tp: 300 * n}, held=frozenset({tp}))
        loop = SimpleNamespace(version=n, machine=machine, ends={tp: 9_000}, latest_us={}, arrivals={})
        loop.paused_ms, loop.unsigned, loop.undecodable, loop.hidden = None, "", 0, SimpleNamespace(records=0)
        loop.skipped, loop.passed_over, loop.unread = {}, {}, {}
        runner = SimpleNamespace(totals=Batches(n, records=RecordCounts({"t": 300 * n})))
        step = partial(reporter.step, cast(WorkerLoop, loop), cast(BatchRunner, runner))
        step(joined=True, leads=False, caught_up=True)
    backlog = board.status.worker.backlog
    assert (backlog.rate(1_050.0), backlog.seconds_left(1_050.0)) == (30.0, 250.0)


def publication(at: float, end: int, start: int = 0, partition: int = 0, cycle: int | None = None) -> Envelope:
    """One of the cycle that has this number; of a cycle of its own if it is None, and of no cycle if it is 0."""
    spans = {TopicPartition("t", partition): (Span(start, end),)}
    commit_id = uuid4() if cycle is None else UUID(int=cycle)
    return Envelope(0, int(at), DataComplete(commit_id), spans, at_us=int(at * 1e6))


def rate(entries: list[Envelope], now: float, interval: float = 10.0) -> float | None:
    published = Published()
    for entry in entries:
        published.hear(entry)
    return published.rate(now, interval)


TEN_WORKERS = [
    publication(100 + 299 * c + 0.01 * w, 1_000 * c, 1_000 * (c - 1), w, c) for c in (1, 2) for w in range(10)
]


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([], None),
        ([publication(100, 500)], None),
        ([publication(100, 500), publication(110, 900), publication(120, 1_300)], 40.0),
        ([publication(100, 500), publication(110, 500), publication(120, 900)], 20.0),
        ([publication(100, 500, cycle=1), publication(110, 300, partition=1, cycle=2)], 30.0),
        ([publication(100, 500), publication(100, 900, 500)], None),
        ([publication(100, 500, cycle=1), publication(100.05, 500, partition=1, cycle=1)], None),
        ([publication(100, 500), publication(105, 700, cycle=0), publication(110, 900)], 40.0),
    ],
    ids=["none", "one", "three", "one that adds nothing", "two", "at once", "one cycle of two workers", "a handover"],
)
def test_the_speed_of_all_workers_is_that_of_their_cycles(entries: list[Envelope], expected: float | None) -> None:
    assert rate(entries, 120.0) == expected
    assert rate(entries, 10_000.0) is None  # they are too old to tell anything


def test_all_workers_of_a_cycle_count_for_the_time_since_the_cycle_before() -> None:
    assert rate(TEN_WORKERS, 710.0, 300.0) == pytest.approx(10_000 / 299)


def test_a_sink_that_publishes_nothing_for_longer_than_usual_is_slower() -> None:
    hangs = [publication(100 + n, 1_000 * (n + 1)) for n in range(5)]
    assert rate(hangs, 105.0) == 1_000.0
    assert rate(hangs, 695.0) == pytest.approx(4_000 / 594)


def test_a_publication_from_a_clock_in_the_future_counts_for_nothing() -> None:
    assert rate([publication(5_000, 500, cycle=1), publication(100, 900), publication(110, 1_300)], 120.0) == 40.0


def test_cycles_that_are_far_apart_by_their_interval_have_a_speed() -> None:
    assert rate([publication(1_000, 500), publication(4_600, 36_500)], 5_000.0, 3_600.0) == 10.0
