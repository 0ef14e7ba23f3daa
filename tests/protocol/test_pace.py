"""When commit cycles begin."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from calving.protocol.pace import LEAST_SECONDS, Pace


def test_the_first_cycle_is_due_at_once_and_each_later_one_an_interval_after_the_start_of_the_last() -> None:
    pace = Pace(10.0, 100.0)
    assert pace.due == 100.0
    pace.begin(103.0)
    assert pace.due == 113.0


def test_a_cycle_that_a_worker_asks_for_begins_at_once_after_a_rest() -> None:
    pace = Pace(10.0, 0.0)
    pace.begin(0.0)
    pace.work()
    pace.begin(10.0)
    pace.want()
    assert pace.due == 10.0 + LEAST_SECONDS


def test_a_cycle_that_a_worker_asks_for_waits_for_an_interval_after_the_last_one_with_something_to_commit() -> None:
    pace = Pace(10.0, 0.0)
    pace.begin(0.0)
    pace.begin(8.0)
    pace.work()
    pace.begin(9.0)
    pace.want()
    assert pace.due == 18.0


def test_a_request_is_met_by_the_next_cycle() -> None:
    pace = Pace(10.0, 0.0)
    pace.begin(0.0)
    pace.want()
    pace.begin(1.0)
    assert pace.due == 11.0


@given(st.lists(st.sampled_from(["want", "work", "wait"]), max_size=60))
def test_however_often_workers_ask_cycles_keep_their_distance(acts: list[str]) -> None:
    pace, now, worked = Pace(10.0, 0.0), 0.0, -10.0
    pace.begin(now)
    for act in acts:
        if act == "want":
            pace.want()
        elif act == "work":
            pace.work()
            worked = now
        else:
            assert pace.started + LEAST_SECONDS <= pace.due <= pace.started + 10.0
            assert pace.due >= min(worked, pace.started) + 10.0
            now = pace.due
            pace.begin(now)
