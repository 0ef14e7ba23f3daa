"""The campaign's replays know what partial updates, truncates and late changes leave of a table, and its checker notices
a table that has something else.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from campaign.audit import Claim, Row
from campaign.changes import Change
from campaign.replays import Replay, Rows, Versions
from campaign.rows import RowAudit

TABLE = "db.t"


def audit(changes: Sequence[Change], replay: Replay, timestamps: Sequence[int] = ()) -> RowAudit:
    """Of one partition with these changes."""
    made = RowAudit([TABLE], 1, lambda number: (TABLE, ""), change=changes.__getitem__, replay=lambda table: replay)
    for number in range(len(changes)):
        made.produced(0, number, number, timestamps[number] if timestamps else 0)
    return made


def found(audit: RowAudit, rows: Sequence[tuple[int, str]]) -> dict[str, int]:
    """What the checker finds in a table with these rows."""
    size = audit.reaches(0)
    audit.compare(TABLE, Claim("log", {"0": 0}, {0: size}, {0: size}, {}), [Row(key, TABLE, row) for key, row in rows])
    return audit.found


# Partial updates

WHOLE = Change(TABLE, 1, "a", others={"source": "s", "name": "n", "x": 1, "y": None})
PARTIAL = Change(TABLE, 1, "b", others={"x": 2}, keeps=True)


def test_a_partial_update_keeps_what_it_lacks() -> None:
    assert not found(audit([WHOLE, PARTIAL], Rows()), [(1, "b source=s name=n x=2")])


@pytest.mark.parametrize("row", ["b source=s x=2", "b x=2", "b source=s name=n", "b source=s name=n x=1", "a"])
def test_a_column_that_was_lost_or_is_old_is_wrong(row: str) -> None:
    assert found(audit([WHOLE, PARTIAL], Rows()), [(1, row)]) == {"wrong": 1}


def test_a_partial_update_sets_a_column_to_null_only_if_it_says_so() -> None:
    nothing = Change(TABLE, 1, "b", others={"name": None}, keeps=True)
    assert not found(audit([WHOLE, nothing], Rows()), [(1, "b source=s x=1")])


def test_a_partial_update_without_a_row_adds_one_or_is_skipped() -> None:
    assert not found(audit([PARTIAL], Rows()), [(1, "b x=2")])
    assert not found(audit([PARTIAL._replace(skips=True)], Rows()), [])
    assert found(audit([PARTIAL._replace(skips=True)], Rows()), [(1, "b x=2")]) == {"resurrected": 1}


# Truncates

OTHER = Change(TABLE, 2, "c", others={"source": "t"})
EMPTIED, OF_SOURCE = Change(TABLE, None, None), Change(TABLE, None, None, others={"source": "s"})


def test_a_truncate_of_a_source_deletes_its_rows_only() -> None:
    changes = [WHOLE, OTHER, OF_SOURCE]
    assert not found(audit(changes, Rows()), [(2, "c source=t")])
    assert found(audit(changes, Rows()), []) == {"lost": 1}
    assert found(audit(changes, Rows()), [(1, "a source=s name=n x=1"), (2, "c source=t")]) == {"resurrected": 1}


def test_a_truncate_without_a_source_deletes_all_rows_before_it() -> None:
    changes = [WHOLE, OTHER, EMPTIED, OTHER._replace(key=3)]
    assert not found(audit(changes, Rows()), [(3, "c source=t")])
    assert found(audit(changes, Rows()), [(2, "c source=t"), (3, "c source=t")]) == {"resurrected": 1}
    assert found(audit(changes, Rows()), []) == {"lost": 1}


# Versions

FIRST, SECOND, LATE = Change(TABLE, 1, "a", 10), Change(TABLE, 1, "b", 30), Change(TABLE, 1, "c", 20)
A, B, C = "a from 10 to 20, former", "b from 30 to None, current", "c from 20 to 30, former"


def test_a_late_version_takes_its_place_by_its_order() -> None:
    assert not found(audit([FIRST, SECOND, LATE], Versions(is_ordered=True)), [(1, A), (1, B), (1, C)])


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        ([A, B], "lost"),
        ([A, B, C, C], "doubled"),
        (["a from 10 to 30, former", B, C], "wrong"),
        ([A, "b from 30 to None, former", C], "wrong"),
        ([A, B, "c from 20 to None, current"], "wrong"),
    ],
)
def test_a_version_that_overlaps_or_is_not_there_once_is_found(rows: list[str], kind: str) -> None:
    known = audit([FIRST, SECOND, LATE], Versions(is_ordered=True))
    assert kind in found(known, [(1, row) for row in rows])


def test_a_version_of_the_same_order_is_replaced_and_a_delete_ends_one() -> None:
    changes = [FIRST, FIRST._replace(proof="b"), Change(TABLE, 1, None, 15), Change(TABLE, 2, None, 16)]
    assert not found(audit(changes, Versions(is_ordered=True)), [(1, "b from 10 to 15, former")])


def test_by_timestamps_no_version_begins_before_the_one_before_it() -> None:
    changes = [FIRST, SECOND, Change(TABLE, 1, None), LATE]
    rows = ["a from 5 to 5, former", "b from 5 to 9, former", "c from 9 to None, current"]
    known = audit(changes, Versions(is_ordered=False), [5, 4, 9, 8])
    assert not found(known, [(1, row) for row in rows])
