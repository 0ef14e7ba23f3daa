"""Whether a value loses digits in a column. Where it identifies a row, two keys would become one."""

from __future__ import annotations

import math
import re
from datetime import datetime
from decimal import Decimal, localcontext
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    TimestampType,
    TimestamptzType,
    TimeType,
)

from calving.casting.numbers import is_number, single_text
from calving.records.arrays import Digits, Scaled, Single
from calving.records.fields import Counting
from calving.records.semantics import PER_SECOND, Moment, Quantity

_LOST = re.compile(r"\.[0-9]{6}[0-9]*[1-9]")
_IN_MICROS = TimeType | TimestampType | TimestamptzType
_DAY = 86_400
_DOUBLE_HOLDS, _FLOAT_HOLDS = 1 << 53, 1 << 24
"""Up to these, doubles and floats hold every whole number."""


def may_lose(column: pa.Array, kind: IcebergType, counting: Counting) -> bool:
    """Whether Arrow's cast to ``kind`` may cut digits of a value."""
    given = column.type
    if isinstance(kind, DoubleType | FloatType):
        is_single = isinstance(kind, FloatType)
        if pa.types.is_integer(given):
            ends, most = pc.min_max(column).as_py(), _FLOAT_HOLDS if is_single else _DOUBLE_HOLDS
            return bool(ends["min"] < -most or ends["max"] > most)
        return is_single and not pa.types.is_float32(given)
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
    if isinstance(kind, DoubleType | FloatType):
        return _loses_as_float(value, converted, is_single=isinstance(kind, FloatType))
    if isinstance(kind, DateType):
        return _seconds_of_day(value)
    if not isinstance(kind, _IN_MICROS):
        return False
    if isinstance(value, str):
        return _LOST.search(value) is not None
    if isinstance(value, Quantity | Moment):
        return value.meaning.what != "date" and value.meaning.unit == "ns" and int(value) % 1000 != 0
    return bool(is_number(value) and counting.unit == "ns" and value % 1000)


def _loses_as_float(value: Any, converted: float | None, *, is_single: bool) -> bool:
    """Whether the shortest text of a float or double is another number than the value. A fraction without a schema, or
    in a text, means the double that is nearest to it. ``converted``: None if the value needs a wider column first.
    """
    if isinstance(value, Single) or converted is None or not math.isfinite(converted):
        return False
    value = Decimal(value.strip().rstrip("dDfF")) if isinstance(value, str) else value
    exact = value.number if isinstance(value, Scaled) else value
    if not isinstance(exact, int | Digits):
        double = float(exact)
        is_whole = double.is_integer() and isinstance(exact, Decimal)
        exact = exact if is_whole else repr(double)
    return Decimal(exact) != Decimal(single_text(converted) if is_single else repr(converted))


def _seconds_of_day(value: Any) -> bool:
    """Whether a value is a moment within a day."""
    if isinstance(value, Quantity | Moment):
        return value.meaning.what == "timestamp" and int(value) % (_DAY * PER_SECOND[value.meaning.unit]) != 0
    return isinstance(value, datetime) and value.time() != datetime.min.time()
