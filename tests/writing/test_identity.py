"""Which columns can identify a row (rule M6)."""

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

from calving.errors import ConfigError
from calving.model.tables import RowMutations
from calving.writing.changes import identity

LONG = NestedField(2, "a", LongType(), required=False)


def schema(kind: IcebergType) -> Schema:
    return Schema(NestedField(1, "k", kind, required=False))


@pytest.mark.parametrize(
    "kind",
    [
        BooleanType(),
        IntegerType(),
        LongType(),
        DecimalType(9, 2),
        DateType(),
        TimeType(),
        TimestampType(),
        TimestamptzType(),
        StringType(),
        UUIDType(),
        FixedType(4),
        BinaryType(),
    ],
    ids=str,
)
def test_a_column_of_exact_values_identifies_a_row(kind: IcebergType) -> None:
    assert identity("db.t", schema(kind), ["k"], RowMutations("op")).ids == (1,)


@pytest.mark.parametrize(
    ("kind", "column", "sentence"),
    [
        (FloatType(), "k", "table db.t: id column k is float: fractions do not identify a row"),
        (DoubleType(), "k", "table db.t: id column k is double: fractions do not identify a row"),
        (StructType(LONG), "k", "table db.t: id column k is struct<2: a: optional long>: only a single value"),
        (ListType(2, LongType()), "k", "table db.t: id column k is list<long>: only a single value"),
        (MapType(2, StringType(), 3, LongType()), "k", "table db.t: id column k is map<string, long>: only a single"),
        (ListType(3, StructType(LONG)), "k.a", "table db.t: id column k.a is inside of a list or map"),
        (MapType(3, StringType(), 4, StructType(LONG)), "k.value.a", "id column k.value.a is inside of a list or map"),
        (LongType(), "K", "table db.t has no column K, which is its id column"),
    ],
    ids=lambda given: str(given) if isinstance(given, IcebergType) else "",
)
def test_any_other_column_is_refused_with_the_reason(kind: IcebergType, column: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        identity("db.t", schema(kind), [column], RowMutations("op"))
    assert sentence in str(refused.value)


def test_without_id_columns_in_the_settings_the_identifier_fields_identify_a_row() -> None:
    keyed = Schema(NestedField(1, "k", LongType(), required=True), identifier_field_ids=[1])
    assert identity("db.t", keyed, [], RowMutations("op")).ids == (1,)
