"""Single values as numbers and booleans. A value that does not fit is an error; it is never wrapped around or
truncated.

The functions raise ValueError for a value of another kind, and OverflowError for a value that is too large.
"""

from __future__ import annotations

import json
import math
import re
import struct
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from typing import Any

from pyiceberg.types import DecimalType

from calving.records.arrays import Digits, Single
from calving.records.semantics import Moment

_INT = re.compile(r"[+-]?[0-9]+")
_F32_MAX = 3.4028235677973366e38
_SINGLE = struct.Struct("f")
_SHOWN = 60
"""Characters of a value in an error text."""
_ENCODER = json.JSONEncoder(default=str)


def is_number(value: Any) -> bool:
    """Whether a value is a number; a boolean is not."""
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def text_of(value: Any) -> str:
    """The value itself. :raises ValueError: it is not text."""
    if not isinstance(value, str):
        raise ValueError("not text")
    return value


def boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    lowered = text_of(value).lower()
    if lowered not in ("true", "false"):
        raise ValueError("neither true nor false")
    return lowered == "true"


def integer(value: Any, bits: int) -> int:
    if isinstance(value, str):
        if not _INT.fullmatch(value):
            raise ValueError("not an integer")
        if len(value.lstrip("+-").lstrip("0")) >= 40:  # Python refuses to read thousands of digits
            raise OverflowError(f"{short(value)} does not fit {bits} bits")
        sign = -1 if value[0] == "-" else 1
        value = sign * int(value.lstrip("+-").lstrip("0") or "0")
    return number(value, bits)


def number(value: Any, bits: int) -> int:
    """A whole number from any form except text. 5.0 is a whole number."""
    if not is_number(value):
        raise ValueError("not a number")
    if not isinstance(value, int):
        if not math.isfinite(value) or not _is_whole(value):
            raise ValueError("not a whole number")
        if abs(value) >= 1 << 200:
            raise OverflowError(f"{short(value)} does not fit {bits} bits")
        value = int(value)
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise OverflowError(f"{short(value)} does not fit {bits} bits")
    return int(value)


def _is_whole(value: float | Decimal) -> bool:
    return value.is_integer() if isinstance(value, float) else value == value.to_integral_value()


def floating(value: Any, *, single: bool) -> float:
    given = value
    if isinstance(value, str):
        value = _number_text(value)
        if value.lstrip("+-") in ("NaN", "Infinity"):
            return float(value)
        value = value[:-1] if value[-1:] in ("d", "D", "f", "F") else value
        if not value[-1:].isdigit() and value[-1:] != ".":
            raise ValueError("not a number")
    elif not is_number(value):
        raise ValueError("not a number")
    try:
        number = float(value)
    except ValueError:
        raise ValueError("not a number") from None
    if math.isinf(number) and isinstance(value, Decimal | str):
        raise OverflowError(f"{short(given)} does not fit a double")
    if single and math.isfinite(number) and abs(number) >= _F32_MAX:
        raise OverflowError(f"{short(given)} does not fit a float")
    return float(_SINGLE.unpack(_SINGLE.pack(number))[0]) if single else number


def _number_text(text: str) -> str:
    """The text of a number, without blanks around it. :raises ValueError: only Python would accept it."""
    if "_" in text or not text.isascii():
        raise ValueError("not a number")
    return text.strip()


def decimal(value: Any, kind: DecimalType) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        raise ValueError("not a number")
    if isinstance(value, str) and _number_text(value) != value:
        raise ValueError("not a number")
    if isinstance(value, float):
        value = repr(value)  # the shortest text that reads back, as Java's BigDecimal.valueOf
    with localcontext(prec=120):
        number = _decimal(value)
        if not number.is_finite():
            raise ValueError("not a finite number")
        if number and number.adjusted() >= kind.precision:
            raise OverflowError(f"{short(value)} does not fit {kind}")
        rounded = number.quantize(Decimal(1).scaleb(-kind.scale), rounding=ROUND_HALF_UP)
        if len(rounded.as_tuple().digits) > kind.precision and rounded != 0:
            raise OverflowError(f"{short(value)} does not fit {kind}")
    return rounded.copy_abs() if rounded.is_zero() else rounded  # a decimal has only one zero, also as the key of a map


def _decimal(value: str | int | Decimal) -> Decimal:
    try:
        return Decimal(value)
    except InvalidOperation:
        raise ValueError("not a number") from None


def single_text(value: float) -> str:
    """The shortest text that reads back as the same 32-bit float."""
    if not math.isfinite(value):
        return repr(float(value))
    packed = struct.pack("f", value)
    texts = (f"{value:.{digits}g}" for digits in range(1, 10))
    return next(text for text in texts if struct.pack("f", float(text)) == packed)


def short(value: Any) -> str:
    """A value as error texts show it. Of a large value only the beginning is written."""
    text = repr(value) if isinstance(value, str | Digits) else ""
    text = str(value) if isinstance(value, Moment) else single_text(value) if isinstance(value, Single) else text
    for piece in () if text else _ENCODER.iterencode(value):
        text += piece
        if len(text) > _SHOWN:
            break
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
