"""Single values as text: numbers as Java writes them, objects and arrays as JSON."""

from __future__ import annotations

import base64
import json
import math
import struct
import uuid
from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from calving.casting.numbers import floating
from calving.casting.temporal import day, micros_of, time_of_day
from calving.records.arrays import Digits, Items, Pairs, Single, Typed
from calving.records.semantics import PER_SECOND, Moment


def string(value: Any) -> str:
    """A value as the text of a string column. :raises ValueError: it has no text form."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Digits):
        return format(value, "f")
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, float | Decimal):
        return java_double(value if isinstance(value, float) else floating(value, single=False))
    if isinstance(value, int):
        return str(value)
    if not isinstance(value, Mapping | list):
        raise ValueError("it has no text of its own")
    return json_text(value)


def json_text(value: Any) -> str:
    """A value as JSON: fractions as doubles, typed decimals with all their digits, a map as an object.

    :raises ValueError: it has no JSON form.
    """
    if not isinstance(value, Typed | Items | Pairs):
        try:
            return _dumps(value)
        except ValueError:
            return _dumps(_named(value))
    if isinstance(value, Items):
        return "[" + ",".join(map(_item_text, value)) + "]"
    items = value.items() if isinstance(value, Typed) else value
    return "{" + ",".join(f"{json_text(plain_text(k))}:{_item_text(v)}" for k, v in items) + "}"


def _dumps(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_json_default)


def _named(value: Any) -> Any:
    """The value with NaN and infinity as text, since JSON has no such numbers."""
    if isinstance(value, Mapping):
        return {name: _named(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_named(item) for item in value]
    return java_double(value) if isinstance(value, float) and not math.isfinite(value) else value


def _item_text(value: Any) -> str:
    if isinstance(value, Digits):
        return format(value, "f")
    return json_text(float(_single_text(value)) if isinstance(value, Single) else value)


def _json_default(value: Any) -> Any:
    """As Connect's JSON without a schema: bytes in base64, dates in days, times in milliseconds."""
    match value:
        case Decimal():
            return floating(value, single=False)
        case bytes():
            return base64.b64encode(value).decode()
        case uuid.UUID():
            return str(value)
        case Moment() if value.meaning.what == "date":
            return value.number
        case Moment():
            return value.number * 1000 // PER_SECOND[value.meaning.unit]
        case datetime():
            return micros_of(value) // 1000
        case date():
            return day(value)
        case time():
            return time_of_day(value) // 1000
    raise ValueError(f"{type(value).__name__} has no JSON form")


def plain_text(value: Any) -> str:
    """A value of any kind as text: a decimal in plain digits, dates in ISO form, bytes in base64."""
    match value:
        case Decimal():
            return format(value, "f")
        case datetime() | date() | time():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode()
        case uuid.UUID():
            return str(value)
    return string(value)


def java_double(value: float) -> str:
    """Java's ``Double.toString``: at least one decimal, an exponent outside 1e-3 to 1e7."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "-0.0" if math.copysign(1, value) < 0 else "0.0"
    sign, digits, exponent = Decimal(_single_text(value) if isinstance(value, Single) else repr(value)).as_tuple()
    if len(digits) == 1 and float(near := f"{value:.1e}") == value:  # Java uses the nearest number of two digits
        sign, digits, exponent = Decimal(near).as_tuple()
    text = "".join(map(str, digits)).rstrip("0") or "0"
    point = len(digits) + int(exponent)
    minus = "-" if sign else ""
    if 1e-3 <= abs(value) < 1e7:
        if point <= 0:
            return f"{minus}0.{'0' * -point}{text}"
        return f"{minus}{text[:point].ljust(point, '0')}.{text[point:] or '0'}"
    return f"{minus}{text[0]}.{text[1:] or '0'}E{point - 1}"


def _single_text(value: float) -> str:
    """The shortest text that reads back as the same 32-bit float."""
    if not math.isfinite(value):
        return repr(float(value))
    packed = struct.pack("f", value)
    texts = (f"{value:.{digits}g}" for digits in range(1, 10))
    return next(text for text in texts if struct.pack("f", float(text)) == packed)
