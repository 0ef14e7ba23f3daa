"""Columns of every type, three rows of each."""

from __future__ import annotations

import uuid
from decimal import Decimal
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
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

FORMATS = ("parquet", "orc", "avro")
_F = NestedField
SCHEMA = Schema(
    _F(1, "id", LongType(), required=True),
    _F(2, "i", IntegerType(), required=False),
    _F(3, "b", BooleanType(), required=False),
    _F(4, "f", FloatType(), required=False),
    _F(5, "x", DoubleType(), required=False),
    _F(6, "n", DecimalType(9, 2), required=False),
    _F(7, "s", StringType(), required=False),
    _F(8, "raw", BinaryType(), required=False),
    _F(9, "four", FixedType(4), required=False),
    _F(10, "u", UUIDType(), required=False),
    _F(11, "d", DateType(), required=False),
    _F(12, "t", TimeType(), required=False),
    _F(13, "ts", TimestampType(), required=False),
    _F(14, "tz", TimestamptzType(), required=False),
    _F(
        15,
        "o",
        StructType(_F(16, "y", LongType(), required=False), _F(17, "at", TimestampType(), required=False)),
        required=False,
    ),
    _F(18, "l", ListType(19, UUIDType(), element_required=False), required=False),
    _F(20, "m", MapType(21, StringType(), 22, DateType(), value_required=False), required=False),
)
ONE, TWO = uuid.UUID(int=1), uuid.UUID(int=2)
COLUMNS: dict[str, list[Any]] = {
    "id": [1, 2, 3],
    "i": [7, None, -7],
    "b": [True, False, None],
    "f": [1.5, float("nan"), -2.0],
    "x": [0.0, None, 1e300],
    "n": [Decimal("1.25"), Decimal("-9999999.99"), None],
    "s": ["a", "ü" * 20, None],
    "raw": [b"\x00\xff", None, b""],
    "four": [b"abcd", None, b"\x00\x00\x00\x01"],
    "u": [ONE.bytes, None, TWO.bytes],
    "d": [0, -1, None],
    "t": [1, None, 86_399_999_999],
    "ts": [-1_000_000, 1_704_164_645_678_901, None],
    "tz": [-2_000_000, None, 1_704_164_645_678_901],
    "o": [{"y": 1, "at": -1_000_000}, None, {"y": None, "at": 5}],
    "l": [[ONE.bytes, None], None, []],
    "m": [[("k", -1), ("j", None)], [], None],
}
