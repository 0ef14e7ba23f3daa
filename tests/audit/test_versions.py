"""The versions that changes leave of rows, as the audit replays them."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from calving.audit.versions import VersionedChange, VersionIds, VersionReplay

KEY, ONE, TWO = b"key", ("orders", 0), ("orders", 1)
COLUMNS = VersionIds(7, 8, 9)


def change(offset: int, at: int, name: str | None, partition: tuple[str, int] = ONE) -> VersionedChange:
    """By default, of the time of the change."""
    row = ((1, name or ""), (7, at), (9, 1))
    return VersionedChange(partition, offset, row, name is None, at)


def replay(changes: Sequence[VersionedChange], *, ordered: bool) -> VersionReplay:
    made = VersionReplay(COLUMNS, ordered=ordered)
    for each in Random(1).sample(changes, len(changes)):
        made.see(KEY, each)
    return made


def versions(changes: Sequence[VersionedChange], *, ordered: bool) -> list[tuple[object, ...]]:
    """Name, begin, end and whether it is current; in whatever order changes are told."""
    made = replay(changes, ordered=ordered)
    assert made.unknown() == set() and KEY in made
    rows = [dict(each.row) for _, each in made.rows()]
    return [(row[1], row[7], row.get(8), row[9]) for row in rows]


def test_a_late_version_takes_its_place_by_its_order() -> None:
    changes = [change(0, 10, "a"), change(1, 30, "b"), change(2, 20, "c")]
    assert versions(changes, ordered=True) == [("a", 10, 20, 0), ("c", 20, 30, 0), ("b", 30, None, 1)]


def test_a_version_of_the_same_order_is_replaced_by_the_later_one() -> None:
    assert versions([change(0, 10, "a"), change(1, 10, "b")], ordered=True) == [("b", 10, None, 1)]


def test_a_delete_ends_a_version_and_leaves_nothing_where_there_is_none() -> None:
    changes = [change(0, 5, None), change(1, 10, "a"), change(2, 20, None), change(3, 25, None), change(4, 30, "b")]
    for ordered in (True, False):
        assert versions(changes, ordered=ordered) == [("a", 10, 20, 0), ("b", 30, None, 1)]


def test_by_time_no_version_begins_before_the_one_before_it() -> None:
    changes = [change(0, 10, "a"), change(1, 5, "b"), change(2, 20, "c")]
    assert versions(changes, ordered=False) == [("a", 10, 10, 0), ("b", 10, 20, 0), ("c", 20, None, 1)]


def test_several_partitions_tell_no_order_by_time() -> None:
    changes = [change(0, 10, "a"), change(0, 20, "b", TWO)]
    assert replay(changes, ordered=False).unknown() == {KEY}
    assert replay(changes, ordered=True).unknown() == set()


def test_several_partitions_with_one_order_value_do_not_tell_the_version() -> None:
    assert replay([change(0, 10, "a"), change(0, 10, "b", TWO)], ordered=True).unknown() == {KEY}


def test_a_late_change_of_a_key_that_is_deleted_depends_on_the_division_into_batches() -> None:
    assert replay([change(0, 20, None), change(1, 10, "a")], ordered=True).unknown() == {KEY}
