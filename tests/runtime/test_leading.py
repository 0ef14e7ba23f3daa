"""The leader logs each commit cycle."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from calving.retries import Retries
from calving.runtime.leading import Leadership, cycle_text, is_full
from calving.status.values import CommitCycle, CoordinatorStatus


@pytest.mark.parametrize(
    ("unanswered", "said"),
    [
        ((), "7 records to read"),
        (("s-0", "s-3"), "7 records to read, PARTIAL: no answer for s-0, s-3"),
        (tuple(f"s-{n}" for n in range(12)), "s-9 and 2 more"),
    ],
)
def test_the_line_of_a_commit_says_whose_answers_it_lacks(unanswered: tuple[str, ...], said: str) -> None:
    cycle = CommitCycle("c", 0.0, "partial" if unanswered else "full", 1.0, 0.5, unanswered=unanswered)
    assert cycle_text(cycle, CoordinatorStatus(), 7).endswith(said)


@pytest.mark.parametrize(("committed", "said"), [(0, "0 tables"), (1, "1 table"), (2, "2 tables")])
def test_the_line_of_a_commit_counts_its_tables(committed: int, said: str) -> None:
    cycle = CommitCycle("c", 0.0, "full", 1.0, 0.5, committed=committed)
    text = cycle_text(cycle, CoordinatorStatus(), 7)
    assert text == f"c: {said}, 0 failed, 0.50 s (1.00 s after its start), 7 records to read"


def test_records_to_read_are_left_out_before_they_are_known() -> None:
    text = cycle_text(CommitCycle("c", 0.0, "full", 1.0, 0.5), CoordinatorStatus(), None)
    assert text == "c: 0 tables, 0 failed, 0.50 s (1.00 s after its start)"


def test_a_cycle_in_which_a_failing_table_is_not_tried_again_is_not_full() -> None:
    cycle = CommitCycle("c", 0.0, "empty", 1.0, 0.0, failed=0)
    assert is_full(cycle, {})
    assert not is_full(cycle, {"db.t": 1})


def test_a_cycle_without_the_answer_of_a_partition_is_not_full() -> None:
    assert not is_full(CommitCycle("c", 0.0, "partial", 1.0, 0.0, unanswered=("s-0",)), {})


@dataclass
class Hanging:
    """A coordinator's thread that makes no progress; ``has_moved``: after some."""

    moved: float
    has_moved: bool = False
    caught_up: bool = False
    complete_cycles: int = 0
    ended: bool = False
    place: str = "in read"

    def stop(self) -> None: ...


class Led:
    """A process that leads, whose time is an argument. One step of its coordinators may take 45 s."""

    def __init__(self, *works: bool) -> None:
        self.now, self.works = 0.0, list(works)
        self.leadership = Leadership(self._start, 30.0, Retries(60.0), lambda: self.now, lambda: 0.0)  # type: ignore[arg-type]

    def _start(self) -> Hanging:
        return Hanging(self.now, has_moved=self.works.pop(0))

    def still(self, now: float, *, leads: bool = True) -> float | None:
        """For how many of its longest steps no coordinator has made progress."""
        self.now = now
        self.leadership.update(leads)
        moved = self.leadership.moved
        return None if moved is None else (now - moved) / self.leadership.step_seconds


def test_a_successor_that_hangs_as_well_does_not_hide_that_nothing_goes_on() -> None:
    led = Led(True, False)
    assert led.still(0.0) == 0
    assert led.still(91.0) == pytest.approx(91 / 45)  # where the first one is abandoned
    assert led.still(136.0) == pytest.approx(136 / 45)


def test_a_successor_that_goes_on_is_progress() -> None:
    led = Led(True, True)
    led.still(0.0)
    led.still(91.0)
    assert led.still(92.0) == pytest.approx(1 / 45)


def test_a_process_that_does_not_lead_needs_no_coordinator() -> None:
    led = Led(True, False)
    led.still(0.0)
    led.still(91.0)
    assert led.still(200.0, leads=False) is None
