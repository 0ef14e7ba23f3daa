"""Whether a value loses digits in a column. Where it identifies a row, two keys would become one."""

from __future__ import annotations

import re
from datetime import datetime
from decimal import Decimal, localcontext
from typing import Any

import pyarrow as pa
from pyiceberg.types import DateType, DecimalType, IcebergType, TimestampType, TimestamptzType, TimeType

from calving.casting.numbers import is_number
from calving.records.arrays import Scaled
from calving.records.failures import ExactPathError
from calving.records.fields import Counting, Target
from calving.records.semantics import PER_SECOND, Moment, Quantity

_LOST = re.compile(r"\.[0-9]{6}[0-9]*[1-9]")
_IN_MICROS = TimeType | TimestampType | TimestamptzType
_DAY = 86_400


def check_keeps(given: pa.DataType, kind: IcebergType, target: Target, column_id: int) -> None:
    """:raises ExactPathError: the column is one in which no value may lose digits, and Arrow's cast may cut some."""
    if column_id in target.compared and _may_lose(given, kind, target.counting(column_id)):
        raise ExactPathError("a value may lose digits")


def _may_lose(given: pa.DataType, kind: IcebergType, counting: Counting) -> bool:
    if isinstance(kind, DecimalType):
        return bool(pa.types.is_decimal(given) and given.scale > kind.scale)
    if not isinstance(kind, _IN_MICROS):
        return False
    if pa.types.is_integer(given):
        return counting.unit == "ns"
    return bool(pa.types.is_string(given) or getattr(given, "unit", "") == "ns")


def loses(value: Any, converted: Any, kind: IcebergType, counting: Counting) -> bool:
    """Whether a value has digits that are not in what it was ``converted`` to for ``kind``."""
    if isinstance(kind, DecimalType):
        exact = value.number if isinstance(value, Scaled) else value
        with localcontext(prec=120):
            return bool(Decimal(repr(exact) if isinstance(exact, float) else exact) != converted)
    if isinstance(kind, DateType):
        return _seconds_of_day(value)
    if not isinstance(kind, _IN_MICROS):
        return False
    if isinstance(value, str):
        return _LOST.search(value) is not None
    if isinstance(value, Quantity | Moment):
        return value.meaning.what != "date" and value.meaning.unit == "ns" and int(value) % 1000 != 0
    return bool(is_number(value) and counting.unit == "ns" and value % 1000)


def _seconds_of_day(value: Any) -> bool:
    """Whether a value is a moment within a day."""
    if isinstance(value, Quantity | Moment):
        return value.meaning.what == "timestamp" and int(value) % (_DAY * PER_SECOND[value.meaning.unit]) != 0
    return isinstance(value, datetime) and value.time() != datetime.min.time()
