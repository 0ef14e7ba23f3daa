"""Text of dates and times in any year; Python's own dates cover only the years 1 to 9999."""

from __future__ import annotations

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
    """``yyyy-MM-dd``."""
    year, month, day = civil(days)
    return f"{year:04d}-{month:02d}-{day:02d}"


def time_text(units: int, per_second: int) -> str:
    """``HH:mm:ss``, with a fraction if there is one."""
    seconds, fraction = divmod(units, per_second)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    text = f"{hour:02d}:{minute:02d}:{second:02d}"
    return f"{text}.{fraction:0{len(str(per_second)) - 1}d}" if fraction else text


def timestamp_text(units: int, per_second: int) -> str:
    """``yyyy-MM-ddTHH:mm:ss``, with a fraction if there is one."""
    days, rest = divmod(units, _DAY_SECONDS * per_second)
    return f"{date_text(days)}T{time_text(rest, per_second)}"
