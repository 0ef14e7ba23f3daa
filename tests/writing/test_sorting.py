"""Rows of a file stand in the table's order, by a column of any type."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import BucketTransform, HourTransform, IdentityTransform, Transform, TruncateTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DecimalType,
    DoubleType,
    FixedType,
    IcebergType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimeType,
    UUIDType,
)

from calving.errors import BadRecordError
from calving.model.record_path import Limits
from calving.writing.table import TableWriter
from tests.writing.written import rows, table, write

LOW, MIDDLE, HIGH = UUID(int=1).bytes, UUID(int=2**127 - 1).bytes, UUID(int=2**127).bytes
INFINITY, NAN = float("inf"), float("nan")
ASC, DESC = SortDirection.ASC, SortDirection.DESC


def order(
    source: int = 1,
    transform: Transform[Any, Any] | None = None,
    direction: SortDirection = ASC,
    nulls: NullOrder = NullOrder.NULLS_FIRST,
) -> SortOrder:
    field = SortField(
        source_id=source, transform=transform or IdentityTransform(), direction=direction, null_order=nulls
    )
    return SortOrder(field, order_id=1)


def written(folder: Path, schema: Schema, by: SortOrder, columns: dict[str, list[Any]]) -> pa.Table:
    (file,) = write(table(folder, schema, order=by), rows(schema, columns))
    assert file.sort_order_id == 1
    return pq.read_table(file.file_path.removeprefix("file://"))


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        (UUIDType(), [HIGH, LOW, MIDDLE], [1, 2, 0]),
        (TimeType(), [86_399_999_999, 0, 5], [1, 2, 0]),
        (TimestampType(), [2**63 - 1, -(2**63) + 1, 0], [1, 2, 0]),
        (BooleanType(), [True, False, True], [1, 0, 2]),
        (FixedType(1), [b"\xff", b"\x00", b"a"], [1, 2, 0]),
        (BinaryType(), [b"\xff", b"", b"a"], [1, 2, 0]),
        (DecimalType(38, 2), [Decimal(10) ** 35, -(Decimal(10) ** 35), Decimal(0)], [1, 2, 0]),
        (StringType(), ["𝄞", "\ud7ff", "\ue000"], [1, 2, 0]),
        (DoubleType(), [0.0, NAN, -0.0, INFINITY, -INFINITY, -1.5], [4, 5, 2, 0, 3, 1]),
    ],
    ids=lambda v: str(v)[:12],
)
def test_a_column_of_any_type_orders_rows(
    kind: IcebergType, given: list[Any], expected: list[int], tmp_path: Path
) -> None:
    schema = Schema(NestedField(1, "v", kind, required=False), NestedField(2, "i", LongType(), required=False))
    columns = {"v": given, "i": list(range(len(given)))}
    assert written(tmp_path, schema, order(), columns)["i"].to_pylist() == expected
    assert written(tmp_path, schema, order(direction=DESC), columns)["i"].to_pylist() == (
        expected[::-1] if kind != BooleanType() else [0, 2, 1]
    )


@pytest.mark.parametrize("direction", [ASC, DESC])
@pytest.mark.parametrize("nulls", [NullOrder.NULLS_FIRST, NullOrder.NULLS_LAST])
def test_nulls_stand_where_the_order_says(direction: SortDirection, nulls: NullOrder, tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "v", DoubleType(), required=False))
    found = written(tmp_path, schema, order(direction=direction, nulls=nulls), {"v": [1.0, None, NAN, None]})[
        "v"
    ].to_pylist()
    there = ["1.0", "nan"] if direction is ASC else ["nan", "1.0"]
    absent = ["None", "None"]
    assert list(map(str, found)) == (absent + there if nulls is NullOrder.NULLS_FIRST else there + absent)


DOTTED = Schema(
    NestedField(1, "a", StructType(NestedField(2, "c", LongType(), required=False)), required=False),
    NestedField(3, "a.b", LongType(), required=False),
)


@pytest.mark.parametrize(("source", "expected"), [(2, [None, 3, 8]), (3, [3, None, 8])])
def test_nested_columns_and_names_with_a_dot_order_rows(
    source: int, expected: list[int | None], tmp_path: Path
) -> None:
    columns: dict[str, list[Any]] = {"a": [{"c": 8}, {"c": 3}, None], "a.b": [3, 1, 2]}
    found = written(tmp_path, DOTTED, order(source), columns)["a"].to_pylist()
    assert [None if a is None else a["c"] for a in found] == expected


@pytest.mark.parametrize("transform", [TruncateTransform(10), BucketTransform(3)])
def test_transforms_order_rows_and_equal_ones_stay(transform: Transform[Any, Any], tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "v", LongType(), required=False))
    given = [25, 21, 7, 29, 3, 22, 1]
    found = written(tmp_path, schema, order(transform=transform), {"v": given})["v"].to_pylist()
    by: Callable[[int], Any] = transform.transform(LongType())
    assert found == sorted(given, key=by)


def test_a_row_without_a_place_in_the_order_is_bad_and_nothing_is_taken(tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "v", TimestampType(), required=False))
    writer = TableWriter(table(tmp_path, schema, order=order(transform=HourTransform())), 0, Limits())
    with pytest.raises(BadRecordError, match="column 'v': Iceberg cannot hold the hour of a value"):
        writer.write(rows(schema, {"v": [0, 2**63 - 1]}))
    assert (writer.rows, writer.close()) == (0, [])


def test_ranges_are_cut_without_numpy() -> None:
    script = """
import sys
sys.modules["numpy"] = None
from tests.tasks.test_ranges import BY_ID, NO_PARTITIONS, received, sent, task
spec = task(BY_ID, NO_PARTITIONS)
ranges, _ = received(spec, sent(spec, [[(i, "x", None) for i in range(400)]]), 4)
print([table.num_rows for table in ranges.values()])
"""
    root = Path(__file__).parent.parent.parent
    done = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(",") == 3
