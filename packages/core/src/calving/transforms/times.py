"""TimestampConverter: converts instants from one form to another."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from calving.errors import ConfigError
from calving.records.semantics import moments
from calving.transforms.columns import Fields, Sided, check_options, each, only_nulls, required
from calving.transforms.dates import JavaDateFormat
from calving.transforms.text import kind_text, millis

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
            raise ValueError(f"{what}: an instant is out of range: {error}") from error

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
