"""Where a row is after its file was rewritten."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyroaring import BitMap64

from calving.maintenance.translate import InputRows, OutputRows, RowPlaces


def test_rows_move_up_by_those_that_were_left_out_before_them() -> None:
    rows = InputRows(10, 6, BitMap64([0, 3]))
    assert rows.taken(BitMap64([1, 2, 4, 5])) == [10, 11, 12, 13]


def test_rows_that_were_left_out_have_no_place() -> None:
    assert InputRows(0, 4, BitMap64([1])).taken(BitMap64([1, 2])) == [1]


def test_rows_of_one_partition_fill_one_file_after_the_other() -> None:
    places = RowPlaces(None, [OutputRows("a", 0, 3), OutputRows("b", 0, 4)])
    assert places.of([6, 0, 2, 3]) == {"a": BitMap64([0, 2]), "b": BitMap64([0, 3])}


def test_no_row_is_in_no_file() -> None:
    assert RowPlaces(None, []).of([]) == {}


def test_rows_that_go_to_several_partitions_keep_their_order_in_each() -> None:
    partitions = pa.array([5, 7, 5, 5, 7], pa.int32())
    places = RowPlaces(partitions, [OutputRows("x", 7, 2), OutputRows("a", 5, 2), OutputRows("b", 5, 1)])
    assert places.of([1, 2, 3]) == {"x": BitMap64([0]), "a": BitMap64([1]), "b": BitMap64([0])}
    assert places.of([4]) == {"x": BitMap64([1])}


@pytest.mark.parametrize("row", range(5))
def test_each_row_has_exactly_one_place(row: int) -> None:
    places = RowPlaces(pa.array([0, 1, 0, 1, 1], pa.int32()), [OutputRows("a", 0, 2), OutputRows("b", 1, 3)])
    assert sum(len(positions) for positions in places.of([row]).values()) == 1
