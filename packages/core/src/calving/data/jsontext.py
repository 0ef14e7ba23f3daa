"""JSON text and the Python values that it holds."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any


def parse(raw: bytes, nesting: int) -> Any:
    """The value of one JSON text in UTF-8: fractions as Decimal, the last of several fields of one name.

    :raises ValueError: it is not UTF-8, not JSON, nested deeper than ``nesting`` levels, or it holds what no column
        can: half of a surrogate pair, or a number beyond a double.
    """
    try:
        value = load_json(raw.decode())
    except RecursionError:
        raise ValueError(f"nested deeper than {nesting} levels") from None
    if raw.count(b"{") + raw.count(b"[") > nesting and is_deeper(value, nesting):
        raise ValueError(f"nested deeper than {nesting} levels")
    return value


def parse_all(values: Sequence[bytes], nesting: int) -> Iterator[Any | ValueError]:
    """``parse`` of each value, or the error that it raises. All are decoded as one text, and scanned in place."""
    data = b"\n".join(values)
    if b"\\u" in data or not data.isascii():
        yield from (_parsed(value, nesting) for value in values)
        return
    # Where every brace opens a value and no bracket does, nothing is nested.
    is_flat = data[:1] == b"{" and b"[" not in data and data.count(b"{") == data.count(b"}\n{") + 1
    text, scan, start = data.decode(), _DECODER.scan_once, 0
    for value in values:
        end = start + len(value)
        try:
            found, reached = scan(text, start)
        except (StopIteration, ValueError, RecursionError):
            reached = -1
        # A value that ends elsewhere has blanks around it, or is none: on its own it says which.
        if reached == end and (is_flat or value.count(b"{") + value.count(b"[") <= nesting):
            yield found
        else:
            yield _parsed(value, nesting)
        start = end + 1


def _parsed(value: bytes, nesting: int) -> Any | ValueError:
    try:
        return parse(value, nesting)
    except ValueError as error:
        return error


def load_json(text: str) -> Any:
    """The value of a JSON text. :raises ValueError, RecursionError: as ``parse``."""
    value = _DECODER.decode(text)
    _check_pairs(text, value)
    return value


def _check_pairs(text: str, value: Any) -> None:
    if "\\u" in text and ("\\ud" in text or "\\uD" in text):
        json.dumps(value, default=str, ensure_ascii=False).encode()


def write(value: Any) -> str:
    """A value of ``parse`` as JSON text that ``parse`` reads back as an equal value; all ASCII."""
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{json.dumps(name)}:{write(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(write, value)) + "]"
    if isinstance(value, Decimal):
        return str(value)
    return json.dumps(value)


def is_deeper(value: Any, levels: int) -> bool:
    """Whether objects and arrays are nested deeper than so many levels."""
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
    if (len(text) > 300 or "e" in text or "E" in text) and math.isinf(float(text)):
        raise ValueError(f"{text[:60]} is not a number that a double holds")
    return Decimal(text)


# ``json.loads`` with arguments builds a decoder in every call, which costs more than decoding.
_DECODER: Any = json.JSONDecoder(parse_float=_fraction, parse_constant=_no_constant)
