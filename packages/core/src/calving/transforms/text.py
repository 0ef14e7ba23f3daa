"""Values as text, written as Java writes them."""

from __future__ import annotations

import base64
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from calving.casting.texts import java_double, plain_text
from calving.records.arrays import JSON
from calving.records.semantics import plain
from calving.records.values import objects
from calving.transforms.dates import JavaDateFormat
from calving.transforms.interface import UnfitTypeError

_DATE = JavaDateFormat("yyyy-MM-dd", 0)
_TIME = JavaDateFormat("HH:mm:ss.SSS", 0)
_MOMENT = JavaDateFormat("yyyy-MM-dd'T'HH:mm:ss.SSS", 0)
_DAY_MS = 86_400_000


def kind_text(kind: pa.DataType) -> str:
    """What values of this type are called in an error. It does not tell what is inside of them, because a part that is
    null may have the type that it has in other records.
    """
    t = pa.types
    named = {
        "an object": t.is_struct(kind),
        "an array": t.is_list(kind),
        "a map": t.is_map(kind),
        "text": t.is_string(kind),
        "a whole number": t.is_integer(kind),
        "a fraction": t.is_floating(kind),
        "true or false": t.is_boolean(kind),
        "JSON": kind == JSON,
    }
    return next((name for name, is_it in named.items() if is_it), str(kind))


def as_text(column: pa.Array) -> pa.Array:
    """``toString`` of Connect's values; dates and times in ISO form, bytes in base64, objects and lists as JSON."""
    column = plain(column)
    kind = column.type
    if pa.types.is_string(kind):
        return column
    if pa.types.is_boolean(kind):
        return pc.if_else(column, "true", "false")
    if pa.types.is_integer(kind) or pa.types.is_null(kind):
        return column.cast(pa.string())
    if pa.types.is_temporal(kind):
        return _temporal(column)
    if pa.types.is_float32(kind):  # the digits of the 32-bit float, not of the nearest double
        texts = [None if v is None else java_double(float(v)) for v in column.cast(pa.string()).to_pylist()]
        return pa.array(texts, pa.string())
    return pa.array([None if v is None else _text(v, kind) for v in objects(column)], pa.string())


def _text(value: Any, kind: pa.DataType) -> str:
    if isinstance(value, float) or (isinstance(value, Decimal) and kind == JSON):
        return java_double(float(value))
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return plain_text(value)


def _temporal(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_date(kind):
        days = column.cast(pa.date32()).cast(pa.int32()).to_pylist()
        return pa.array([None if d is None else _DATE.format(d * _DAY_MS) for d in days], pa.string())
    pattern = _MOMENT if pa.types.is_timestamp(kind) else _TIME
    zone = "" if pa.types.is_timestamp(kind) and kind.tz is None else "Z"
    per_milli = {"s": 0, "ms": 1, "us": 1_000, "ns": 1_000_000}[_unit(kind)]
    digits = {1_000: 3, 1_000_000: 6}.get(per_milli, 0)

    def write(value: int) -> str:
        millis, rest = divmod(value, per_milli) if per_milli else (value * 1000, 0)
        return pattern.format(millis) + (f"{rest:0{digits}d}" if digits else "") + zone

    numbers = column.cast(pa.int32() if kind.bit_width == 32 else pa.int64()).to_pylist()
    return pa.array([None if v is None else write(v) for v in numbers], pa.string())


def _unit(kind: pa.DataType) -> str:
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        return kind.unit
    raise UnfitTypeError(f"it must be a time or a timestamp, not {kind_text(kind)}")


def millis(column: pa.Array) -> pa.Array:
    """Dates, times and timestamps as whole milliseconds (int64). Smaller parts are cut off."""
    kind = column.type
    if pa.types.is_date(kind):
        return pc.multiply_checked(column.cast(pa.date32()).cast(pa.int32()).cast(pa.int64()), _DAY_MS)
    numbers = column.cast(pa.int32() if kind.bit_width == 32 else pa.int64()).cast(pa.int64())
    unit = _unit(kind)
    if unit == "s":
        return pc.multiply_checked(numbers, 1000)
    if unit == "ms":
        return numbers
    per_milli = 1_000 if unit == "us" else 1_000_000
    whole = pc.divide(numbers, per_milli)
    return pc.if_else(pc.less(numbers, pc.multiply(whole, per_milli)), pc.subtract(whole, 1), whole)
