"""Which tables the catalog shows as they were before."""

from __future__ import annotations

import pytest

from calving.model.events import TableMark
from calving.protocol.rollback import Marks

TABLE = ("db", "t")


@pytest.mark.parametrize(
    ("now", "is_older"),
    [
        (TableMark("a", 4), True),
        (TableMark("a", 5), False),
        (TableMark("a", 6), False),
        (TableMark("recreated", 1), False),
    ],
)
def test_a_table_is_older_if_its_sequence_number_has_gone_back(now: TableMark, is_older: bool) -> None:
    marks = Marks()
    marks.note(TABLE, TableMark("a", 5))
    marks.note(TABLE, TableMark("a", 3))
    assert marks.older({TABLE: now}) == ({TABLE} if is_older else set())


def test_a_table_without_a_mark_is_not_older() -> None:
    assert Marks().older({TABLE: TableMark("a", 1)}) == set()
