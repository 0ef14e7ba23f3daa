"""One value into one Iceberg type, record by record: the Java sink's ``RecordConverter``, with repairs.

The repairs: what does not fit is an error, never a wrap-around or a truncation. The fast way in
``converters.json`` must give the same result for every value that it takes; text of temporal columns goes through the
same Arrow casts in both.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import uuid
from collections.abc import Mapping
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from calving.data.fields import Lookup, infer
from calving.data.spec import Evolution, Need


class UnfitError(ValueError):
    """The value cannot become the column's type. ``path`` leads to the column."""

    def __init__(self, path: tuple[str, ...], reason: str) -> None:
        super().__init__(f"field '{'.'.join(path)}': {reason}")


_INT = re.compile(r"[+-]?[0-9]+")
_SUB_MICROS = re.compile(r"(\.[0-9]{6})[0-9]{1,3}")
_OFFSET = r"(Z|z|[+-][0-9]{2}(:?[0-9]{2})?)$"
_F32_MAX = 3.4028235677973366e38


class Converter:
    """Converts records to the rows of one table, and collects what the table needs for those that do not fit."""

    def __init__(self, table: str, struct: StructType, evolution: Evolution) -> None:
        self._table, self._struct, self._evolution = table, struct, evolution
        self._lookups: dict[int, Lookup] = {}
        self.needs: list[Need] = []

    def row(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """:raises UnfitError: a value does not fit, and no need can change that."""
        return self._to_struct(record, self._struct, ())

    def _to_struct(self, value: Any, struct: StructType, path: tuple[str, ...]) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise UnfitError(path, f"{_short(value)} is not an object")
        lookup = self._lookups.setdefault(id(struct), Lookup(struct, self._evolution.case_insensitive))
        row: dict[str, Any] = dict.fromkeys((f.name for f in struct.fields), None)
        for name, item in value.items():
            column = lookup.find(name)
            if column is not None:
                row[column.name] = self._to(item, column.field_type, (*path, column.name))
            elif self._evolution.evolve and (kind := infer(item)) is not None:
                self.needs.append(Need(self._table, "add", (*path, name), kind))
        for column in struct.fields:
            if row[column.name] is None and column.required:
                self._missing(column, (*path, column.name))
        return row

    def _missing(self, column: NestedField, path: tuple[str, ...]) -> None:
        if not self._evolution.evolve:
            raise UnfitError(path, "the column is required, but the record has no value for it")
        self.needs.append(Need(self._table, "optional", path))

    def _to(self, value: Any, kind: IcebergType, path: tuple[str, ...]) -> Any:
        if value is None:
            return None
        match kind:
            case StructType():
                return self._to_struct(value, kind, path)
            case ListType():
                if not isinstance(value, list):
                    raise UnfitError(path, f"{_short(value)} is not an array")
                return [self._to(item, kind.element_type, (*path, "element")) for item in value]
            case MapType():
                if not isinstance(value, Mapping):
                    raise UnfitError(path, f"{_short(value)} is not an object")
                return [
                    (self._to(k, kind.key_type, (*path, "key")), self._to(v, kind.value_type, (*path, "value")))
                    for k, v in value.items()
                ]
        try:
            return primitive(value, kind)
        except OverflowError as error:
            wider = "long" if isinstance(kind, IntegerType) else "double" if isinstance(kind, FloatType) else None
            if wider is not None and self._evolution.evolve and _fits_wider(value, wider):
                self.needs.append(Need(self._table, "widen", path, wider))
                return None
            raise UnfitError(path, str(error)) from error
        except (ValueError, InvalidOperation, pa.ArrowInvalid) as error:
            raise UnfitError(path, f"{_short(value)} is not a {kind}: {_first_line(error)}") from error


def _fits_wider(value: Any, wider: str) -> bool:
    try:
        primitive(value, LongType() if wider == "long" else DoubleType())
    except (ValueError, OverflowError):
        return False
    return True


def primitive(value: Any, kind: IcebergType) -> Any:  # noqa: C901 - one case per Iceberg type
    """A JSON value as what ``pyarrow.array`` takes for ``kind``; temporal ones as integers.

    :raises ValueError: not of that kind. :raises OverflowError: of that kind, but too large for it.
    """
    match kind:
        case BooleanType():
            return _boolean(value)
        case IntegerType():
            return _integer(value, 32)
        case LongType():
            return _integer(value, 64)
        case FloatType():
            return _float(value, single=True)
        case DoubleType():
            return _float(value, single=False)
        case DecimalType():
            return _decimal(value, kind)
        case StringType():
            return _string(value)
        case UUIDType():
            return uuid.UUID(_text(value)).bytes
        case BinaryType():
            return _base64(value)
        case FixedType():
            return _fixed(value, len(kind))
        case DateType():
            return _number(value, 32) if _is_number(value) else date_text(pa.array([_text(value)]))[0].value
        case TimeType():
            return _time(value)
        case TimestamptzType():
            return _millis(value) if _is_number(value) else timestamptz_text(pa.array([_text(value)]))[0].value
        case TimestampType():
            return _millis(value) if _is_number(value) else timestamp_text(pa.array([_text(value)]))[0].value
    raise ValueError(f"columns of type {kind} cannot be written")


def timestamptz_text(text: pa.Array) -> pa.Array:
    """ISO date-times to microseconds UTC; without an offset they are UTC.

    :raises pa.ArrowInvalid: one of them is none, or only some have an offset.
    """
    try:
        return text.cast(pa.timestamp("us", "UTC"))
    except pa.ArrowInvalid:
        text = _micros_at_most(text)
        if pc.any(pc.match_substring_regex(text, _OFFSET)).as_py():
            return text.cast(pa.timestamp("us", "UTC"))
        return text.cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))


def timestamp_text(text: pa.Array) -> pa.Array:
    """ISO date-times to microseconds of local time; an offset is dropped, not applied, as Java does.

    :raises pa.ArrowInvalid: one of them is none.
    """
    try:
        return text.cast(pa.timestamp("us"))
    except pa.ArrowInvalid:
        return pc.replace_substring_regex(_micros_at_most(text), _OFFSET, "").cast(pa.timestamp("us"))


def date_text(text: pa.Array) -> pa.Array:
    """``yyyy-MM-dd`` to days. :raises pa.ArrowInvalid: one of them is none."""
    return text.cast(pa.date32())


_TIME = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9])(?:\.([0-9]{1,9}))?)?")


def time_text(text: pa.Array) -> pa.Array:
    """``HH:mm[:ss[.fraction]]`` to microseconds of the day. :raises ValueError: one of them is none."""
    return pa.array([None if item is None else _time_of_day(item) for item in text.to_pylist()], pa.time64("us"))


def _time_of_day(text: str) -> int:
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError("not a time of day")
    hours, minutes, seconds, fraction = match.groups()
    whole = (int(hours) * 60 + int(minutes)) * 60 + int(seconds or 0)
    return whole * 1_000_000 + int((fraction or "").ljust(6, "0")[:6])


def _micros_at_most(text: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(text, _SUB_MICROS.pattern, r"\1")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("text is wanted")
    return value


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    lowered = _text(value).lower()
    if lowered not in ("true", "false"):
        raise ValueError("neither true nor false")
    return lowered == "true"


def _integer(value: Any, bits: int) -> int:
    if isinstance(value, str):
        if not _INT.fullmatch(value):
            raise ValueError("not an integer")
        value = int(value) if len(value) < 40 else 1 << 200
    return _number(value, bits)


def _number(value: Any, bits: int) -> int:
    if not _is_number(value):
        raise ValueError("not a number")
    if not isinstance(value, int):
        if not math.isfinite(value) or value != value // 1:
            raise ValueError("not a whole number")
        value = int(value) if abs(value) < 1 << 200 else 1 << 200
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise OverflowError(f"{_short(value)} does not fit {bits} bits")
    return int(value)


def _float(value: Any, *, single: bool) -> float:
    if isinstance(value, str):
        value = float(value.strip().rstrip("dDfF") if not value.strip().lower().startswith(("inf", "nan")) else value)
    elif not _is_number(value):
        raise ValueError("not a number")
    number = float(value)
    if single and math.isfinite(number) and abs(number) >= _F32_MAX:
        raise OverflowError(f"{number} does not fit a float")
    return number


def _decimal(value: Any, kind: DecimalType) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, str | int | Decimal):
        raise ValueError("not a number")
    with localcontext(prec=120):
        number = Decimal(value)
        if not number.is_finite():
            raise ValueError("not a finite number")
        rounded = number.quantize(Decimal(1).scaleb(-kind.scale), rounding=ROUND_HALF_UP)
        if len(rounded.as_tuple().digits) > kind.precision and rounded != 0:
            raise OverflowError(f"{_short(value)} does not fit {kind}")
    return rounded


def _string(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float | Decimal):
        return java_double(float(value))
    if isinstance(value, int):
        return str(value)
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=float)


def java_double(value: float) -> str:
    """Java's ``Double.toString``: at least one decimal, an exponent outside 1e-3 to 1e7."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "-0.0" if math.copysign(1, value) < 0 else "0.0"
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    text = "".join(map(str, digits)).rstrip("0") or "0"
    point = len(digits) + int(exponent)
    minus = "-" if sign else ""
    if 1e-3 <= abs(value) < 1e7:
        if point <= 0:
            return f"{minus}0.{'0' * -point}{text}"
        return f"{minus}{text[:point].ljust(point, '0')}.{text[point:] or '0'}"
    return f"{minus}{text[0]}.{text[1:] or '0'}E{point - 1}"


def _base64(value: Any) -> bytes:
    text = _text(value)
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except binascii.Error as error:
        raise ValueError(f"not base64: {error}") from error


def _fixed(value: Any, length: int) -> bytes:
    raw = _base64(value)
    if len(raw) != length:
        raise ValueError(f"{len(raw)} bytes instead of {length}")
    return raw


def _time(value: Any) -> int:
    micros = _number(value, 64) * 1000 if _is_number(value) else time_text(pa.array([_text(value)]))[0].value
    if not 0 <= micros < 86_400_000_000:
        raise OverflowError(f"{_short(value)} is not a time of day")
    return int(micros)


def _millis(value: Any) -> int:
    micros = _number(value, 64) * 1000
    if not -(1 << 63) <= micros < 1 << 63:
        raise OverflowError(f"{value} ms does not fit a timestamp in microseconds")
    return micros


def _short(value: Any) -> str:
    text = json.dumps(value, default=str) if not isinstance(value, str) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
