"""The values of Protobuf's own messages that mean a date or a time."""

from __future__ import annotations

from datetime import date, time
from typing import Any

_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799
"""The first and the last second of the years 1 to 9999, the range that Protobuf defines."""


def timestamp(message: Any) -> int:
    """The microseconds since 1970. :raises ValueError: the message is no google.protobuf.Timestamp."""
    if not (_FIRST_SECOND <= message.seconds <= _LAST_SECOND and 0 <= message.nanos < 1_000_000_000):
        raise ValueError(f"{message.seconds} s and {message.nanos} ns are not a google.protobuf.Timestamp")
    return int(message.seconds * 1_000_000 + message.nanos // 1000)


def calendar_date(message: Any) -> date:
    """:raises ValueError: there is no such day, as in a google.type.Date of a year and a month alone."""
    try:
        return date(message.year, message.month, message.day)
    except ValueError as error:
        raise ValueError(f"year {message.year}, month {message.month}, day {message.day} is not a date") from error


def time_of_day(message: Any) -> time:
    """:raises ValueError: the time is not within a day, as 24:00 and a leap second."""
    hours, minutes, seconds, nanos = message.hours, message.minutes, message.seconds, message.nanos
    try:
        return time(hours, minutes, seconds, nanos // 1000)
    except ValueError as error:
        what = f"{hours} h, {minutes} min, {seconds} s and {nanos} ns"
        raise ValueError(f"{what} are not within a google.type.TimeOfDay") from error
