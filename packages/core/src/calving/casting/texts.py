"""Single values as text: numbers as Java writes them, objects and arrays as JSON."""

from __future__ import annotations

import base64
import binascii
import json
import math
import uuid
from collections.abc import Iterator, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from calving.casting.numbers import floating, single_text
from calving.casting.temporal import day, micros_of, time_of_day
from calving.records.arrays import Digits, Items, Pairs, Scaled, Single, Typed
from calving.records.semantics import PER_SECOND, Moment


class TooMuchTextError(Exception):
    """A nested value has a longer text than a record may have."""


def string(value: Any, most: float = math.inf) -> str:
    """A value as the text of a string column.

    :raises ValueError: it has no text form.
    :raises TooMuchTextError: it is an object or an array whose text has more than ``most`` characters.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Digits):
        return format(value, "f")
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, float | Decimal):
        return java_double(value if isinstance(value, float) else floating(value, single=False))
    if isinstance(value, int):
        return str(value)
    if not isinstance(value, Mapping | list):
        raise ValueError("it has no text of its own")
    return json_text(value, most)


def from_base64(text: str) -> bytes:
    """The bytes of a text in base64. :raises ValueError: it is none."""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except binascii.Error as error:
        raise ValueError(f"not base64: {error}") from error


def json_text(value: Any, most: float = math.inf) -> str:
    """A value as JSON: fractions as doubles, typed decimals with all their digits, a map as an object.

    The text may be much longer than what a record brings: a struct writes its names for each element of a list, and a
    map whose keys are maps again writes backslashes before backslashes.

    :raises ValueError: it has no JSON form.
    :raises TooMuchTextError: it has more than ``most`` characters.
    """
    found: list[str] = []
    for piece in _pieces(value, most):
        most -= len(piece)
        if most < 0:
            raise TooMuchTextError
        found.append(piece)
    return "".join(found)


def _pieces(value: Any, most: float) -> Iterator[str]:
    """The JSON in pieces of few objects and arrays each."""
    levels = [_level(value, most)]
    while levels:
        part = next(levels[-1], None)
        if part is None:
            levels.pop()
        elif isinstance(part, str):
            yield part
        else:
            levels.append(_level(part, most))


def _level(value: Any, most: float) -> Iterator[Any]:
    """The JSON of one level: texts, and in their places the objects and arrays inside."""
    is_typed = isinstance(value, Typed | Items | Pairs)
    if not is_typed and _is_small(value):
        yield _simple(value)
        return
    is_array = isinstance(value, list) and not isinstance(value, Pairs)
    before = "[" if is_array else "{"
    if not value:
        yield before
    for name, item in _typed(value, most) if is_typed else _plain(value, is_array=is_array):
        yield before + name
        yield item
        before = ","
    yield "]" if is_array else "}"


def _plain(value: Any, *, is_array: bool) -> Iterator[tuple[str, Any]]:
    """Texts of the entries of an object or an array, each with what follows it: a nested value, or more text."""
    if not is_array:
        yield from (
            (_simple(name) + ":", item if type(item) in _NESTED else _simple(item)) for name, item in value.items()
        )
        return
    for start in range(0, len(value), _NEIGHBOURS):
        part = value[start : start + _NEIGHBOURS]
        if _is_small(part):
            yield _simple(part)[1:-1], ""
        else:
            yield from (("", item if type(item) in _NESTED else _simple(item)) for item in part)


def _typed(value: Any, most: float) -> Iterator[tuple[str, Any]]:
    """As ``_plain``, of a value with a schema."""
    if isinstance(value, Items):
        yield from (("", item if type(item) in _NESTED else _item_text(item)) for item in value)
        return
    for key, item in value.items() if isinstance(value, Typed) else value:
        yield _simple(plain_text(key, most)) + ":", item if type(item) in _NESTED else _item_text(item)


def _is_small(value: Any) -> bool:
    """Whether a value holds few objects and arrays."""
    known = [value] if isinstance(value, dict | list) else []
    for each in known:
        inside = each.values() if isinstance(each, dict) else each
        if not _NESTED.isdisjoint(map(type, inside)):
            known += [item for item in inside if type(item) in _NESTED]
            if len(known) > _FEW:
                return False
    return True


_NESTED = frozenset({dict, list, Typed, Items, Pairs, Scaled})
_FEW, _NEIGHBOURS = 128, 32


def _simple(value: Any) -> str:
    try:
        return _ENCODER.encode(value)
    except ValueError:
        return _ENCODER.encode(_named(value))


def _named(value: Any) -> Any:
    """The value with NaN and infinity as text, since JSON has no such numbers."""
    if isinstance(value, Mapping):
        return {name: _named(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_named(item) for item in value]
    return java_double(value) if isinstance(value, float) and not math.isfinite(value) else value


def _item_text(value: Any) -> str:
    if isinstance(value, Digits):
        return format(value, "f")
    return _simple(float(single_text(value)) if isinstance(value, Single) else value)


def _json_default(value: Any) -> Any:
    """As Connect's JSON without a schema: bytes in base64, dates in days, times in milliseconds."""
    match value:
        case Decimal():
            return floating(value, single=False)
        case bytes():
            return base64.b64encode(value).decode()
        case uuid.UUID():
            return str(value)
        case Moment() if value.meaning.what == "date":
            return value.number
        case Moment():
            return value.number * 1000 // PER_SECOND[value.meaning.unit]
        case datetime():
            return micros_of(value) // 1000
        case date():
            return day(value)
        case time():
            return time_of_day(value) // 1000
    raise ValueError(f"{type(value).__name__} has no JSON form")


_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_json_default)


def plain_text(value: Any, most: float = math.inf) -> str:
    """A value of any kind as text: a decimal in plain digits, dates in ISO form, bytes in base64.

    :raises ValueError, TooMuchTextError: as ``string``.
    """
    match value:
        case Decimal():
            return format(value, "f")
        case datetime() | date() | time():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode()
        case uuid.UUID():
            return str(value)
    return string(value, most)


def _without_digits(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    sign = "-" if math.copysign(1, value) < 0 else ""
    return f"{sign}0.0" if value == 0 else f"{sign}Infinity"


def java_double(value: float) -> str:
    """Java's ``Double.toString``: at least one decimal, an exponent outside 1e-3 to 1e7."""
    if value == 0 or not math.isfinite(value):
        return _without_digits(value)
    sign, digits, exponent = Decimal(single_text(value) if isinstance(value, Single) else repr(value)).as_tuple()
    if len(digits) == 1 and float(near := f"{value:.1e}") == value:  # Java uses the nearest number of two digits
        sign, digits, exponent = Decimal(near).as_tuple()
    text = "".join(map(str, digits)).rstrip("0") or "0"
    point = len(digits) + int(exponent)
    minus = "-" if sign else ""
    if 1e-3 <= abs(value) < 1e7:
        if point <= 0:
            return f"{minus}0.{'0' * -point}{text}"
        return f"{minus}{text[:point].ljust(point, '0')}.{text[point:] or '0'}"
    return f"{minus}{text[0]}.{text[1:] or '0'}E{point - 1}"
