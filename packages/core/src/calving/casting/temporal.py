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
from calving.records import calendar
from calving.records.fields import MILLIS, Counting
from calving.records.semantics import PER_SECOND, Moment, Quantity

_SUB_MICROS = re.compile(r"(\.[0-9]{6})[0-9]{1,3}")
_OFFSET = r"([Tt ].*)(Z|z|[+-](?:[01][0-9]|2[0-3])(?::?[0-5][0-9])?)$"
"""A time zone offset after a time. Without the time in the pattern, the day of a date would look like an offset."""
_TIME = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9])(?:\.([0-9]{1,9}))?)?(?:Z|[+-]00(?::?00)?)?")
_UTC_DATE = "^([0-9]{4}-[0-9]{2}-[0-9]{2})Z$"
_EPOCH = datetime(1970, 1, 1)
DAY_SECONDS = 86_400
_DAY_US = 86_400_000_000
FIRST_DAY, LAST_DAY = -719_162, 2_932_896
"""The first and the last day of the years 1 to 9999, and their microseconds."""
FIRST_MICRO, LAST_MICRO = FIRST_DAY * _DAY_US, (LAST_DAY + 1) * _DAY_US - 1


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
    """``yyyy-MM-dd``, with or without a ``Z``, to days. :raises pa.ArrowInvalid: a text is not a date."""
    try:
        return text.cast(pa.date32())
    except pa.ArrowInvalid:
        return pc.replace_substring_regex(text, _UTC_DATE, r"\1").cast(pa.date32())


def time_text(text: pa.Array) -> pa.Array:
    """``HH:mm[:ss[.fraction]]``, with or without a UTC offset of zero, to microseconds of the day.

    :raises ValueError: a text is not a time.
    """
    return pa.array([None if each is None else _parsed_time(each) for each in text.to_pylist()], pa.time64("us"))


def _parsed_time(text: str) -> int:
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError("not a time of day")
    hours, minutes, seconds, fraction = match.groups()
    whole = (int(hours) * 60 + int(minutes)) * 60 + int(seconds or 0)
    return whole * 1_000_000 + int((fraction or "").ljust(6, "0")[:6])


def _micros_at_most(text: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(text, _SUB_MICROS.pattern, r"\1")


def day(value: Any, counting: Counting = MILLIS) -> int:
    """Days since 1970 from a date, a number of days, or a text."""
    if isinstance(value, Quantity | Moment):
        days = _days_of(value)
    elif isinstance(value, date):
        days = micros_of(value) // _DAY_US if isinstance(value, datetime) else (value - _EPOCH.date()).days
    else:
        days = number(value, 32) if is_number(value) else _stored(date_text(pa.array([text_of(value)])))
    if not (counting.any_year or FIRST_DAY <= days <= LAST_DAY):
        raise OverflowError(_outside(value, "", f"the date {calendar.date_text(days)}", _DAYS))
    return days


def _days_of(value: Quantity | Moment) -> int:
    """:raises ValueError: the number means no date."""
    match value.meaning.what:
        case "date":
            return number(int(value), 32)
        case "timestamp":
            return _micros(int(value), value.meaning.unit) // _DAY_US
    raise ValueError(f"{value.meaning.name} is no date")


def time_of_day(value: Any, counting: Counting = MILLIS) -> int:
    """Microseconds of the day from a time, a number of the counting's units, or a text."""
    if isinstance(value, time):
        return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
    if isinstance(value, Quantity | Moment):
        if value.meaning.what != "time":
            raise ValueError(f"{value.meaning.name} is no time of day")
        micros = _micros(int(value), value.meaning.unit)
    elif is_number(value):
        micros = _micros(number(value, 64), counting.unit)
    else:
        micros = _stored(time_text(pa.array([text_of(value)])))
    if not 0 <= micros < _DAY_US:
        unit = value.meaning.unit if isinstance(value, Quantity | Moment) else counting.unit
        raise OverflowError(f"{short(value)} {unit} are no time of day: it is within a day")
    return micros


def instant(value: Any, of_text: Callable[[pa.Array], pa.Array], counting: Counting = MILLIS) -> int:
    """Microseconds since 1970 from a date, a number of the counting's units, or a text, which ``of_text`` parses."""
    micros = _instant(value, of_text, counting)
    if not (counting.any_year or FIRST_MICRO <= micros <= LAST_MICRO):
        moment = calendar.timestamp_text(micros, PER_SECOND["us"])
        raise OverflowError(_outside(value, _unit_of(value, counting), f"the moment {moment}", _UNITS))
    if not -(1 << 63) <= micros < 1 << 63:
        raise OverflowError(f"{short(value)}{_unit_of(value, counting)} does not fit a timestamp in microseconds")
    return micros


def _instant(value: Any, of_text: Callable[[pa.Array], pa.Array], counting: Counting) -> int:
    if isinstance(value, Quantity | Moment):
        return _nanos_of(value) // 1000
    if isinstance(value, date):
        return micros_of(value) if isinstance(value, datetime) else day(value, _ANY) * _DAY_US
    if is_number(value):
        return _micros(number(value, 64), counting.unit)
    return _stored(of_text(pa.array([text_of(value)])))


def nanos(value: Any, of_text: Callable[[pa.Array, str], pa.Array], counting: Counting = MILLIS) -> int:
    """As ``instant``, in nanoseconds."""
    if isinstance(value, Quantity | Moment):
        instant = _nanos_of(value)
    elif is_number(value):
        instant = number(value, 64) * PER_SECOND["ns"] // PER_SECOND[counting.unit]
    elif isinstance(value, date):
        instant = _instant(value, lambda text: text, counting) * 1000
    else:
        return _stored_nanos(pa.array([text_of(value)]), of_text)
    if not -(1 << 63) <= instant < 1 << 63:
        raise OverflowError(f"{short(value)}{_unit_of(value, counting)} does not fit a timestamp in nanoseconds")
    return instant


def _nanos_of(value: Quantity | Moment) -> int:
    """:raises ValueError: the number means no moment."""
    match value.meaning.what:
        case "date":
            return int(value) * _DAY_US * 1000
        case "timestamp":
            return int(value) * PER_SECOND["ns"] // PER_SECOND[value.meaning.unit]
    raise ValueError(f"{value.meaning.name} is no moment")


def _micros(count: int, unit: str) -> int:
    """Microseconds of so many units, rounded down."""
    return count * PER_SECOND["us"] // PER_SECOND[unit]


def _unit_of(value: Any, counting: Counting) -> str:
    """The unit of a number, for a message."""
    if isinstance(value, Quantity | Moment):
        return f" {value.meaning.unit}"
    return f" {counting.unit}" if is_number(value) else ""


_ANY = Counting(any_year=True)
_DAYS = "a number for a date is days since 1970; "
_UNITS = 'if its number counts in another unit, declare the unit, such as columns = "created timestamp from us"; '


def _outside(value: Any, unit: str, moment: str, of_numbers: str) -> str:
    """Why a value is bad that is a moment outside the years 1 to 9999. ``of_numbers``: advice for numbers."""
    advice = f"{of_numbers if is_number(value) else ''}iceberg.tables.timestamp-range = any takes all years"
    if isinstance(value, Moment):  # a transform may have made it, and then the record does not have its number
        return f"{moment} is outside the years 1 to 9999; {advice}"
    return f"{short(value)}{unit} is {moment}, outside the years 1 to 9999; {advice}"


def _stored(column: pa.Array) -> int:
    """The number that Arrow stores for the only value of a column of dates or times."""
    return int(column.view(pa.int32() if column.type.bit_width == 32 else pa.int64())[0].as_py())


def _stored_nanos(text: pa.Array, of_text: Callable[[pa.Array, str], pa.Array]) -> int:
    """:raises OverflowError: the text is a moment that nanoseconds do not reach."""
    try:
        return _stored(of_text(text, "ns"))
    except pa.ArrowInvalid as error:
        try:
            of_text(text, "us")
        except pa.ArrowInvalid:
            raise error from None
        raise OverflowError(f"{short(text[0].as_py())} does not fit a timestamp in nanoseconds") from None


def micros_of(value: datetime) -> int:
    """Microseconds since 1970; a date-time without a zone is in UTC."""
    naive = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
    return (naive - _EPOCH) // timedelta(microseconds=1)


def floor_divided(numbers: pa.Array, by: int) -> pa.Array:
    """The quotients, rounded down, also below zero; Arrow's own division rounds towards zero."""
    whole = pc.divide(numbers, by)
    return pc.if_else(pc.less(numbers, pc.multiply(whole, by)), pc.subtract(whole, 1), whole)
