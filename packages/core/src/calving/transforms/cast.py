"""Casts of values as Kafka Connect makes them: Cast, from one primitive type to another, as Java converts them; and
TimestampConverter, from one form of instants to another.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from calving.casting.numbers import short
from calving.errors import ConfigError
from calving.records.arrays import JSON
from calving.records.semantics import moments, plain
from calving.records.values import objects
from calving.transforms.columns import Fields, Sided, check_options, each, only_nulls, required
from calving.transforms.dates import JavaDateFormat
from calving.transforms.text import as_text, kind_text, millis

_KINDS: Mapping[str, pa.DataType] = {
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
}


class Cast(Sided):
    """``spec``: ``field:type`` pairs, or one type for the whole. A number that does not fit is an error."""

    keeps_names = True

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, ("spec", "replace.null.with.default"), "Cast")
        self._whole: str | None = None
        self._fields: dict[str, str] = {}
        parts = [part.split(":") for part in required(options, "spec", "Cast").split(",")]
        for part in parts:
            kind = part[-1].strip().lower()
            if kind not in _KINDS:
                raise ConfigError(f"transform Cast: there is no type '{part[-1]}'; there are: {', '.join(_KINDS)}")
            if len(part) > 2 or (len(part) == 1 and len(parts) > 1):
                raise ConfigError("transform Cast: spec is one type, or pairs field:type")
            if len(part) == 1:
                self._whole = kind
            else:
                self._fields[part[0].strip()] = kind

    def change(self, column: pa.Array, *, typed: bool) -> pa.Array:
        if self._whole is not None:
            return cast(column, self._whole, "the value")
        fields = Fields(column)
        for name, kind in self._fields.items():
            current = fields.get(name)
            if current is not None:
                fields.put(name, cast(current, kind, f"field '{name}'"))
        return fields.column()


def cast(column: pa.Array, name: str, what: str) -> pa.Array:
    """The column in another type. Nulls stay null.

    :raises RefusedError: some values cannot be cast.
    """
    column = plain(column)
    source, kind = column.type, _KINDS[name]
    t = pa.types
    if t.is_null(source):
        return pa.nulls(len(column), kind)
    if t.is_temporal(source) and name != "string":
        column = millis(column) if not t.is_date(source) else column.cast(pa.date32()).cast(pa.int32())
        source = column.type
    if name == "string":
        is_simple = source != JSON and not t.is_nested(source)
        return as_text(column) if is_simple else pa.array(each(column, _json_text, f"{what}: "), kind)
    if t.is_boolean(source) or t.is_integer(source) or t.is_floating(source):
        fast = _by_arrow(column, kind)
        if fast is not None:
            return fast
    return pa.array(each(column, _CHANGES[name], f"{what}: "), kind)


def _by_arrow(column: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """The whole column cast at once; None if not all values fit."""
    floating = pa.types.is_floating(column.type)
    if pa.types.is_boolean(kind):
        if pa.types.is_boolean(column.type):
            return column
        if floating:
            return pc.and_(pc.not_equal(pc.trunc(column), 0), pc.invert(pc.is_nan(column)))
        return pc.not_equal(column, 0)
    if pa.types.is_floating(kind):
        casted = column.cast(kind, safe=False)
        same = not floating or pc.all(pc.equal(pc.is_inf(casted), pc.is_inf(column))).as_py() is not False
        return casted if same else None
    try:
        return (pc.trunc(column) if floating else column).cast(kind)
    except pa.ArrowInvalid:
        return None


def _integer(value: Any, bits: int) -> int:
    if isinstance(value, str):
        if not re.fullmatch("[+-]?[0-9]+", value):
            raise ValueError(f"{short(value)} is not a whole number")
        digits = value.lstrip("+-").lstrip("0") or "0"
        number = (-1 if value[0] == "-" else 1) * int(digits) if len(digits) < 100 else 1 << 200
    else:
        number = math.trunc(_number(value))
    if not -(1 << (bits - 1)) <= number < 1 << (bits - 1):
        raise ValueError(f"{short(value)} does not fit {bits} bits")
    return number


_FLOAT = re.compile(r"[+-]?(?:NaN|Infinity|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)")


def _float(value: Any, largest: float) -> float:
    given = value
    if isinstance(value, str):
        text = value.strip("".join(map(chr, range(33))))
        if not _FLOAT.fullmatch(text):
            raise ValueError(f"{short(value)} is not a number")
        if text.lstrip("+-") in ("NaN", "Infinity"):
            return float(text)
        value = Decimal(text.rstrip("fFdD"))
    number = float(_number(value))
    if abs(number) >= largest and not (isinstance(value, float) and math.isinf(value)):
        raise ValueError(f"{short(given)} does not fit")
    return number


_FLOAT32_END = 2.0**128 - 2.0**103
"""Numbers from here on round to infinity."""


def _boolean(value: Any) -> bool:
    if isinstance(value, str):
        return value.lower() == "true"
    return bool(math.trunc(_number(value)) != 0)


def _number(value: Any) -> Any:
    if isinstance(value, dict | list):
        raise ValueError("an array or object is not a number")
    if not isinstance(value, int | float | Decimal):
        raise ValueError(f"{short(value)} is not a number")
    return value


def _json_text(value: Any) -> str:
    if isinstance(value, list | dict):
        raise ValueError("an array or object cannot be cast")
    text = as_text(pa.array([float(value) if isinstance(value, Decimal) else str(value)]))
    return str(text[0].as_py())


_CHANGES: Mapping[str, Callable[[Any], Any]] = {
    **{f"int{bits}": partial(_integer, bits=bits) for bits in (8, 16, 32, 64)},
    "float32": partial(_float, largest=_FLOAT32_END),
    "float64": partial(_float, largest=math.inf),
    "boolean": _boolean,
}


_PER_SECOND = {"seconds": 1, "milliseconds": 1_000, "microseconds": 1_000_000, "nanoseconds": 1_000_000_000}
_RESULTS = {
    "string": pa.string(),
    "unix": pa.int64(),
    "Date": pa.date32(),
    "Time": pa.time32("ms"),
    "Timestamp": pa.timestamp("ms", "UTC"),
}
_DAY_MS = 86_400_000


class TimestampConverter(Sided):
    """Converts ``field`` (the whole key or value, if empty) to ``target.type``. ``format`` is for text,
    ``unix.precision`` for numbers.

    As in Connect, an instant is converted to whole milliseconds first, and smaller parts are cut off.
    """

    keeps_names = True

    def __init__(self, options: Mapping[str, str]) -> None:
        known = ("field", "target.type", "format", "unix.precision", "replace.null.with.default")
        check_options(options, known, "TimestampConverter")
        self._field = options.get("field", "")
        self._target = required(options, "target.type", "TimestampConverter")
        if self._target not in _RESULTS:
            raise ConfigError(f"transform TimestampConverter: target.type is one of {', '.join(_RESULTS)}")
        self._format = _format(options["format"]) if options.get("format", "").strip() else None
        if self._target == "string" and self._format is None:
            raise ConfigError("transform TimestampConverter: target.type = string needs a format")
        if self._target == "string" and self._format is not None and (reason := self._format.unwritable()):
            raise ConfigError(f"transform TimestampConverter: {reason}")
        self._unreadable = None if self._format is None else self._format.unreadable()
        if self._target != "string" and self._unreadable is not None:
            raise ConfigError(f"transform TimestampConverter: {self._unreadable}")
        precision = options.get("unix.precision", "milliseconds")
        if precision not in _PER_SECOND:
            raise ConfigError(f"transform TimestampConverter: unix.precision is one of {', '.join(_PER_SECOND)}")
        self._per_second = _PER_SECOND[precision]

    def change(self, column: pa.Array, *, typed: bool) -> pa.Array:
        if not self._field:
            return self._convert(column, "the value")
        fields = Fields(column)
        current = fields.get(self._field)
        if current is None:
            return column
        fields.put(self._field, self._convert(current, f"field '{self._field}'"))
        return fields.column()

    def _convert(self, column: pa.Array, what: str) -> pa.Array:
        if pa.types.is_null(column.type):
            return column
        column = moments(column)
        if not self._takes(column.type):
            about = " without a format" if pa.types.is_string(column.type) else ""
            column = only_nulls(column, f"{what}: {kind_text(column.type)} is no timestamp{about}")
            return pa.nulls(len(column), _RESULTS[self._target])
        try:
            return self._target_of(self._millis(column, what), what)
        except (pa.ArrowInvalid, OverflowError) as error:
            # The chain tries fewer records, until this names the one whose value it is.
            first = objects(column.drop_null().slice(0, 1))[0]
            raise ValueError(f"{what}: {short(first)} is out of range for {self._target}") from error

    def _takes(self, kind: pa.DataType) -> bool:
        t = pa.types
        return t.is_temporal(kind) or t.is_int64(kind) or (t.is_string(kind) and self._format is not None)

    def _millis(self, column: pa.Array, what: str) -> pa.Array:
        if pa.types.is_temporal(column.type):
            return millis(column)
        if pa.types.is_int64(column.type):
            return _scaled(column, self._per_second, 1_000)
        assert self._format is not None  # noqa: S101 - _takes has looked
        return pa.array(each(column, self._parse, f"{what}: "), pa.int64())

    def _parse(self, text: str) -> int:
        assert self._format is not None  # noqa: S101 - _takes has looked
        if self._unreadable is not None:
            raise ValueError(self._unreadable)
        return self._format.parse(text)

    def _target_of(self, instants: pa.Array, what: str) -> pa.Array:
        kind = _RESULTS[self._target]
        match self._target:
            case "Timestamp":
                return instants.cast(kind)
            case "Date":
                return _days(instants).cast(pa.int32()).cast(kind)
            case "Time":
                of_day = pc.subtract(instants, pc.multiply(_days(instants), _DAY_MS))
                return of_day.cast(pa.int32()).cast(kind)
            case "unix":
                return _scaled(instants, 1_000, self._per_second)
        assert self._format is not None  # noqa: S101 - the constructor has looked
        return pa.array(each(instants, self._format.format, f"{what}: "), kind)


def _format(pattern: str) -> JavaDateFormat:
    return JavaDateFormat(pattern, time.time_ns() // 1_000_000)


def _days(instants: pa.Array) -> pa.Array:
    days = pc.divide(instants, _DAY_MS)
    return pc.if_else(pc.less(instants, pc.multiply(days, _DAY_MS)), pc.subtract(days, 1), days)


def _scaled(numbers: pa.Array, per_second: int, wanted: int) -> pa.Array:
    """The numbers in another unit.

    :raises pa.ArrowInvalid: a number is too large in the wanted unit.
    """
    if per_second > wanted:
        return pc.divide(numbers, per_second // wanted)  # rounds towards zero, as Java's TimeUnit
    return pc.multiply_checked(numbers, wanted // per_second)
