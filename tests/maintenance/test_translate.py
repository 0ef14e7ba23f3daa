"""Where a row is after its file was rewritten."""

from __future__ import annotations

from collections.abc import Sequence

from pyroaring import BitMap64

from calving.maintenance.translate import InputRows, OutputRows, RowPlaces


def test_rows_move_up_by_those_that_were_left_out_before_them() -> None:
    rows = InputRows(10, 6, BitMap64([0, 3]))
    assert rows.taken(BitMap64([1, 2, 4, 5])) == [10, 11, 12, 13]


def test_rows_that_were_left_out_have_no_place() -> None:
    assert InputRows(0, 4, BitMap64([1])).taken(BitMap64([1, 2])) == [1]


def unread(path: str, rows: Sequence[int]) -> Sequence[int]:
    raise AssertionError(path)


def test_rows_in_their_order_fill_one_file_after_the_other() -> None:
    places = RowPlaces((OutputRows("a", 3), OutputRows("b", 4)))
    assert places.of([6, 0, 2, 3], unread) == {"a": BitMap64([0, 2]), "b": BitMap64([0, 3])}


def test_no_row_is_in_no_file() -> None:
    assert RowPlaces(()).of([], unread) == RowPlaces((), is_ordered=False).of([], unread) == {}


def test_rows_in_another_order_are_where_the_permutation_has_them() -> None:
    def read(path: str, rows: Sequence[int]) -> Sequence[int]:
        order = {"p": [4, 0, 3, 1, 2]}[path]
        return sorted(order.index(row) for row in rows)

    places = RowPlaces((OutputRows("a", 2), OutputRows("b", 3)), is_ordered=False, permutation="p")
    assert places.of([4, 2, 1], read) == {"a": BitMap64([0]), "b": BitMap64([1, 2])}


def test_nobody_knows_where_rows_in_another_order_are_without_a_permutation() -> None:
    assert RowPlaces((OutputRows("a", 2),), is_ordered=False).of([1], unread) is None
