"""Single values, and columns of text, as days and microseconds.

The functions for single values raise ValueError for a value of another kind, and OverflowError for a value out of
range.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from calving.casting.numbers import is_number, number, short, text_of

_SUB_MICROS = re.compile(r"(\.[0-9]{6})[0-9]{1,3}")
_OFFSET = r"([Tt ].*)(Z|z|[+-](?:[01][0-9]|2[0-3])(?::?[0-5][0-9])?)$"
"""A time zone offset after a time. Without the time in the pattern, the day of a date would look like an offset."""
_TIME = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9])(?:\.([0-9]{1,9}))?)?")
_EPOCH = datetime(1970, 1, 1)
_DAY_US = 86_400_000_000


def timestamptz_text(text: pa.Array, unit: str = "us") -> pa.Array:
    """ISO date-times as microseconds UTC. A date-time without an offset is in UTC.

    :raises pa.ArrowInvalid: a text is not a date-time, or only some have an offset.
    """
    try:
        return text.cast(pa.timestamp(unit, "UTC"))
    except pa.ArrowInvalid:
        text = _micros_at_most(text) if unit == "us" else text
        if pc.any(pc.match_substring_regex(text, _OFFSET)).as_py():
            return text.cast(pa.timestamp(unit, "UTC"))
        return text.cast(pa.timestamp(unit)).cast(pa.timestamp(unit, "UTC"))


def timestamp_text(text: pa.Array, unit: str = "us") -> pa.Array:
    """ISO date-times as microseconds of local time. An offset is dropped, not applied, as in Java.

    :raises pa.ArrowInvalid: a text is not a date-time.
    """
    try:
        return text.cast(pa.timestamp(unit))
    except pa.ArrowInvalid:
        text = _micros_at_most(text) if unit == "us" else text
        return pc.replace_substring_regex(text, _OFFSET, r"\1").cast(pa.timestamp(unit))


def date_text(text: pa.Array) -> pa.Array:
    """``yyyy-MM-dd`` to days. :raises pa.ArrowInvalid: a text is not a date."""
    return text.cast(pa.date32())


def time_text(text: pa.Array) -> pa.Array:
    """``HH:mm[:ss[.fraction]]`` to microseconds of the day. :raises ValueError: a text is not a time."""
    return pa.array([None if item is None else _parsed_time(item) for item in text.to_pylist()], pa.time64("us"))


def _parsed_time(text: str) -> int:
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError("not a time of day")
    hours, minutes, seconds, fraction = match.groups()
    whole = (int(hours) * 60 + int(minutes)) * 60 + int(seconds or 0)
    return whole * 1_000_000 + int((fraction or "").ljust(6, "0")[:6])


def _micros_at_most(text: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(text, _SUB_MICROS.pattern, r"\1")


def day(value: Any) -> int:
    """Days since 1970 from a date, a number of days, or a text."""
    if isinstance(value, datetime):
        return micros_of(value) // _DAY_US
    if isinstance(value, date):
        return (value - _EPOCH.date()).days
    return number(value, 32) if is_number(value) else _stored(date_text(pa.array([text_of(value)])))


def time_of_day(value: Any) -> int:
    """Microseconds of the day from a time, a number of milliseconds, or a text."""
    if isinstance(value, time):
        return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
    micros = number(value, 64) * 1000 if is_number(value) else _stored(time_text(pa.array([text_of(value)])))
    if not 0 <= micros < _DAY_US:
        raise OverflowError(f"{short(value)} is not a time of day")
    return micros


def instant(value: Any, of_text: Callable[[pa.Array], pa.Array]) -> int:
    """Microseconds since 1970 from a date, a number of milliseconds, or a text, which ``of_text`` parses."""
    if isinstance(value, date):
        return micros_of(value) if isinstance(value, datetime) else day(value) * _DAY_US
    return _millis(value) if is_number(value) else _stored(of_text(pa.array([text_of(value)])))


def nanos(value: Any, of_text: Callable[[pa.Array, str], pa.Array]) -> int:
    """As ``instant``, in nanoseconds."""
    if isinstance(value, date) or is_number(value):
        nanos = instant(value, of_text=lambda text: text) * 1000
        if not -(1 << 63) <= nanos < 1 << 63:
            raise OverflowError(f"{short(value)} does not fit a timestamp in nanoseconds")
        return nanos
    return _stored(of_text(pa.array([text_of(value)]), "ns"))


def _stored(column: pa.Array) -> int:
    """The number that Arrow stores for the only value of a column of dates or times."""
    return int(column.view(pa.int32() if column.type.bit_width == 32 else pa.int64())[0].as_py())


def micros_of(value: datetime) -> int:
    """Microseconds since 1970; a date-time without a zone is in UTC."""
    naive = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
    return (naive - _EPOCH) // timedelta(microseconds=1)


def _millis(value: Any) -> int:
    micros = number(value, 64) * 1000
    if not -(1 << 63) <= micros < 1 << 63:
        raise OverflowError(f"{value} ms does not fit a timestamp in microseconds")
    return micros
