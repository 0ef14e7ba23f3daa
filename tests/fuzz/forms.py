"""Plain values beside Python's own, and values as text."""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

RowText = tuple[str, ...]


class Digits(Decimal):
    """A decimal of a schema: every digit counts."""


class Single(float):
    """A number of 32 bits."""


class Short(int):
    """A whole number of 32 bits at most, which a transform has made."""


class Pairs(list[tuple[Any, Any]]):
    """A map of a schema: keys and values."""


@dataclass(frozen=True)
class Day:
    """Days since 1970."""

    days: int


@dataclass(frozen=True)
class Clock:
    """Microseconds of a day."""

    micros: int


@dataclass(frozen=True)
class Instant:
    """Microseconds since 1970, of ``nanos`` where these are written."""

    micros: int
    nanos: int = 0


def single(value: float) -> Single:
    """The nearest number of 32 bits."""
    return Single(struct.unpack("<f", struct.pack("<f", value))[0])


def java_double(value: float) -> str:
    """``Double.toString``."""
    if not math.isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    sign = "-" if math.copysign(1, value) < 0 else ""
    if value == 0:
        return sign + "0.0"
    mantissa, _, exponent = f"{abs(Decimal(float_digits(value))):E}".partition("E")
    digits = mantissa.replace(".", "").rstrip("0") or "0"
    power = int(exponent)
    if len(digits) == 1 and not isinstance(value, Single):  # Java writes two digits at least, the nearest
        mantissa, _, exponent = f"{abs(value):.1e}".partition("e")
        digits, power = mantissa.replace(".", "").rstrip("0"), int(exponent)
    if not -3 <= power < 7:
        return f"{sign}{digits[0]}.{digits[1:] or '0'}E{power}"
    if power < 0:
        return f"{sign}0.{'0' * (-power - 1)}{digits}"
    digits = digits.ljust(power + 2, "0")
    return f"{sign}{digits[: power + 1]}.{digits[power + 1 :]}"


def float_digits(value: float) -> str:
    """The shortest digits that give the same number again."""
    return shortest_single(value) if isinstance(value, Single) else repr(float(value))


def shortest_single(value: float) -> str:
    """The shortest digits that give the same number of 32 bits again."""
    return next(text for n in range(1, 18) if single(float(text := f"{float(value):.{n}g}")) == float(value))


def json_text(value: Any) -> str:
    """An object or array as JSON without blanks; fractions as doubles."""
    match value:
        case dict():
            return "{" + ",".join(f"{json_text(k)}:{json_text(v)}" for k, v in value.items()) + "}"
        case Pairs():
            return json_text(dict(value))
        case list():
            return "[" + ",".join(map(json_text, value)) + "]"
        case Decimal():
            return repr(float(value))
    return json.dumps(value, ensure_ascii=False)


def canonical(value: Any) -> str:
    """Plain values as text that is equal where they are; maps are unordered."""
    match value:
        case dict():
            return "{" + ", ".join(f"{k}: {canonical(v)}" for k, v in sorted(value.items())) + "}"
        case list() if value and isinstance(value[0], tuple):
            return "<" + ", ".join(sorted(f"{canonical(k)}: {canonical(v)}" for k, v in value)) + ">"
        case list():
            return "[" + ", ".join(map(canonical, value)) + "]"
        case float():
            return "nan" if value != value else repr(value)
        case Decimal():
            return f"{value:f}m"
    return repr(value)


def folded(value: Any) -> Any:
    """All names in lower case; of two that become one the last counts."""
    match value:
        case dict():
            return {name.lower(): folded(item) for name, item in value.items()}
        case list():
            return [folded(item) for item in value]
        case tuple():
            return (value[0], folded(value[1]))
    return value


def row_text(row: Any, fold: bool = False) -> RowText:
    """A row as text, column by column in the order of names."""
    row = folded(row) if fold else row
    return tuple(f"{name}: {canonical(value)}" for name, value in sorted(row.items()))
