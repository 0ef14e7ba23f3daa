"""What changes leave of the rows of a key."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest

from calving.audit.replay import KeyChange, KeyReplay

ONE, TWO = ("orders", 0), ("orders", 1)
KEY = b"key"


def outcomes(changes: Iterable[KeyChange], *, ordered: bool = False, whole: bool = True) -> list[list[bytes]]:
    """For each row, the digests of which one is in the table; an empty one if there may be none."""
    replay = KeyReplay(ordered=ordered)
    for each in changes:
        replay.see(KEY, each)
    return sorted([sorted(each.digest or b"" for each in row) for _, row in replay.rows(whole=whole)])


def test_the_last_change_of_a_key_counts_in_whatever_order_changes_are_told() -> None:
    changes = [KeyChange(ONE, offset, b"%d" % offset) for offset in range(5)]
    Random(1).shuffle(changes)
    assert outcomes(changes) == [[b"4"]]


def test_a_key_whose_last_change_deletes_it_has_no_row() -> None:
    assert outcomes([KeyChange(ONE, 0, b"a"), KeyChange(ONE, 1, None)]) == []


def test_inserts_that_append_stay_beside_the_row_that_the_last_replacement_made() -> None:
    changes = [
        KeyChange(ONE, 0, b"before", replaces=False),
        KeyChange(ONE, 1, b"replaced"),
        KeyChange(ONE, 2, b"after", replaces=False),
        KeyChange(ONE, 3, b"after", replaces=False),
    ]
    for seed in range(5):
        Random(seed).shuffle(changes)
        assert outcomes(changes) == [[b"after"], [b"after"], [b"replaced"]]


def test_a_key_of_two_partitions_has_the_last_row_of_one_of_them() -> None:
    changes = [KeyChange(ONE, 0, b"a"), KeyChange(ONE, 1, b"b"), KeyChange(TWO, 0, b"c")]
    assert outcomes(changes) == [[b"b", b"c"]]


def test_a_key_of_two_partitions_may_have_no_row_if_one_deletes_it() -> None:
    assert outcomes([KeyChange(ONE, 0, b"a"), KeyChange(TWO, 0, None)]) == [[b"", b"a"]]


def test_the_greatest_order_value_wins_over_later_records_and_other_partitions() -> None:
    changes = [KeyChange(ONE, 0, b"a", order=1), KeyChange(TWO, 0, b"b", order=9), KeyChange(ONE, 1, b"c", order=5)]
    assert outcomes(changes, ordered=True) == [[b"b"]]


def test_of_equal_order_values_the_last_one_of_a_partition_wins() -> None:
    assert outcomes([KeyChange(ONE, n, b"%d" % n, order=1) for n in range(3)], ordered=True) == [[b"2"]]


@pytest.mark.parametrize(("orders", "rows"), [((1, 2, 3), [[b"2"]]), ((1, 3, 2), [[b"", b"0", b"2"]])])
def test_a_late_change_may_bring_a_deleted_row_back(orders: tuple[int, ...], rows: list[list[bytes]]) -> None:
    digests = [b"0", None, b"2"]
    changes = [KeyChange(ONE, n, digest, order=orders[n]) for n, digest in enumerate(digests)]
    assert outcomes(changes, ordered=True) == rows


def test_a_record_that_empties_the_table_removes_what_its_partition_had_before() -> None:
    replay = KeyReplay()
    replay.see(KEY, KeyChange(ONE, 0, b"a"))
    replay.see(b"other", KeyChange(ONE, 2, b"b"))
    replay.empty(ONE, 1)
    assert [(key, [each.digest for each in row]) for key, row in replay.rows(whole=True)] == [(b"other", [b"b"])]


def test_a_record_that_empties_the_table_may_remove_what_other_partitions_had() -> None:
    replay = KeyReplay()
    replay.see(KEY, KeyChange(TWO, 5, b"a"))
    replay.empty(ONE, 1)
    ((_, row),) = replay.rows(whole=True)
    assert [each.digest for each in row] == [b"a", None]


def test_a_record_that_truncates_a_source_removes_what_it_had_before() -> None:
    replay = KeyReplay()
    replay.see(KEY, KeyChange(ONE, 0, b"a", source=b"eu"))
    replay.see(b"other", KeyChange(ONE, 1, b"b", source=b"us"))
    replay.see(b"moved", KeyChange(ONE, 2, b"c", source=b"eu"))
    replay.see(b"moved", KeyChange(ONE, 3, b"d", source=b"us"))
    replay.see(b"after", KeyChange(ONE, 5, b"e", source=b"eu"))
    replay.empty(ONE, 4, b"eu")
    assert [key for key, _ in replay.rows(whole=True)] == [b"other", b"moved", b"after"]


def test_where_later_changes_are_missing_a_row_may_be_gone() -> None:
    assert outcomes([KeyChange(ONE, 0, b"a")], whole=False) == [[b"", b"a"]]
