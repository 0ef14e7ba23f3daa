"""Which tables the catalog shows as they were before."""

from __future__ import annotations

import pytest

from calving.model.marks import TableMark
from calving.protocol.rollback import Marks

TABLE = ("db", "t")


@pytest.mark.parametrize(
    ("now", "is_older"),
    [
        (TableMark("a", 4), True),
        (TableMark("a", 5), False),
        (TableMark("a", 6), False),
        (TableMark("recreated", 1), False),
        (TableMark("a", 5, {0: 30}), False),
        (TableMark("a", 5, {0: 29}), True),
        (TableMark("a", 9, {}), True),
        (TableMark("a", 9, None), False),
        (TableMark("a", 4, {0: 31}), True),
        (TableMark("recreated", 1, {}), False),
    ],
)
def test_a_table_is_older_if_its_sequence_number_or_its_control_offsets_have_gone_back(
    now: TableMark, is_older: bool
) -> None:
    marks = Marks()
    marks.note(TABLE, TableMark("a", 5, {0: 30}))
    marks.note(TABLE, TableMark("a", 3, {0: 20}))
    assert marks.older({TABLE: now}) == ({TABLE} if is_older else set())


def test_a_table_without_a_mark_is_not_older() -> None:
    assert Marks().older({TABLE: TableMark("a", 1)}) == set()


@pytest.mark.parametrize(("now", "is_older"), [({0: 30}, False), ({0: 29}, True)])
def test_a_leader_of_an_earlier_version_in_between_leaves_the_control_offsets_known(
    now: dict[int, int], is_older: bool
) -> None:
    marks = Marks()
    marks.note(TABLE, TableMark("a", 5, {0: 30}))
    marks.note(TABLE, TableMark("a", 6))
    assert marks.older({TABLE: TableMark("a", 6, now)}) == ({TABLE} if is_older else set())


def test_control_offsets_of_a_dropped_table_are_not_those_of_the_next_one() -> None:
    marks = Marks()
    marks.note(TABLE, TableMark("a", 5, {0: 30}))
    marks.note(TABLE, TableMark("recreated", 1))
    assert marks.older({TABLE: TableMark("recreated", 1, {0: 3})}) == set()
