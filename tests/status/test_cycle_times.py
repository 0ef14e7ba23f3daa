"""What a commit cycle spends its time with, and how long records take until readers see them."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import uuid4

import pytest

from calving.model.offsets import Span, TopicPartition
from calving.status.cycle_times import CYCLE_STEPS, CycleTimes, Latencies

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
ID = uuid4()


class Times(CycleTimes):
    """With a clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        self.told: list[dict[str, float]] = []
        super().__init__(lambda: self.now, self._tell)

    def _tell(self, steps: Mapping[str, float]) -> None:
        self.told.append({step: round(seconds, 3) for step, seconds in steps.items()})

    def at(self, now: float) -> Times:
        self.now = now
        return self


def test_the_steps_of_a_cycle_add_up_to_its_time_since_it_was_due() -> None:
    times = Times()
    times.at(10.01).begins(ID, 10.0)
    times.at(10.03).hears(ID)
    for n, step in enumerate(("looked", "loaded", "batch", "seen", "published")):
        times.at(10.1 + n / 10).mark(step)
    for n, step in enumerate(("answered", "committed", "announced")):
        times.at(10.6 + n / 10).mark(step, ID)
    steps = times.ends(ID, leads=True)
    assert tuple(steps) == CYCLE_STEPS
    assert sum(steps.values()) == pytest.approx(0.8)
    assert times.told[0]["waited"] == 0.01 and times.told[0]["heard"] == 0.02 and times.told[0]["answered"] == 0.1


def test_a_worker_that_does_not_lead_knows_its_own_steps() -> None:
    times = Times()
    times.at(5.0).hears(ID)
    times.at(5.2).mark("batch")
    times.at(5.3).mark("published")
    assert times.ends(ID, leads=False) == pytest.approx({"batch": 0.2, "published": 0.1})


def test_a_cycle_of_this_process_ends_once_when_its_coordinator_has_announced_it() -> None:
    times = Times()
    times.begins(ID, 0.0)
    times.hears(ID)
    assert times.ends(ID, leads=False) == {}
    assert times.ends(ID, leads=True) and not times.ends(ID, leads=True)
    assert len(times.told) == 1


def test_a_repeated_start_of_a_cycle_is_heard_once() -> None:
    times = Times()
    times.begins(ID, 0.0)
    times.at(1.0).hears(ID)
    times.at(9.0).hears(ID)
    assert times.ends(ID, leads=True)["heard"] == 1.0


def test_what_a_batch_did_before_the_cycle_began_takes_no_time_of_it() -> None:
    times = Times()
    times.at(1.0).mark("loaded")
    times.at(2.0).begins(ID, 2.0)
    times.at(2.5).mark("batch")
    times.at(3.0).hears(ID)
    times.at(4.0).mark("seen")
    assert times.ends(ID, leads=True) == {"waited": 0.0, "heard": 1.0, "seen": 1.0}


def test_a_batch_after_the_answer_is_none_of_this_cycle() -> None:
    times = Times()
    times.hears(ID)
    times.at(1.0).mark("batch")
    times.at(2.0).mark("published")
    times.at(7.0).mark("batch")
    assert times.ends(ID, leads=False) == {"batch": 1.0, "published": 1.0}


def test_another_leaders_cycle_replaces_the_one_of_this_process() -> None:
    times, other = Times(), uuid4()
    times.begins(ID, 0.0)
    times.at(1.0).hears(other)
    times.at(2.0).mark("answered", ID)
    times.at(3.0).mark("published")
    assert times.ends(ID, leads=True) == {}
    assert times.ends(other, leads=False) == {"published": 2.0}


def test_a_record_is_visible_once_all_of_its_publication_is_settled() -> None:
    latencies = Latencies()
    latencies.published({A: 10, B: 5}, {A: 1_000_000, B: 3_000_000})
    latencies.published({A: 20, B: 5}, {A: 2_000_000})
    assert latencies.visible({A: (Span(0, 19),)}, 4_000_000) == [3.0]
    assert latencies.visible({A: (Span(0, 20),), B: (Span(0, 5),)}, 5_000_000) == [3.0, 2.0]
    assert latencies.visible({A: (Span(0, 20),), B: (Span(0, 5),)}, 9_000_000) == []


def test_the_longest_wait_of_a_partition_that_is_not_committed_for_long_is_kept() -> None:
    latencies = Latencies()
    for end in range(1, 101):
        latencies.published({A: end}, {A: end * 1_000_000})
    waits = latencies.visible({A: (Span(0, 100),)}, 200_000_000)
    assert len(waits) == 16 and max(waits) == 199.0
