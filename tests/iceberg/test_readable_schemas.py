"""Whether files of a former schema can be read with the table's schema of now."""

from __future__ import annotations

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from calving.iceberg.schemas import unreadable

PRIMITIVES: tuple[IcebergType, ...] = (
    BinaryType(),
    BooleanType(),
    DateType(),
    DecimalType(9, 2),
    DoubleType(),
    FixedType(4),
    FloatType(),
    IntegerType(),
    LongType(),
    StringType(),
    TimestampType(),
    TimestamptzType(),
    TimeType(),
    UUIDType(),
)


def one(kind: IcebergType) -> Schema:
    return Schema(NestedField(1, "c", kind, required=False))


def within(kind: IcebergType) -> IcebergType:
    items = ListType(2, kind, element_required=False)
    entries = MapType(3, StringType(), 4, kind, value_required=False)
    return StructType(NestedField(5, "l", items, required=False), NestedField(6, "m", entries, required=False))


@pytest.mark.parametrize("kind", PRIMITIVES, ids=str)
def test_files_of_the_same_schema_can_be_read(kind: IcebergType) -> None:
    assert unreadable(one(kind), one(kind)) is None
    assert unreadable(one(within(kind)), one(within(kind))) is None


@pytest.mark.parametrize(
    ("then", "now"),
    [(IntegerType(), LongType()), (FloatType(), DoubleType()), (DecimalType(9, 2), DecimalType(18, 2))],
    ids=str,
)
def test_files_of_a_narrower_column_can_be_read_and_those_of_a_wider_one_cannot(
    then: IcebergType, now: IcebergType
) -> None:
    assert (unreadable(one(then), one(now)), unreadable(one(now), one(then))) == (None, "c")
    assert (unreadable(one(within(then)), one(within(now))), unreadable(one(within(now)), one(within(then)))) == (
        None,
        "c.l",
    )
