"""Texts that are numbers or positions in a log, as keys that compare as the numbers and positions do."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from calving.model.mutations import OrderType

_NUMBER = re.compile(r"([+-]?)([0-9]{1,999})(?:\.([0-9]+))?", re.ASCII)
_POSTGRES = re.compile(r"([0-9a-f]{1,8})/([0-9a-f]{1,8})", re.ASCII | re.IGNORECASE)
_SQL_SERVER = re.compile(r"([0-9a-f]{1,8}):([0-9a-f]{1,8}):([0-9a-f]{1,4})", re.ASCII | re.IGNORECASE)
_BINARY_LOG = re.compile(r"[^:/]+\.([0-9]{1,19})[:/]([0-9]{1,19})", re.ASCII)
_LONGEST = 1_000
_ELEMENT = re.compile(r"[0-9]{1,38}", re.ASCII)
_COMPLEMENT = str.maketrans("0123456789", "9876543210")


def order_keys(column: pa.Array, kind: OrderType) -> pa.Array:
    """Keys that compare as the column's values do; null where a text is neither a number nor a position in a log. Only
    texts need keys: values of other types are their own.
    """
    if kind == "text" or not pa.types.is_string(column.type):
        return column
    return pa.array([None if text is None else _key(text.strip()) for text in column.to_pylist()], pa.string())


def _key(text: str) -> str | None:
    if len(text) > _LONGEST:
        return None
    for pattern, key in _FORMS:
        if match := pattern.fullmatch(text):
            return key(match)
    return _sequence(text) if text.startswith("[") else None


def _number(match: re.Match[str]) -> str | None:
    sign, digits, fraction = match.groups(default="")
    fraction = fraction.rstrip("0")
    if sign != "-":
        return f"n{_counted(digits)}{fraction}"
    if fraction:
        return None
    return f"n{_counted(digits)}" if digits.strip("0") == "" else f"m{_counted(digits).translate(_COMPLEMENT)}"


def _sequence(text: str) -> str | None:
    """Debezium's ``source.sequence``: an array of numbers as text. Null is less than any number."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    parts = [_element(each) for each in found]
    return None if None in parts or not parts else "s" + "".join(part or "" for part in parts)


def _element(value: Any) -> str | None:
    if value is None:
        return "000"
    text = str(value) if type(value) in (int, str) else ""
    return _counted(text) if _ELEMENT.fullmatch(text) else None


def _counted(digits: str) -> str:
    """Digits with their number in front, so that longer numbers are greater."""
    digits = digits.lstrip("0") or "0"
    return f"{len(digits):03}{digits}"


_FORMS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str | None]], ...] = (
    (_NUMBER, _number),
    (_POSTGRES, lambda match: "p" + "".join(part.lower().zfill(8) for part in match.groups())),
    (_SQL_SERVER, lambda match: "q" + "".join(part.lower().zfill(8) for part in match.groups())),
    (_BINARY_LOG, lambda match: "b" + "".join(map(_counted, match.groups()))),
)
