"""TimestampConverter: one way of writing instants into another."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from calving.data.conversion.kinds import JSON
from calving.data.transforms.columns import Fields, check_options, each, required
from calving.data.transforms.dates import JavaDateFormat
from calving.data.transforms.interface import UnfitTypeError
from calving.data.transforms.sided import Sided
from calving.data.transforms.text import millis
from calving.errors import ConfigError

_PER_SECOND = {"seconds": 1, "milliseconds": 1_000, "microseconds": 1_000_000, "nanoseconds": 1_000_000_000}
_TARGETS = ("string", "unix", "Date", "Time", "Timestamp")
_DAY_MS = 86_400_000


class TimestampConverter(Sided):
    """``field`` (the whole, if empty) to ``target.type``; ``format`` for text, ``unix.precision`` for numbers.

    As in Connect, an instant is a number of whole milliseconds on its way: what is below them is cut off.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        known = ("field", "target.type", "format", "unix.precision", "replace.null.with.default")
        check_options(options, known, "TimestampConverter")
        self._field = options.get("field", "")
        self._target = required(options, "target.type", "TimestampConverter")
        if self._target not in _TARGETS:
            raise ConfigError(f"transform TimestampConverter: target.type is one of {', '.join(_TARGETS)}")
        self._format = _format(options["format"]) if options.get("format", "").strip() else None
        if self._target == "string" and self._format is None:
            raise ConfigError("transform TimestampConverter: target.type = string needs a format")
        if self._target != "string" and self._format is not None:
            self._format.check_readable()
        precision = options.get("unix.precision", "milliseconds")
        if precision not in _PER_SECOND:
            raise ConfigError(f"transform TimestampConverter: unix.precision is one of {', '.join(_PER_SECOND)}")
        self._per_second = _PER_SECOND[precision]

    def change(self, column: pa.Array, *, typed: bool) -> pa.Array:
        if not self._field:
            return self._convert(column, "the value")
        fields = Fields(column)
        found = fields.get(self._field)
        if found is None:
            return column
        fields.put(self._field, self._convert(found, f"field '{self._field}'"))
        return fields.column()

    def _convert(self, column: pa.Array, what: str) -> pa.Array:
        if pa.types.is_null(column.type):
            return column
        instants = self._millis(column, what)
        match self._target:
            case "Timestamp":
                return instants.cast(pa.timestamp("ms", "UTC"))
            case "Date":
                return _days(instants).cast(pa.int32()).cast(pa.date32())
            case "Time":
                of_day = pc.subtract(instants, pc.multiply(_days(instants), _DAY_MS))
                return of_day.cast(pa.int32()).cast(pa.time32("ms"))
            case "unix":
                return _scaled(instants, 1_000, self._per_second)
        assert self._format is not None  # noqa: S101 - the constructor has looked
        return pa.array(each(instants, self._format.format, f"{what}: "), pa.string())

    def _millis(self, column: pa.Array, what: str) -> pa.Array:
        kind = column.type
        if pa.types.is_temporal(kind):
            return millis(column)
        if pa.types.is_int64(kind):
            return _scaled(column, self._per_second, 1_000)
        if pa.types.is_string(kind) and self._format is not None:
            self._readable()
            return pa.array(each(column, self._format.parse, f"{what}: "), pa.int64())
        if kind == JSON:
            raise UnfitTypeError(f"{what}: no number of 64 bits, and so no timestamp")
        raise UnfitTypeError(f"{what}: {kind} is no timestamp" + (" without a format" if kind == pa.string() else ""))

    def _readable(self) -> None:
        assert self._format is not None  # noqa: S101 - the caller has looked
        try:
            self._format.check_readable()
        except ConfigError as error:
            raise UnfitTypeError(str(error)) from error


def _format(pattern: str) -> JavaDateFormat:
    return JavaDateFormat(pattern, time.time_ns() // 1_000_000)


def _days(instants: pa.Array) -> pa.Array:
    days = pc.divide(instants, _DAY_MS)
    return pc.if_else(pc.less(instants, pc.multiply(days, _DAY_MS)), pc.subtract(days, 1), days)


def _scaled(numbers: pa.Array, per_second: int, wanted: int) -> pa.Array:
    """:raises pa.ArrowInvalid: a number is too large in the unit that is wanted."""
    if per_second > wanted:
        return pc.divide(numbers, per_second // wanted)  # towards zero, as Java's TimeUnit
    return pc.multiply_checked(numbers, wanted // per_second)
