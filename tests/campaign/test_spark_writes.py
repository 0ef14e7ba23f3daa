"""Drivers and their workers are killed at random moments, a few times: see ``make spark-kills``, which has more kinds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from campaign.spark_job import RIGHT, expected, judged
from campaign.spark_writes import VERDICT, run

KILLS = int(os.environ.get("CALVING_KILLS", "3"))


@pytest.mark.services
@pytest.mark.long
def test_every_row_is_there_once_whatever_was_killed(tmp_path: Path) -> None:
    found = run(tmp_path, "changes", KILLS, 6)
    assert {name: found[name] for name in VERDICT} == dict.fromkeys(VERDICT, 0), found


def test_the_expected_rows_are_those_of_a_dict_with_the_same_changes() -> None:
    rows: dict[int, int] = {}
    for value in range(30):
        rows[value % 7] = value
        if value % 5 == 0:
            del rows[value % 7]
    assert expected("changes", 3) == expected("cdc", 3) == sorted(rows.items())
    assert expected("upserts", 3) == [(0, 28), (1, 29), (2, 23), (3, 24), (4, 25), (5, 26), (6, 27)]
    assert expected("append", 1) == [(each,) for each in range(10)]


@pytest.mark.parametrize(
    ("values", "is_right"),
    [([], True), ([*range(20)][::-1], True), ([*range(15)], False), ([*range(10), 9], False), ([*range(1, 11)], False)],
)
def test_a_read_is_right_if_it_has_each_row_of_whole_batches_once(values: list[int], is_right: bool) -> None:
    assert (judged(values) == RIGHT) is is_right
