"""The curve through the values of several columns."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from calving.maintenance.z_order import ZOrder, column_keys, interleaved

SCHEMA = Schema(NestedField(1, "a", LongType()), NestedField(2, "b", LongType()), NestedField(3, "t", StringType()))


@pytest.mark.parametrize("count", [2, 3, 4])
def test_bits_alternate_the_first_column_first(count: int) -> None:
    chance = random.Random(count)
    rows = [[chance.randrange(4096) for _ in range(count)] for _ in range(50)]
    columns = [pa.array(list(column), pa.int64()) for column in zip(*rows, strict=True)]
    expected = [
        int("".join("".join(bits) for bits in zip(*(f"{n:012b}" for n in row), strict=True)), 2) for row in rows
    ]
    assert interleaved(columns).to_pylist() == expected


def in_z_order(rows: list[dict[str, object]], columns: tuple[int, ...]) -> list[dict[str, object]]:
    batch = pa.RecordBatch.from_pylist(rows, pa.schema([("a", pa.int64()), ("b", pa.int64()), ("t", pa.string())]))
    curve = ZOrder(SCHEMA, columns, [column_keys(SCHEMA, columns, batch)])
    places = curve.keys(batch).column("z").to_pylist()
    return [row for _, _, row in sorted(zip(places, range(len(rows)), rows, strict=True), key=lambda each: each[:2])]


def test_neighbours_on_the_curve_are_neighbours_in_both_columns() -> None:
    # One column has large numbers far from each other: only their ranks count.
    rows = [{"a": x, "b": y**9, "t": None} for x in range(64) for y in range(64)]
    random.Random(1).shuffle(rows)
    sorted_rows = in_z_order(rows, (1, 2))  # type: ignore[arg-type]
    for start in range(0, 4096, 256):
        part = sorted_rows[start : start + 256]
        assert len({row["a"] for row in part}) == len({row["b"] for row in part}) == 16


def test_a_column_with_few_values_counts_as_much_as_one_with_many() -> None:
    rows = [{"a": x, "b": y, "t": None} for x in range(4) for y in range(1024)]
    sorted_rows = in_z_order(rows, (2, 1))  # type: ignore[arg-type]
    first = sorted_rows[:1024]
    assert {row["a"] for row in first} == {0, 1} and len({row["b"] for row in first}) == 512


def test_null_comes_first_and_a_column_of_nulls_does_not_matter() -> None:
    rows = [{"a": a, "b": None, "t": t} for a, t in ((3, "x"), (None, "y"), (1, None))]
    assert [row["a"] for row in in_z_order(rows, (1, 2))] == [None, 1, 3]  # type: ignore[arg-type]
