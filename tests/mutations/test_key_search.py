"""Few keys are searched for, many are compared, and both find the same rows."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from pyiceberg.types import LongType, StringType

from calving.mutations.columns import Column
from calving.mutations.keys import ChangedKeys, Matches, in_order, pays

COLUMNS = {"number": Column(1, LongType()), "text": Column(1, StringType())}


def batch(column: Column, values: list[int | None]) -> pa.RecordBatch:
    shown = values if isinstance(column.kind, LongType) else [None if v is None else f"key {v:04}" for v in values]
    return pa.RecordBatch.from_arrays([pa.array(shown, column.arrow)], ["1"])


@pytest.mark.parametrize("kind", COLUMNS)
def test_a_search_finds_the_rows_that_a_comparison_finds(kind: str) -> None:
    column, chance = COLUMNS[kind], random.Random(1)
    for _ in range(50):
        rows = [chance.choice([None, *range(40)]) for _ in range(chance.randrange(80))]
        keys = ChangedKeys([column], [[batch(column, chance.sample(range(60), chance.randrange(1, 20)))]])
        (ordered,) = in_order([batch(column, rows)])
        searched, compared = keys.searched(ordered), keys.found_in([batch(column, rows)])
        found = sorted(zip(searched.rows.to_pylist(), searched.keys.to_pylist(), strict=True))
        assert found == list(zip(compared.rows.to_pylist(), compared.keys.to_pylist(), strict=True))


def test_a_part_of_the_keys_keeps_their_numbers() -> None:
    column = COLUMNS["number"]
    keys = ChangedKeys([column], [[batch(column, [7, 8, 9])]])
    wanted = [keys.columns[0].to_pylist().index(8)]
    part = keys.part(pa.array(wanted, pa.int32()))
    (ordered,) = in_order([batch(column, [9, 8])])
    for found in (part.searched(ordered), part.found_in([batch(column, [9, 8])])):
        assert (found.rows.to_pylist(), found.keys.to_pylist()) == ([1], wanted)


def test_few_keys_are_searched_for_and_many_compared() -> None:
    assert pays(500, 100_000)
    assert not pays(10_000, 100_000)


@pytest.mark.parametrize("ids", [1, 2])
def test_several_files_searched_at_once_give_what_each_of_them_gives(ids: int) -> None:
    """Keys of one column and of two, with an order column behind them."""
    chance = random.Random(2)
    columns = [Column(1, LongType()), Column(2, LongType())][:ids]
    names = [*(str(column.field_id) for column in columns), "order"]

    def rows(count: int) -> pa.RecordBatch:
        arrays = [pa.array([chance.randrange(9) for _ in range(count)], pa.int64()) for _ in names]
        return pa.RecordBatch.from_arrays(arrays, names)

    for _ in range(30):
        keys = ChangedKeys(columns, [[rows(chance.randrange(1, 20))]])
        files = [[rows(chance.randrange(12)) for _ in range(chance.randrange(3))] for _ in range(4)]
        together = keys.found_in_each(files)
        assert [told(found) for found in together] == [told(keys.found_in(batches)) for batches in files]


def told(found: Matches) -> list[list[object]]:
    return [each.to_pylist() for each in (found.rows, found.keys, found.orders)]
