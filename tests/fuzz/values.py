"""The value of a primitive column for each source value: docs/reference/types.md in plain Python.

Values are what JSON says: None, bool, int, Decimal (any number with a point or an exponent), str, dict, list. Results are
plain as well: dates are days, times microseconds of the day, timestamps microseconds since 1970, or nanoseconds in the
types that are named so.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
import struct
import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

from pyiceberg.types import DecimalType, FixedType, IcebergType, StringType

from tests.fuzz.forms import Clock, Day, Digits, Instant, Single, java_double, json_text
from tests.fuzz.meanings import DAY_NS, Meant

DAY = 86_400_000_000
TEXT = StringType()
_DIGITS = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_FLOAT = re.compile(rf"(?:{_NUMBER.pattern})[dDfF]?")
_UUID = re.compile(r"[0-9a-fA-F]{8}(-?)[0-9a-fA-F]{4}\1[0-9a-fA-F]{4}\1[0-9a-fA-F]{4}\1[0-9a-fA-F]{12}")
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_CLOCK = r"([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?"
_TIME = re.compile(rf"{_CLOCK}(?:Z|[+-]00(?::?00)?)?")
_STAMP = re.compile(rf"{_DATE.pattern}(?:[T ]{_CLOCK}(Z|[+-][0-9]{{2}}(?::?[0-9]{{2}})?)?)?")
_NAMED = {"NaN": math.nan, "Infinity": math.inf, "+Infinity": math.inf, "-Infinity": -math.inf}


class Unfit(Exception):
    """The value cannot be in the column."""


class TooLarge(Unfit):
    """It could be in a wider column."""


MILLI = 10**6
"""Nanoseconds of a millisecond: the unit of a number where nothing is declared."""


def convert(value: Any, kind: IcebergType, unit: int = MILLI, any_year: bool = False) -> Any:
    """``unit``: the nanoseconds that a number counts in a time or timestamp.

    :raises Unfit: it does not fit.
    """
    name = str(kind).partition("(")[0].partition("[")[0]
    if name not in _MOMENTS:
        return _CONVERTERS[name](value.number if isinstance(value, Meant) else value, kind)
    found: Any
    if isinstance(value, Day | Clock | Instant | Meant):
        found = _moment(value, name)
    elif isinstance(value, str) or name == "date":
        found = _CONVERTERS[name](value, kind)
    else:
        found = _whole(value, 64) * unit
        found = found if name in NANOS else found // 1000
    low, high = (0, DAY - 1) if name == "time" else _WIDEST[name] if any_year else _RANGES[name]
    if not low <= found <= high:
        raise Unfit("out of range")
    return found


def _moment(value: Day | Clock | Instant | Meant, name: str) -> int:
    match value:
        case Meant():
            return _meant(value, name)
        case Day() if name == "date":
            return value.days
        case Clock() if name == "time":
            return value.micros
        case Instant() if name in NANOS:
            return value.nanos or value.micros * 1000
        case Instant() if name in ("timestamp", "timestamptz"):
            return value.micros
        case Instant() if name == "date":
            return value.micros // DAY
        case Day() if name in NANOS:
            return value.days * DAY * 1000
        case Day() if name in ("timestamp", "timestamptz"):
            return value.days * DAY
    raise Unfit(name)


def _meant(value: Meant, name: str) -> int:
    what, nanos = value.meaning.what, value.number * value.meaning.unit
    if name == "date" and what in ("date", "timestamp"):
        return nanos // DAY_NS
    if (name == "time" and what == "time") or (name.startswith("timestamp") and what in ("date", "timestamp")):
        return nanos if name in NANOS else nanos // 1000
    raise Unfit(name)


NANOS = ("timestamp_ns", "timestamptz_ns")
_YEARS = (date.min.toordinal() - date(1970, 1, 1).toordinal(), date.max.toordinal() - date(1970, 1, 1).toordinal())
_MOMENTS = ("date", "time", "timestamp", "timestamptz", *NANOS)
_BITS = (-(1 << 63), (1 << 63) - 1)
_WIDEST = {"date": (-(1 << 31), (1 << 31) - 1), **dict.fromkeys(("timestamp", "timestamptz", *NANOS), _BITS)}
_RANGES = {
    "date": _YEARS,
    **dict.fromkeys(("timestamp", "timestamptz"), (_YEARS[0] * DAY, (_YEARS[1] + 1) * DAY - 1)),
    **dict.fromkeys(NANOS, _BITS),  # these end long before the year 9999
}


def _boolean(value: Any, _: IcebergType) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise Unfit("boolean")


def _whole(value: Any, bits: int) -> int:
    if isinstance(value, str):
        if not _DIGITS.fullmatch(value):
            raise Unfit("digits")
        number = int((value[0] if value[0] in "+-" else "") + (value.lstrip("+-0") or "0")[:1000])
    elif isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise Unfit("number")
    else:
        if isinstance(value, float) and not math.isfinite(value):
            raise Unfit("finite")
        if isinstance(value, Decimal) and value != 0 and value.adjusted() > 400:
            raise TooLarge("bits")
        if value != value // 1 if not isinstance(value, Decimal) else not _is_whole(value):
            raise Unfit("whole")
        number = int(value)
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise TooLarge("bits")
    return number


def _is_whole(value: Decimal) -> bool:
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int), "not a finite number"
    return exponent >= 0 or (not any(digits[exponent:]) and (-exponent <= len(digits) or not any(digits)))


def _int(value: Any, _: IcebergType) -> int:
    return _whole(value, 32)


def _long(value: Any, _: IcebergType) -> int:
    return _whole(value, 64)


def _double(value: Any, _: IcebergType) -> float:
    if isinstance(value, str):
        text = value.strip(" \t\r\n")
        if text in _NAMED:
            return _NAMED[text]
        if not _FLOAT.fullmatch(text):
            raise Unfit("number")
        return _finite(float(text[:-1] if text[-1] in "dDfF" else text))
    if isinstance(value, float):
        return value
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise Unfit("number")
    try:
        return _finite(float(value))
    except OverflowError:
        raise TooLarge("double") from None


def _finite(number: float) -> float:
    if math.isinf(number):
        raise TooLarge("double")
    return number


def _float(value: Any, kind: IcebergType) -> float:
    number = _double(value, kind)
    try:
        return float(struct.unpack("<f", struct.pack("<f", number))[0])
    except OverflowError:
        raise TooLarge("float") from None


def _decimal(value: Any, kind: IcebergType) -> Decimal:
    assert isinstance(kind, DecimalType)
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        raise Unfit("number")
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        raise Unfit("number")
    if isinstance(value, float):
        if not math.isfinite(value):
            raise Unfit("finite")
        value = repr(float(value))
    number = Decimal(value)
    if number == 0:
        return Decimal(0).scaleb(-kind.scale)
    if number.adjusted() >= kind.precision - kind.scale + 1:
        raise Unfit("digits")
    if number.adjusted() < -kind.scale - 2:
        return Decimal(0).scaleb(-kind.scale)
    with localcontext(prec=10_000):
        rounded = number.quantize(Decimal(1).scaleb(-kind.scale), rounding=ROUND_HALF_UP)
    if len(rounded.as_tuple().digits) > kind.precision and rounded != 0:
        raise Unfit("digits")
    return abs(rounded) if rounded == 0 else rounded


def _string(value: Any, _: IcebergType) -> str:
    match value:
        case str():
            return value
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case Digits():
            return f"{value:f}"
        case uuid.UUID():
            return str(value)
        case Single():
            return java_double(value)
        case Decimal() | float():
            return java_double(float(value))
        case dict() | list():
            return json_text(value)
    raise Unfit("text")


def _uuid(value: Any, _: IcebergType) -> uuid.UUID:
    if isinstance(value, uuid.UUID):
        return value
    if isinstance(value, bytes) and len(value) == 16:
        return uuid.UUID(bytes=value)
    if not isinstance(value, str) or not _UUID.fullmatch(value):
        raise Unfit("uuid")
    return uuid.UUID(value)


def _binary(value: Any, _: IcebergType) -> bytes:
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise Unfit("base64")
    try:
        return base64.b64decode(value + "=" * (-len(value) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise Unfit("base64") from None


def _fixed(value: Any, kind: IcebergType) -> bytes:
    raw = _binary(value, kind)
    assert isinstance(kind, FixedType)
    if len(raw) != len(kind):
        raise Unfit("length")
    return raw


def _date(value: Any, _: IcebergType) -> int:
    if not isinstance(value, str):
        return _whole(value, 32)
    match = _DATE.fullmatch(value.removesuffix("Z"))
    if match is None:
        raise Unfit("date")
    return _days(*match.groups())


def _days(year: str, month: str, day: str) -> int:
    """Also of the year 0, which Python's dates have not."""
    number = int(year)
    try:
        there = date(number or 400, int(month), int(day))
    except ValueError:
        raise Unfit("date") from None
    return (there - date(1970, 1, 1)).days - (0 if number else 146_097)


def _time(value: Any, _: IcebergType) -> int:
    match = _TIME.fullmatch(value)
    if match is None:
        raise Unfit("time")
    return _nanos(*match.groups()) // 1000


def _nanos(hour: str, minute: str, second: str | None, fraction: str | None) -> int:
    if int(hour) > 23 or int(minute) > 59 or int(second or 0) > 59:
        raise Unfit("time")
    whole = (int(hour) * 60 + int(minute)) * 60 + int(second or 0)
    return whole * 1_000_000_000 + int((fraction or "").ljust(9, "0"))


def _stamp(value: Any, kind: IcebergType) -> int:
    match = _STAMP.fullmatch(value)
    if match is None:
        raise Unfit("date-time")
    year, month, day, hour, minute, second, fraction, offset = match.groups()
    nanos = _days(year, month, day) * DAY * 1000
    if hour is not None:
        nanos += _nanos(hour, minute, second, fraction)
    if offset and offset != "Z":
        hours, minutes = int(offset[1:3]), int(offset[3:].lstrip(":") or 0)
        if hours > 23 or minutes > 59:
            raise Unfit("offset")
        if str(kind).startswith("timestamptz"):
            nanos += (-1 if offset[0] == "+" else 1) * (hours * 60 + minutes) * 60_000_000_000
    return nanos if str(kind) in NANOS else nanos // 1000


_CONVERTERS = {
    "boolean": _boolean,
    "int": _int,
    "long": _long,
    "float": _float,
    "double": _double,
    "decimal": _decimal,
    "string": _string,
    "uuid": _uuid,
    "binary": _binary,
    "fixed": _fixed,
    "date": _date,
    "time": _time,
    "timestamp": _stamp,
    "timestamptz": _stamp,
    **dict.fromkeys(NANOS, _stamp),
}

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def micros_of(value: datetime) -> int:
    """Microseconds since 1970, without an offset in UTC."""
    aware = value if value.tzinfo else value.replace(tzinfo=UTC)
    return (aware - EPOCH) // timedelta(microseconds=1)
