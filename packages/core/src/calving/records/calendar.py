"""Calendars: the Gregorian one for any year, as Python's own dates cover only the years 1 to 9999; and Java's, which is
Julian before 15 October 1582, as ``GregorianCalendar`` reckons.
"""

from __future__ import annotations

from datetime import date
from functools import lru_cache
from typing import NamedTuple

_DAY_SECONDS = 86_400


def civil(days: int) -> tuple[int, int, int]:
    """Year, month and day of so many days since 1970-01-01, in the Gregorian calendar."""
    # In years that begin in March, leap days come last; an era of 400 of them has 146,097 days.
    era, day = divmod(days + 719_468, 146_097)
    year = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day -= (153 * month + 2) // 5
    month += 3 if month < 10 else -9
    return 400 * era + year + (month <= 2), month, day + 1


def date_text(days: int) -> str:
    """``yyyy-MM-dd``. As in ISO 8601 and Java, a year below 0 or above 9999 has a sign, and 0 is 1 BC."""
    year, month, day = civil(days)
    return f"{year:{'04' if 0 <= year <= 9999 else '+05'}d}-{month:02d}-{day:02d}"


def time_text(units: int, per_second: int) -> str:
    """``HH:mm:ss``, with a fraction if there is one."""
    seconds, fraction = divmod(units, per_second)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    text = f"{hour:02d}:{minute:02d}:{second:02d}"
    return f"{text}.{fraction:0{len(str(per_second)) - 1}d}" if fraction else text


def timestamp_text(units: int, per_second: int) -> str:
    """``yyyy-MM-ddTHH:mm:ss``, with a fraction if there is one. The year is that of ``date_text``."""
    days, rest = divmod(units, _DAY_SECONDS * per_second)
    return f"{date_text(days)}T{time_text(rest, per_second)}"


_EPOCH = date(1970, 1, 1).toordinal()
_CUTOVER = date(1582, 10, 15).toordinal() - _EPOCH
_LAST = date.max.toordinal() - _EPOCH
_CYCLE_DAYS, _CYCLE_YEARS = 146_097, 400
_BEFORE = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334)
"""Days of a common year before each month."""


class Day(NamedTuple):
    """``year`` is 0 for 1 BC, -1 for 2 BC. ``of_year`` counts from 1."""

    year: int
    month: int
    day: int
    of_year: int


@lru_cache(maxsize=4096)
def day_of(days: int) -> Day:
    """The date of a number of days since 1970."""
    if _CUTOVER <= days <= _LAST:
        day = date.fromordinal(days + _EPOCH)
        first = _julian(day.year, 1) if day.year == 1582 else date(day.year, 1, 1).toordinal() - _EPOCH
        return Day(day.year, day.month, day.day, days - first + 1)
    if days > _LAST:
        cycles = -(-(days - _LAST) // _CYCLE_DAYS)
        inner = day_of(days - cycles * _CYCLE_DAYS)
        return inner._replace(year=inner.year + cycles * _CYCLE_YEARS)
    return _julian_day(days)


def days_of(year: int, month: int, day: int) -> int:
    """Days since 1970 of a date. Months and days beyond their range count on, as in a lenient calendar."""
    years, month = divmod(month - 1, 12)
    julian = _julian(year + years, month + 1) + day - 1
    if year < 1582:
        return julian
    gregorian = _gregorian(year + years, month + 1) + day - 1
    return gregorian if gregorian >= _CUTOVER else julian


def of_year(year: int, number: int) -> int:
    """Days since 1970 of a day of a year. The first day is 1. The year of the cutover counts as Julian, as in Java."""
    return (_julian(year, 1) if year <= 1582 else _gregorian(year, 1)) + number - 1


def weekday(days: int) -> int:
    """1 for Monday to 7 for Sunday."""
    return (days + 3) % 7 + 1


def _gregorian(year: int, month: int) -> int:
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    before = year - 1
    return 365 * before + before // 4 - before // 100 + before // 400 + _in_year(month, leap) - _EPOCH + 1


def _julian(year: int, month: int) -> int:
    before = year - 1
    return 365 * before + before // 4 + _in_year(month, year % 4 == 0) - _EPOCH - 1


def _in_year(month: int, leap: bool) -> int:
    return _BEFORE[month - 1] + (1 if leap and month > 2 else 0)


def _julian_day(days: int) -> Day:
    count = days - _julian(1, 1)
    cycles, rest = divmod(count, 1461)
    year = min(rest // 365, 3)
    in_year = rest - 365 * year
    leap = year == 3
    month = max(m for m in range(1, 13) if _in_year(m, leap) <= in_year)
    return Day(4 * cycles + year + 1, month, in_year - _in_year(month, leap) + 1, in_year + 1)
