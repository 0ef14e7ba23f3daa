"""JSON text and the Python values that it holds."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from decimal import MAX_PREC, MIN_EMIN, Context, Decimal, InvalidOperation, Overflow
from typing import Any


def parse(raw: bytes, nesting: int) -> Any:
    """The value of one JSON text in UTF-8. Fractions are Decimal. Of several fields with one name, the last counts.

    :raises ValueError: the text is not UTF-8, is not JSON, or is nested deeper than ``nesting`` levels; or it holds
        something that no column can hold: half of a surrogate pair, or a number beyond a double.
    """
    try:
        value = load_json(raw.decode())
    except RecursionError:
        raise ValueError(f"nested deeper than {nesting} levels") from None
    if raw.count(b"{") + raw.count(b"[") > nesting and is_deeper(value, nesting):
        raise ValueError(f"nested deeper than {nesting} levels")
    return value


def parse_all(values: Sequence[bytes], nesting: int) -> list[Any | ValueError]:
    """``parse`` of each value, or the error that it raises."""
    data = b"\n".join(values)
    # Nothing is nested if each value begins with its only brace, and none contains a bracket.
    is_flat = b"[" not in data and data.count(b"{") == len(values) and {value[:1] for value in values} == {b"{"}
    is_plain = is_flat and b"\\ud" not in data and b"\\uD" not in data
    parsed: list[Any | ValueError] = []
    for value in values:
        try:
            text = value.decode()
            item, end = _SCAN(text, 0)
        except (StopIteration, ValueError, ArithmeticError, RecursionError):
            item, end = None, -1
        # If the scan stops before the end, there are blanks after the value, or it is no JSON: ``parse`` decides.
        sure = end >= 0 and end == len(text) and (is_plain or _is_plain(value, nesting))
        parsed.append(item if sure else _parsed(value, nesting))
    return parsed


def _is_plain(value: bytes, nesting: int) -> bool:
    """Whether the text has at most ``nesting`` objects and arrays, and no half of a surrogate pair."""
    return value.count(b"{") + value.count(b"[") <= nesting and b"\\ud" not in value and b"\\uD" not in value


def _parsed(value: bytes, nesting: int) -> Any | ValueError:
    try:
        return parse(value, nesting)
    except ValueError as error:
        return error


def load_json(text: str) -> Any:
    """The value of a JSON text. :raises ValueError, RecursionError: as ``parse``."""
    check_start(text)
    try:
        value = _DECODER.decode(text)
    except ValueError as error:
        raise in_plain_words(error) from None
    _check_pairs(text, value)
    return value


def in_plain_words(error: ValueError) -> ValueError:
    """The error that a reader of JSON has raised. Python's about an integer that it does not read advises to change
    Python's settings, so it is replaced. To read an integer takes time that grows with the square of its digits.
    """
    if "integer string conversion" in str(error):
        return ValueError(f"it has an integer of more than {sys.get_int_max_str_digits():,} digits")
    return error


def check_start(text: str) -> None:
    """:raises ValueError: the text is empty, or starts with a byte order mark, which no reader of JSON shows in its
    error.
    """
    if not text.strip():
        raise ValueError("it is empty")
    if text.startswith("\ufeff"):
        raise ValueError("it starts with a byte order mark (U+FEFF), which JSON does not allow: write UTF-8 without it")


def _check_pairs(text: str, value: Any) -> None:
    if "\\u" in text and ("\\ud" in text or "\\uD" in text):
        json.dumps(value, default=str, ensure_ascii=False).encode()


def write(value: Any) -> str:
    """A value of ``parse`` as ASCII JSON text. ``parse`` reads the text back as an equal value."""
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{json.dumps(name)}:{write(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(write, value)) + "]"
    if isinstance(value, Decimal):
        return str(value)
    return json.dumps(value)


def is_deeper(value: Any, levels: int) -> bool:
    """Whether objects and arrays are nested deeper than ``levels``."""
    here: list[Any] = [value]
    for _ in range(levels):
        inner: list[Any] = []
        for item in here:
            if isinstance(item, Mapping):
                inner.extend(item.values())
            elif isinstance(item, list):
                inner.extend(item)
        if not inner:
            return False
        here = inner
    return any(isinstance(item, Mapping | list) for item in here)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _fraction(text: str) -> Decimal:
    try:
        return _below(text)
    except Overflow:
        if math.isinf(float(text)):
            raise ValueError(f"{text[:60]} is not a number that a double holds") from None
        return Decimal(text)


_below = Context(prec=MAX_PREC, Emax=307, Emin=MIN_EMIN, traps=[Overflow, InvalidOperation]).create_decimal
"""A fraction below 1e308 with all its digits. Raises Overflow for larger fractions. ``Decimal`` itself refuses some
exponents.
"""
# ``json.loads`` with arguments builds a decoder in every call, which costs more than decoding.
_DECODER: Any = json.JSONDecoder(parse_float=_fraction, parse_constant=_no_constant)
_SCAN: Any = json.JSONDecoder(parse_float=_below, parse_constant=_no_constant).scan_once  # type: ignore[attr-defined]
"""Scans a value without calls into Python; NaN, and a number that is too large, raise an error."""
