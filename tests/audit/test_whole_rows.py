"""What updates that lack columns leave of rows, as the audit replays them."""

from __future__ import annotations

from random import Random

import pytest

from calving.audit.rows import PlainRow
from calving.audit.whole_rows import PartialChange, WholeRows

KEY, ONE, TWO = b"key", ("orders", 0), ("orders", 1)
PATHS = {1: (1,), 2: (2,), 3: (3,), 4: (3, 4), 5: (3, 5)}
WHOLE = ((1, "a"), (2, 7), (3, ((4, 1), (5, "y"))))


def rows(*changes: PartialChange, skips: bool = False, is_whole: bool = True) -> tuple[PlainRow | None, set[bytes]]:
    """The row that the last of these changes leaves, in whatever order they are told, and the keys that are unknown."""
    made = WholeRows(PATHS, skips, is_whole)
    for each in Random(1).sample(changes, len(changes)):
        made.see(each)
    left = [*made.replayed()]
    return left[-1][1].row, made.unknown()


def change(offset: int, row: PlainRow | None, *lacks: int, partition: tuple[str, int] = ONE) -> PartialChange:
    return PartialChange(partition, offset, KEY, row, lacks)


def test_an_update_keeps_the_columns_that_it_lacks() -> None:
    changes = change(0, WHOLE), change(1, ((1, "b"),), 2, 3), change(2, ((2, 8), (3, ())), 1)
    assert rows(*changes[:2]) == (((1, "b"), *WHOLE[1:]), set())
    assert rows(*changes) == (((1, "b"), (2, 8), (3, ())), set())


def test_a_field_of_a_struct_is_kept_by_itself() -> None:
    partial = change(1, ((1, "b"), (3, ((4, 2),))), 2, 5)
    assert rows(change(0, WHOLE), partial) == (((1, "b"), (2, 7), (3, ((4, 2), (5, "y")))), set())


@pytest.mark.parametrize("skips", [False, True])
def test_an_update_without_a_row_adds_one_or_is_skipped(skips: bool) -> None:
    found, _ = rows(change(0, WHOLE), change(1, None), change(2, ((1, "b"),), 2), skips=skips)
    assert found == (None if skips else ((1, "b"),))


def test_behind_a_record_that_empties_the_table_an_update_finds_no_row() -> None:
    emptied = PartialChange(ONE, 1, None)
    assert rows(change(0, WHOLE), emptied, change(2, ((1, "b"),), 2)) == (((1, "b"),), set())


def test_a_key_is_unknown_until_a_whole_row_if_others_may_have_written_its_row() -> None:
    partial = change(0, ((1, "b"),), 2)
    assert rows(partial, is_whole=False)[1] == {KEY}
    assert rows(partial, change(1, WHOLE), is_whole=False) == (WHOLE, set())


def test_a_key_is_unknown_if_an_update_changes_a_part_of_a_list() -> None:
    assert rows(change(0, WHOLE), PartialChange(ONE, 1, KEY, ((1, "b"),), None))[1] == {KEY}


def test_a_key_of_several_partitions_is_unknown_if_its_updates_lack_columns() -> None:
    both = change(0, WHOLE), change(0, WHOLE, partition=TWO)
    assert rows(*both) == (WHOLE, set())
    assert rows(*both, change(1, ((1, "b"),), 2, partition=TWO))[1] == {KEY}


def test_a_key_is_unknown_if_another_partition_empties_the_table_and_its_updates_lack_columns() -> None:
    assert rows(change(0, WHOLE), change(1, ((1, "b"),), 2), PartialChange(TWO, 0, None))[1] == {KEY}
