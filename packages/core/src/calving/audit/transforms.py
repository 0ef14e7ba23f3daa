"""The partition transforms of the specification, over plain values."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import mmh3

from calving.audit.values import PlainValue

_WITH_NUMBER = re.compile(r"(bucket|truncate)\[(\d+)\]")
_DAY_MICROS, _HOUR_MICROS = 86_400_000_000, 3_600_000_000
_DAYS_OF_400_YEARS, _DAYS_TO_1970 = 146_097, 719_468


def transform_of(text: str, kind: str) -> Callable[[PlainValue], PlainValue | None] | None:
    """The transform that a partition spec names, for a source column of this type; None for one that is not known."""
    if text == "identity":
        return lambda value: value
    if text == "void":
        return lambda value: None
    if (match := _WITH_NUMBER.fullmatch(text)) is not None:
        made = _bucket if match[1] == "bucket" else _truncate
        return partial(made, kind, int(match[2]))
    if text in _OF_TIME and (kind == "date" or kind.startswith("timestamp")):
        return partial(_OF_TIME[text], kind)
    return None


def result_kind(text: str, kind: str) -> str:
    """The type of a transform's results."""
    if text in ("identity", "void") or text.startswith("truncate"):
        return kind
    return "date" if text == "day" else "int"


def _bucket(kind: str, buckets: int, value: PlainValue) -> int:
    if isinstance(value, bytes):
        content = value
    elif kind.startswith("decimal"):
        number = int(value)
        content = number.to_bytes(((number if number >= 0 else ~number).bit_length() + 8) // 8, "big", signed=True)
    else:
        number = int(value) // 1000 if kind.endswith("_ns") else int(value)
        content = number.to_bytes(8, "little", signed=True)
    return (mmh3.hash(content) & 0x7FFFFFFF) % buckets


def _truncate(kind: str, width: int, value: PlainValue) -> PlainValue:
    if isinstance(value, bytes):
        return value.decode()[:width].encode() if kind == "string" else value[:width]
    return int(value) - int(value) % width


def _days(kind: str, value: PlainValue) -> int:
    return int(value) if kind == "date" else _micros(kind, value) // _DAY_MICROS


def _micros(kind: str, value: PlainValue) -> int:
    return int(value) // 1000 if kind.endswith("_ns") else int(value)


def _hours(kind: str, value: PlainValue) -> int:
    return _micros(kind, value) // _HOUR_MICROS


def _years(kind: str, value: PlainValue) -> int:
    return _civil(_days(kind, value))[0] - 1970


def _months(kind: str, value: PlainValue) -> int:
    year, month = _civil(_days(kind, value))
    return (year - 1970) * 12 + month - 1


def _civil(days: int) -> tuple[int, int]:
    """Year and month of a day since 1970, in the Gregorian calendar, of any year."""
    era, day = divmod(days + _DAYS_TO_1970, _DAYS_OF_400_YEARS)  # of years that begin in March
    year = (day - day // 1460 + day // 36_524 - day // 146_096) // 365
    month = (5 * (day - (365 * year + year // 4 - year // 100)) + 2) // 153
    return era * 400 + year + (month >= 10), month + 3 if month < 10 else month - 9


_OF_TIME = {"year": _years, "month": _months, "day": _days, "hour": _hours}
