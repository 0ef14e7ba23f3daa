"""Silence and hangs are detected, and answered."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import cast
from uuid import uuid4

import pytest

from calving.errors import (
    CalvingError,
    EngineLostError,
    FencedError,
    GaveUpError,
    JobFailedError,
    OutcomeUnknownError,
    ResignedError,
    UnavailableError,
    UnexpectedError,
    UnreachableError,
)
from calving.iceberg.attempts import Attempts, Raised, UnfinishedAttempt
from calving.model.events import Attachment, CommitComplete, CommitToTable, DataWritten, Envelope, TableReference
from calving.model.offsets import Span, TopicPartition
from calving.protocol.held_back import DEGRADED, OldestPublications
from calving.retries import Failures, Retries
from calving.runtime.leading import CoordinatorThread, Leadership
from calving.runtime.log_health import HIDDEN_SECONDS, OpenTransactions, SilenceDetector
from calving.threads import EXIT_CODE, LateError, SerialThread, Steps, Watchdog, within

TP = TopicPartition("s", 0)
TABLE = TableReference("c", ("db",), "t")


@pytest.fixture
def never() -> threading.Event:
    """Blocks a call until it is set."""
    return threading.Event()


# Attempts at tables


def test_a_commit_that_hangs_keeps_no_other_table_waiting(never: threading.Event) -> None:
    attempts = Attempts(2, 0.2)
    jobs = {"a": never.wait, **dict.fromkeys("bcdef", lambda: True)}
    found = dict(attempts.run(jobs))
    assert [found[key] for key in "bcdef"] == [True] * 5
    assert isinstance(found["a"], UnfinishedAttempt) and "still committing" in found["a"].reason
    never.set()


def test_a_table_whose_commit_hangs_is_not_committed_a_second_time_until_it_has_ended(never: threading.Event) -> None:
    attempts = Attempts(2, 1.0)
    dict(attempts.run({"a": never.wait}))
    began = time.monotonic()
    assert isinstance(dict(attempts.run({"a": lambda: True}))["a"], UnfinishedAttempt)
    assert time.monotonic() - began < 1.0, "nobody waits for it again"
    never.set()
    deadline = time.monotonic() + 60
    while isinstance(dict(attempts.run({"a": lambda: True}))["a"], UnfinishedAttempt):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_where_every_commit_hangs_a_cycle_takes_no_longer_than_a_few(never: threading.Event) -> None:
    began = time.monotonic()
    found = dict(Attempts(2, 0.2).run(dict.fromkeys(range(100), never.wait)))
    assert len(found) == 100 and all(isinstance(result, UnfinishedAttempt) for result in found.values())
    assert time.monotonic() - began < 2
    assert found[99] == UnfinishedAttempt("not tried: 2 commits before it did not come back in 0 s")
    one = dict(Attempts(1, 0.1).run({"a": never.wait, "b": never.wait}))
    assert one["b"] == UnfinishedAttempt("not tried: 1 commit before it did not come back in 0 s")
    never.set()


def test_the_error_of_a_commit_is_its_result_at_once() -> None:
    error = ZeroDivisionError("after the commit")

    def fail() -> bool:
        raise error

    attempts = Attempts(2, 60.0)
    began = time.monotonic()
    assert dict(attempts.run({"a": fail, "b": lambda: True})) == {"a": Raised(error), "b": True}
    assert dict(attempts.run({"a": lambda: True})) == {"a": True}
    assert time.monotonic() - began < 10


def test_a_call_that_hangs_is_given_up_and_one_that_answers_is_not(never: threading.Event) -> None:
    assert within(1.0, "test", lambda: 7) == 7
    with pytest.raises(LateError):
        within(0.05, "test", never.wait)
    with pytest.raises(TimeoutError, match="its own"):
        within(1.0, "test", lambda: (_ for _ in ()).throw(TimeoutError("its own")))
    never.set()


def test_a_commit_waits_for_the_turn_at_its_table_and_is_not_late_for_it() -> None:
    attempts, order = Attempts(2, 60.0), list[str]()
    with ThreadPoolExecutor() as pool, attempts.turn("a"):
        done = pool.submit(lambda: dict(attempts.run({"a": lambda: order.append("a"), "b": lambda: order.append("b")})))
        until(lambda: order == ["b"])
        order.append("turn")
    assert done.result() == {"a": None, "b": None} and order == ["b", "turn", "a"]


def test_a_commit_goes_on_beside_a_turn_that_hangs_and_has_all_its_time() -> None:
    attempts = Attempts(2, 0.2)
    with attempts.turn("a"):
        began = time.monotonic()
        assert dict(attempts.run({"a": lambda: time.sleep(0.15)})) == {"a": None}
        assert time.monotonic() - began > 0.3
        assert dict(attempts.run({"a": lambda: True})) == {"a": True}
        assert time.monotonic() - began < 5, "the next one does not wait for it again"


def test_a_turn_comes_between_two_cycles_and_not_at_a_table_whose_commit_hangs(never: threading.Event) -> None:
    attempts, order = Attempts(1, 0.5), list[str]()

    def commit() -> None:
        time.sleep(0.1)
        order.append("commit")

    with ThreadPoolExecutor() as pool:
        cycle = pool.submit(lambda: dict(attempts.run({"a": commit})))
        until(lambda: bool(attempts._began))
        with attempts.turn("b"):
            order.append("turn")
        cycle.result()
    assert order == ["commit", "turn"]
    dict(attempts.run({"a": never.wait}))
    with attempts.turn("b"), pytest.raises(UnavailableError, match="have not ended"), attempts.turn("a"):
        pass
    never.set()


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


# Failures


def test_an_error_that_nobody_knows_stops_the_sink_once_it_has_lasted_too_long() -> None:
    failures = Failures(Retries(600.0))
    for second in range(0, 600, 10):
        assert failures.add(UnexpectedError(f"{second} teapots"), 0, float(second)) <= 10.0
    with pytest.raises(GaveUpError, match=r"retried for 600 s, as errors\.retry\.timeout allows.*: 600 teapots"):
        failures.add(UnexpectedError("600 teapots"), 0, 600.0)


def test_a_job_that_fails_is_bounded_in_the_same_way() -> None:
    failures = Failures(Retries(1.0))
    failures.add(JobFailedError("task 1: no module named 'x'"), 0, 0.0)
    with pytest.raises(GaveUpError, match="no module named 'x'"):
        failures.add(JobFailedError("task 2: no module named 'x'"), 0, 2.0)


def test_without_a_timeout_the_first_unknown_error_is_the_last() -> None:
    with pytest.raises(GaveUpError):
        Failures(Retries(0.0)).add(UnexpectedError("teapot"), 0, 5.0)


def test_with_an_endless_timeout_unknown_errors_are_retried_for_ever() -> None:
    failures = Failures(Retries(float("inf")))
    assert [failures.add(UnexpectedError("teapot"), 0, float(day * 86_400)) for day in range(100)][-1] == 10.0


@pytest.mark.parametrize(
    "kind", [UnavailableError, UnreachableError, OutcomeUnknownError, FencedError, EngineLostError]
)
def test_what_passes_by_itself_is_tried_for_ever(kind: type[CalvingError]) -> None:
    failures = Failures(Retries(0.0))
    assert [failures.add(kind("away"), 0, float(day * 86_400)) for day in range(100)][-1] == 2.0


def test_unknown_errors_before_and_after_a_publication_do_not_add_up() -> None:
    failures = Failures(Retries(600.0))
    for publications in range(100):
        failures.add(JobFailedError("the disk is full"), publications, publications * 1_000.0)


def test_unknown_errors_before_and_after_an_outage_do_not_add_up() -> None:
    failures = Failures(Retries(600.0))
    for hour in range(10):
        failures.add(UnexpectedError("odd answer"), 0, hour * 3_600.0)
        failures.add(UnavailableError("away"), 0, hour * 3_600.0 + 1)


def test_an_outage_now_and_then_does_not_begin_the_time_of_unknown_errors_again() -> None:
    failures, now = Failures(Retries(600.0)), 0.0

    def fail(error: CalvingError) -> None:
        nonlocal now
        now += failures.add(error, 0, now)

    with pytest.raises(GaveUpError, match="poison"):
        while now < 3_600:
            fail(JobFailedError("poison"))
            fail(UnavailableError("away"))
    assert 600 <= now < 800


def test_a_coordinator_that_ends_with_an_unknown_error_again_and_again_stops_the_sink() -> None:
    clock = [0.0]
    leads, made = leadership(lambda: clock[0], 60.0)

    def fail_until(end: float, error: BaseException) -> None:
        while clock[0] < end:
            with contextlib.suppress(ResignedError):
                leads.update(True)
            made[-1].ended, made[-1].error = True, error
            clock[0] += 1.0

    fail_until(300.0, UnavailableError("the store is away"))
    fail_until(350.0, TypeError("no table is None"))
    with pytest.raises(GaveUpError, match="TypeError: no table is None"):
        fail_until(400.0, TypeError("no table is None"))
    assert clock[0] < 370.0


# The control log


def test_a_worker_that_does_not_hear_what_it_published_is_deaf() -> None:
    ear = SilenceDetector(float("inf"), 0.0)
    ear.spoke(0.0)
    with pytest.raises(UnexpectedError, match="has not heard its own publication"):
        for second in range(60):
            ear.listened(float(second), heard=False)


def test_a_worker_that_hears_nothing_for_longer_than_a_cycle_takes_is_deaf() -> None:
    ear = SilenceDetector(60.0, 0.0)
    for second in range(90):
        ear.listened(float(second), heard=False)
    with pytest.raises(UnexpectedError, match="has heard nothing"):
        ear.listened(91.0, heard=False)


def test_a_worker_that_hears_something_now_and_then_is_not_deaf() -> None:
    ear = SilenceDetector(60.0, 0.0)
    for second in range(1000):
        ear.spoke(float(second))
        ear.listened(float(second), heard=second % 25 == 0)


def written(start: int, end: int) -> Envelope:
    return Envelope(0, start, DataWritten(uuid4(), TABLE, ()), {TP: (Span(start, end),)})


def complete(settled: int) -> Envelope:
    return Envelope(0, settled, CommitComplete(uuid4(), None), attached=Attachment({TP: (Span(0, settled),)}))


def test_every_worker_can_tell_which_table_is_not_committed() -> None:
    waiting = OldestPublications()
    waiting.hear(written(5, 9))
    for _ in range(DEGRADED):
        waiting.hear(complete(5))
    assert waiting.degraded == {TABLE.identifier: DEGRADED}
    waiting.hear(complete(9))
    assert waiting.degraded == {}


def test_a_table_that_is_committed_is_not_degraded_for_what_its_publications_hold_for_another_one() -> None:
    waiting = OldestPublications()
    other = TableReference("c", ("db",), "other")
    for cycle in range(10):
        waiting.hear(written(cycle, cycle + 1))
        waiting.hear(replace(written(cycle, cycle + 1), event=DataWritten(uuid4(), other, ())))
        waiting.hear(Envelope(0, cycle, CommitToTable(uuid4(), TABLE, cycle + 1, None), {}))
        waiting.hear(complete(0))
    assert waiting.degraded.keys() == {other.identifier}


def test_a_table_that_is_committed_in_every_cycle_is_not_degraded() -> None:
    waiting = OldestPublications()
    for end in range(1, 100):
        waiting.hear(written(end - 1, end))
        waiting.hear(complete(end))
        assert waiting.degraded == {}


def test_a_source_transaction_that_stays_open_is_counted_and_told_once() -> None:
    hidden = OpenTransactions()
    assert hidden.look(0.0, {TP: 10}, {TP: 15}) == []
    assert hidden.records == 5
    assert hidden.look(HIDDEN_SECONDS, {TP: 10}, {TP: 17}) == [TP]
    assert hidden.look(HIDDEN_SECONDS + 10, {TP: 10}, {TP: 18}) == []
    assert hidden.look(HIDDEN_SECONDS + 20, {TP: 18}, {TP: 18}) == []
    assert hidden.records == 0


# The process


class Ended(Exception):
    pass


def test_a_worker_that_stands_still_ends_itself_and_says_where_it_hangs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    codes: list[int] = []
    ended = threading.Event()
    steps = Steps("the worker", 0.1)

    def end(code: int) -> None:
        codes.append(code)
        ended.set()

    reasons: list[str] = []
    Watchdog(steps.stalled, reasons.append, end)
    within(10, "test", ended.wait)
    assert codes == [EXIT_CODE] and [why.split(" for ")[0] for why in reasons] == ["the worker has stood still"]
    assert "the worker has stood still for" in caplog.text
    assert "in _ended (calving/threads.py" in caplog.text


def test_jobs_run_one_after_the_other_and_one_that_nobody_wants_does_not_run(never: threading.Event) -> None:
    serial: SerialThread[int] = SerialThread("test")
    first = serial.submit(lambda: int(never.wait()))
    second, third = serial.submit(lambda: 2), serial.submit(lambda: 3)
    second.cancel()
    while not serial.seconds:
        time.sleep(0.01)
    assert "in wait" in serial.place
    never.set()
    assert (first.result(60), third.result(60)) == (1, 3)
    assert second.cancelled()


class FakeCoordinator:
    """A coordinator's thread, as its leader sees it."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.ended = self.stopped = self.caught_up = False
        self.moved = 0.0
        self.has_moved = True
        self.complete_cycles = 0
        self.place = "somewhere"

    def stop(self) -> None:
        self.stopped = True


def leadership(now: Callable[[], float], retry_seconds: float = 0.0) -> tuple[Leadership, list[FakeCoordinator]]:
    made: list[FakeCoordinator] = []

    def start() -> FakeCoordinator:
        made.append(FakeCoordinator())
        made[-1].moved = now()
        return made[-1]

    made_by = cast("Callable[[], CoordinatorThread]", start)
    return Leadership(made_by, 10.0, Retries(retry_seconds), now, lambda: 0.0), made


def test_a_coordinator_that_hangs_is_replaced_and_nobody_waits_for_it() -> None:
    clock = [0.0]
    leads, made = leadership(lambda: clock[0])
    leads.update(True)
    clock[0] = 49.0
    leads.update(True)
    assert len(made) == 1
    clock[0] = 51.0
    leads.update(True)
    assert made[0].stopped and len(made) == 2


def test_a_process_whose_coordinators_get_nothing_done_lets_another_one_lead() -> None:
    clock = [0.0]
    leads, made = leadership(lambda: clock[0])
    with pytest.raises(ResignedError, match="coordinators of this process in a row made no progress"):
        while clock[0] < 300:
            leads.update(True)
            clock[0] += 1
    assert len(made) >= 3


def test_a_process_whose_coordinators_end_at_once_for_a_moment_goes_on_leading() -> None:
    clock = [0.0]
    leads, made = leadership(lambda: clock[0])
    while clock[0] < 10:
        leads.update(True)
        made[-1].ended, made[-1].error = True, UnavailableError("the store is away")
        clock[0] += 0.5
    leads.update(True)
    made[-1].complete_cycles = 1
    clock[0] = 100.0
    made[-1].moved = 100.0
    leads.update(True)
