"""The leader logs each commit cycle."""

from __future__ import annotations

import pytest

from calving.runtime.leading import cycle_text, is_full
from calving.status.values import CoordinatorStatus, Cycle


@pytest.mark.parametrize(
    ("unanswered", "said"),
    [
        ((), "lag 7"),
        (("s-0", "s-3"), "lag 7, PARTIAL: no answer for s-0, s-3"),
        (tuple(f"s-{n}" for n in range(12)), "s-9 and 2 more"),
    ],
)
def test_the_line_of_a_commit_says_whose_answers_it_lacks(unanswered: tuple[str, ...], said: str) -> None:
    cycle = Cycle("c", 0.0, "partial" if unanswered else "full", 1.0, 0.5, unanswered=unanswered)
    assert cycle_text(cycle, CoordinatorStatus(), 7).endswith(said)


def test_a_cycle_in_which_a_failing_table_is_not_tried_again_is_not_full() -> None:
    cycle = Cycle("c", 0.0, "empty", 1.0, 0.0, failed=0)
    assert is_full(cycle, {})
    assert not is_full(cycle, {"db.t": 1})


def test_a_cycle_without_the_answer_of_a_partition_is_not_full() -> None:
    assert not is_full(Cycle("c", 0.0, "partial", 1.0, 0.0, unanswered=("s-0",)), {})
