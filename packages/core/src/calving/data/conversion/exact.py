"""One value into one Iceberg type: the Java sink's ``RecordConverter``, with repairs.

The repairs: what does not fit is an error, never a wrap-around or a truncation. The fast way in ``columns`` must give
the same result for every value that it takes; text of temporal columns goes through the same Arrow casts in both.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import struct
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import ROUND_HALF_UP, Decimal, localcontext
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
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from calving.data.arrays import Digits, Items, Pairs, Single, Typed
from calving.data.conversion.fields import Lookup
from calving.data.conversion.growth import Growth, Path, UnfitError
from calving.data.conversion.kinds import of_value
from calving.data.spec import Need
from calving.errors import first_line

_INT = re.compile(r"[+-]?[0-9]+")
_SUB_MICROS = re.compile(r"(\.[0-9]{6})[0-9]{1,3}")
_OFFSET = r"([Tt ].*)(Z|z|[+-][0-9]{2}(:?[0-9]{2})?)$"
"""An offset, after a time: the day of a date alone is none."""
_F32_MAX = 3.4028235677973366e38


class ExactConverter:
    """Converts values to the columns of one table, and collects what the table needs for those that do not fit.

    ``typed`` values come with a schema, which says what new fields are: nothing is concluded from the values.
    """

    def __init__(self, growth: Growth, lookup: Callable[[StructType], Lookup], *, typed: bool = False) -> None:
        self._growth, self._lookup, self._typed = growth, lookup, typed
        self.needs: list[Need] = []

    def value(self, value: Any, column: NestedField, path: Path) -> Any:
        """One value of one column.

        :raises UnfitError: it does not fit, and no need can change that; it has left no needs.
        """
        before = len(self.needs)
        try:
            found = self._to(value, column.field_type, path)
            if value is None and column.required:
                self.needs.append(self._growth.optional(column, path))
        except Exception as error:
            del self.needs[before:]
            if isinstance(error, UnfitError):
                raise
            # Whatever a value does to a library is the value's fault: the next attempt would fail in the same way.
            raise UnfitError(path, f"{type(error).__name__}: {first_line(error)}") from error
        return found

    def _to_struct(self, value: Any, struct: StructType, path: Path) -> dict[str, Any]:
        if isinstance(value, Pairs) and all(isinstance(key, str) for key, _ in value):
            value = dict(value)
        if not isinstance(value, Mapping):
            raise UnfitError(path, f"{_short(value)} is not an object")
        lookup = self._lookup(struct)
        row: dict[str, Any] = dict.fromkeys((f.name for f in struct.fields), None)
        given: dict[str, tuple[NestedField, Any]] = {}
        for name, item in value.items():
            column = lookup.find(name)
            if column is not None:
                given[column.name] = (column, item)  # of several the last one counts
            else:
                self.unknown(item, (*path, name))
        for name, (column, item) in given.items():
            row[name] = self._to(item, column.field_type, (*path, name))
        for column in struct.fields:
            if column.required and given.get(column.name, (column, None))[1] is None:
                self.needs.append(self._growth.optional(column, (*path, column.name)))
        return row

    def unknown(self, value: Any, path: Path) -> None:
        """A field that has no column. :raises UnfitError: it needs one, and cannot get it."""
        if self._typed or not self._growth.evolves:
            return
        kind = of_value(value)
        if kind is not None:
            self.needs.append(self._growth.add(path, kind))

    def _to(self, value: Any, kind: IcebergType, path: Path) -> Any:
        if value is None:
            return None
        match kind:
            case StructType():
                return self._to_struct(value, kind, path)
            case ListType():
                if not isinstance(value, list) or isinstance(value, Pairs):
                    raise UnfitError(path, f"{_short(value)} is not an array")
                return [self._element(item, kind, (*path, "element")) for item in value]
            case MapType():
                return self._to_map(value, kind, path)
        try:
            return primitive(value, kind)
        except OverflowError as error:
            wider = "long" if isinstance(kind, IntegerType) else "double" if isinstance(kind, FloatType) else None
            if wider is not None and self._growth.evolves and _fits_wider(value, wider):
                self.needs.append(self._growth.widen(path, wider))
                return None
            raise UnfitError(path, str(error)) from error
        except (ValueError, ArithmeticError, pa.ArrowInvalid) as error:
            raise UnfitError(path, f"{_short(value)} is not a {kind}: {first_line(error)}") from error

    def _element(self, value: Any, kind: ListType, path: Path) -> Any:
        found = self._to(value, kind.element_type, path)
        if value is None and kind.element_required:
            self.needs.append(self._growth.optional(kind.element_field, path))
        return found

    def _to_map(self, value: Any, kind: MapType, path: Path) -> list[tuple[Any, Any]]:
        if not isinstance(value, Mapping | Pairs):
            raise UnfitError(path, f"{_short(value)} is not an object")
        found: list[tuple[Any, Any]] = []
        keys: set[str] = set()
        missing = False
        for k, v in value.items() if isinstance(value, Mapping) else value:
            missing = missing or v is None
            key = self._to(k, kind.key_type, (*path, "key"))
            if key is None:
                raise UnfitError((*path, "key"), "a map has no null keys")
            if repr(key) in keys:
                raise UnfitError((*path, "key"), f"the key {_short(key)} comes twice")
            keys.add(repr(key))
            found.append((key, self._to(v, kind.value_type, (*path, "value"))))
        if kind.value_required and missing:
            self.needs.append(self._growth.optional(kind.value_field, (*path, "value")))
        return found


def _fits_wider(value: Any, wider: str) -> bool:
    try:
        primitive(value, LongType() if wider == "long" else DoubleType())
    except (ValueError, OverflowError):
        return False
    return True


_EPOCH = datetime(1970, 1, 1)
_DAY_US = 86_400_000_000


def primitive(value: Any, kind: IcebergType) -> Any:  # noqa: C901 - one case per Iceberg type
    """A value as what ``pyarrow.array`` takes for ``kind``; temporal ones as integers.

    Numbers of temporal columns are days (date) or milliseconds, as in the Java sink.

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
            return _uuid(value)
        case BinaryType():
            return _bytes(value)
        case FixedType():
            return _fixed(value, len(kind))
        case DateType():
            return _date(value)
        case TimeType():
            return _time(value)
        case TimestamptzType():
            return _instant(value, timestamptz_text)
        case TimestampType():
            return _instant(value, timestamp_text)
        case TimestamptzNanoType():
            return _nanos(value, timestamptz_text)
        case TimestampNanoType():
            return _nanos(value, timestamp_text)
    raise ValueError(f"columns of type {kind} cannot be written")


def timestamptz_text(text: pa.Array, unit: str = "us") -> pa.Array:
    """ISO date-times to microseconds UTC; without an offset they are UTC.

    :raises pa.ArrowInvalid: one of them is none, or only some have an offset.
    """
    try:
        return text.cast(pa.timestamp(unit, "UTC"))
    except pa.ArrowInvalid:
        text = _micros_at_most(text) if unit == "us" else text
        if pc.any(pc.match_substring_regex(text, _OFFSET)).as_py():
            return text.cast(pa.timestamp(unit, "UTC"))
        return text.cast(pa.timestamp(unit)).cast(pa.timestamp(unit, "UTC"))


def timestamp_text(text: pa.Array, unit: str = "us") -> pa.Array:
    """ISO date-times to microseconds of local time; an offset is dropped, not applied, as Java does.

    :raises pa.ArrowInvalid: one of them is none.
    """
    try:
        return text.cast(pa.timestamp(unit))
    except pa.ArrowInvalid:
        text = _micros_at_most(text) if unit == "us" else text
        return pc.replace_substring_regex(text, _OFFSET, r"\1").cast(pa.timestamp(unit))


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
        if not math.isfinite(value) or not _is_whole(value):
            raise ValueError("not a whole number")
        value = int(value) if abs(value) < 1 << 200 else 1 << 200
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise OverflowError(f"{_short(value)} does not fit {bits} bits")
    return int(value)


def _is_whole(value: float | Decimal) -> bool:
    return value.is_integer() if isinstance(value, float) else value == value.to_integral_value()


def _float(value: Any, *, single: bool) -> float:
    if isinstance(value, str):
        value = _number_text(value)
        if value.lstrip("+-") in ("NaN", "Infinity"):
            return float(value)
        value = value.rstrip("dDfF")
        if not value[-1:].isdigit() and value[-1:] != ".":
            raise ValueError("not a number")
    elif not _is_number(value):
        raise ValueError("not a number")
    number = float(value)
    if math.isinf(number) and isinstance(value, Decimal | str):
        raise OverflowError(f"{_short(value)} does not fit a double")
    if single and math.isfinite(number) and abs(number) >= _F32_MAX:
        raise OverflowError(f"{number} does not fit a float")
    return number


def _number_text(text: str) -> str:
    """The text of a number, without blanks around it. :raises ValueError: it holds what only Python reads."""
    if "_" in text or not text.isascii():
        raise ValueError("not a number")
    return text.strip()


def _decimal(value: Any, kind: DecimalType) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        raise ValueError("not a number")
    if isinstance(value, str) and _number_text(value) != value:
        raise ValueError("not a number")
    if isinstance(value, float):
        value = repr(value)  # the shortest text that reads back, as Java's BigDecimal.valueOf
    with localcontext(prec=120):
        number = Decimal(value)
        if not number.is_finite():
            raise ValueError("not a finite number")
        if number and number.adjusted() >= kind.precision:
            raise OverflowError(f"{_short(value)} does not fit {kind}")
        rounded = number.quantize(Decimal(1).scaleb(-kind.scale), rounding=ROUND_HALF_UP)
        if len(rounded.as_tuple().digits) > kind.precision and rounded != 0:
            raise OverflowError(f"{_short(value)} does not fit {kind}")
    return rounded


def _string(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Digits):
        return format(value, "f")
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, float | Decimal):
        return java_double(value if isinstance(value, float) else _float(value, single=False))
    if isinstance(value, int):
        return str(value)
    if not isinstance(value, Mapping | list):
        raise ValueError("it has no text of its own")
    return json_text(value)


def json_text(value: Any) -> str:
    """A value as JSON: fractions as doubles, typed decimals with all their digits, a map as an object.

    :raises ValueError: it has no JSON form.
    """
    if not isinstance(value, Typed | Items | Pairs):
        try:
            return _dumps(value)
        except ValueError:
            return _dumps(_named(value))
    if isinstance(value, Items):
        return "[" + ",".join(map(_item_text, value)) + "]"
    items = value.items() if isinstance(value, Typed) else value
    return "{" + ",".join(f"{json_text(plain_text(k))}:{_item_text(v)}" for k, v in items) + "}"


def _dumps(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_json_default)


def _named(value: Any) -> Any:
    """The value with text in the place of NaN and infinity, for which JSON has no numbers."""
    if isinstance(value, Mapping):
        return {name: _named(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_named(item) for item in value]
    return java_double(value) if isinstance(value, float) and not math.isfinite(value) else value


def _item_text(value: Any) -> str:
    if isinstance(value, Digits):
        return format(value, "f")
    return json_text(float(_single_text(value)) if isinstance(value, Single) else value)


def _json_default(value: Any) -> Any:
    """As Connect's JSON without a schema: bytes in base64, days, milliseconds."""
    match value:
        case Decimal():
            return _float(value, single=False)
        case bytes():
            return base64.b64encode(value).decode()
        case uuid.UUID():
            return str(value)
        case datetime():
            return _micros_of(value) // 1000
        case date():
            return _date(value)
        case time():
            return _time(value) // 1000
    raise ValueError(f"{type(value).__name__} has no JSON form")


def plain_text(value: Any) -> str:
    """A value of any kind as text: a decimal in plain digits, dates in ISO form, bytes in base64."""
    match value:
        case Decimal():
            return format(value, "f")
        case datetime() | date() | time():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode()
        case uuid.UUID():
            return str(value)
    return _string(value)


def java_double(value: float) -> str:
    """Java's ``Double.toString``: at least one decimal, an exponent outside 1e-3 to 1e7."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "-0.0" if math.copysign(1, value) < 0 else "0.0"
    sign, digits, exponent = Decimal(_single_text(value) if isinstance(value, Single) else repr(value)).as_tuple()
    if len(digits) == 1 and float(near := f"{value:.1e}") == value:  # of two digits Java takes the nearest
        sign, digits, exponent = Decimal(near).as_tuple()
    text = "".join(map(str, digits)).rstrip("0") or "0"
    point = len(digits) + int(exponent)
    minus = "-" if sign else ""
    if 1e-3 <= abs(value) < 1e7:
        if point <= 0:
            return f"{minus}0.{'0' * -point}{text}"
        return f"{minus}{text[:point].ljust(point, '0')}.{text[point:] or '0'}"
    return f"{minus}{text[0]}.{text[1:] or '0'}E{point - 1}"


def _single_text(value: float) -> str:
    """The shortest text that reads back as the same 32-bit float."""
    if not math.isfinite(value):
        return repr(float(value))
    packed = struct.pack("f", value)
    texts = (f"{value:.{digits}g}" for digits in range(1, 10))
    return next(text for text in texts if struct.pack("f", float(text)) == packed)


def _uuid(value: Any) -> bytes:
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, bytes) and len(value) == 16:
        return value
    return uuid.UUID(_text(value)).bytes


def _bytes(value: Any) -> bytes:
    """Bytes as they are; text is base64."""
    if isinstance(value, bytes):
        return value
    text = _text(value)
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except binascii.Error as error:
        raise ValueError(f"not base64: {error}") from error


def _fixed(value: Any, length: int) -> bytes:
    raw = _bytes(value)
    if len(raw) != length:
        raise ValueError(f"{len(raw)} bytes instead of {length}")
    return raw


def _date(value: Any) -> int:
    if isinstance(value, datetime):
        return _micros_of(value) // _DAY_US
    if isinstance(value, date):
        return (value - _EPOCH.date()).days
    return _number(value, 32) if _is_number(value) else date_text(pa.array([_text(value)]))[0].value


def _time(value: Any) -> int:
    if isinstance(value, time):
        return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
    micros = _number(value, 64) * 1000 if _is_number(value) else time_text(pa.array([_text(value)]))[0].value
    if not 0 <= micros < _DAY_US:
        raise OverflowError(f"{_short(value)} is not a time of day")
    return int(micros)


def _instant(value: Any, of_text: Callable[[pa.Array], pa.Array]) -> int:
    if isinstance(value, date):
        return _micros_of(value) if isinstance(value, datetime) else _date(value) * _DAY_US
    return _millis(value) if _is_number(value) else of_text(pa.array([_text(value)]))[0].value


def _nanos(value: Any, of_text: Callable[[pa.Array, str], pa.Array]) -> int:
    if isinstance(value, date) or _is_number(value):
        nanos = _instant(value, of_text=lambda text: text) * 1000
        if not -(1 << 63) <= nanos < 1 << 63:
            raise OverflowError(f"{_short(value)} does not fit a timestamp in nanoseconds")
        return nanos
    return int(of_text(pa.array([_text(value)]), "ns")[0].value)


def _micros_of(value: datetime) -> int:
    naive = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
    return (naive - _EPOCH) // timedelta(microseconds=1)


def _millis(value: Any) -> int:
    micros = _number(value, 64) * 1000
    if not -(1 << 63) <= micros < 1 << 63:
        raise OverflowError(f"{value} ms does not fit a timestamp in microseconds")
    return micros


def _short(value: Any) -> str:
    text = repr(value) if isinstance(value, str | Digits) else json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."
