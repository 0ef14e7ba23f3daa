"""The chains of versions, beside those of a timeline that knows only when each row begins and ends to be there."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest

from calving.mutations.versions import EVER, KeyVersion, VersionChange, revised

Step = list[tuple[int, int, int | None]]
"""Changes: the key, the time, and the number of the row that comes; None: a delete."""


def chained(steps: list[Step], *, is_ordered: bool) -> dict[tuple[int, int], tuple[int, int | None]]:
    """For each key and row the time from which on and until which it is there. What a step adds has no ends yet."""
    rows: dict[int, tuple[int, int, int, int | None]] = {}
    changes = []
    for number, step in enumerate(steps):
        for key, at, row in step:
            changes.append(VersionChange(key, number, at, row is None))
            if row is not None:
                rows[row] = key, number, at, None
    numbers = [*rows]
    versions = [KeyVersion(*rows[row]) for row in numbers]
    left = {(each.key, row): (each.begin, each.end) for row, each in zip(numbers, versions, strict=True)}
    for place, version in revised(versions, changes, is_ordered=is_ordered):
        name = versions[place].key, numbers[place]
        if version is None:
            del left[name]
        else:
            left[name] = version.begin, version.end
    return left


class Timeline:
    """Of each key: which row is there from a moment on, until the next moment."""

    def __init__(self) -> None:
        self.moments: dict[int, dict[int, int | None]] = defaultdict(dict)

    def take(self, step: Step) -> None:
        for key, at, row in sorted(step, key=lambda each: each[1]):
            moments = self.moments[key]
            if row is None and at in moments:
                moments[at] = None
            elif row is not None or self.there(key, at) is not None:
                moments[at] = row
            for moment in sorted(moments):
                if moments[moment] is None and self.there(key, moment - 1) is None:
                    del moments[moment]

    def there(self, key: int, at: int) -> int | None:
        past = [moment for moment in self.moments[key] if moment <= at]
        return self.moments[key][max(past)] if past else None

    def found(self) -> dict[tuple[int, int], tuple[int, int | None]]:
        return {
            (key, row): (moment, min((each for each in moments if each > moment), default=None))
            for key, moments in self.moments.items()
            for moment, row in moments.items()
            if row is not None
        }


@pytest.mark.parametrize("seed", range(200))
def test_late_changes_leave_what_a_timeline_has(seed: int) -> None:
    chance = random.Random(seed)
    row = iter(range(1_000))
    timeline, steps = Timeline(), []
    for _ in range(chance.randrange(1, 8)):
        places = {(chance.randrange(3), chance.randrange(30)) for _ in range(chance.randrange(9))}
        steps.append([(key, at, None if chance.random() < 0.3 else next(row)) for key, at in sorted(places)])
        timeline.take(steps[-1])
    assert chained(steps, is_ordered=True) == timeline.found()


def test_a_late_row_splits_the_version_that_contains_it() -> None:
    assert chained([[(1, 10, 0)], [(1, 20, 1)], [(1, 15, 2)]], is_ordered=True) == {
        (1, 0): (10, 15),
        (1, 2): (15, 20),
        (1, 1): (20, None),
    }


def test_a_row_in_a_gap_lives_until_the_next_version_begins() -> None:
    steps: list[Step] = [[(1, 10, 0)], [(1, 12, None)], [(1, 20, 1)], [(1, 15, 2)]]
    assert chained(steps, is_ordered=True)[1, 2] == (15, 20)


def test_a_delete_without_a_version_leaves_no_memory() -> None:
    assert chained([[(1, 20, None)], [(1, 10, 0)]], is_ordered=True) == {(1, 0): (10, None)}


def test_a_row_of_the_same_time_replaces_a_version_and_ends_when_that_did() -> None:
    assert chained([[(1, 10, 0)], [(1, 20, 1)], [(1, 10, 2)]], is_ordered=True) == {
        (1, 2): (10, 20),
        (1, 1): (20, None),
    }


def test_a_delete_of_the_same_time_removes_a_version() -> None:
    assert chained([[(1, 10, 0)], [(1, 20, 1)], [(1, 20, None)]], is_ordered=True) == {(1, 0): (10, 20)}


def test_without_an_order_no_version_begins_before_the_one_before_it() -> None:
    assert chained([[(1, 10, 0)], [(1, 5, 1)], [(1, 20, 2)]], is_ordered=False) == {
        (1, 0): (10, 10),
        (1, 1): (10, 20),
        (1, 2): (20, None),
    }


def test_without_an_order_a_row_behind_a_delete_begins_after_it() -> None:
    assert chained([[(1, 10, 0)], [(1, 30, None)], [(1, 20, 1)]], is_ordered=False) == {
        (1, 0): (10, 30),
        (1, 1): (30, None),
    }


@pytest.mark.parametrize("is_ordered", [True, False])
def test_a_row_from_before_the_history_ends_with_the_first_change(is_ordered: bool) -> None:
    versions = [KeyVersion(1, -1, EVER, None), KeyVersion(1, 0, 7, None)]
    (found,) = revised(versions, [VersionChange(1, 0, 7, False)], is_ordered=is_ordered)
    assert (found.place, found.version and (found.version.begin, found.version.end)) == (0, (EVER, 7))
