"""TimestampConverter: one way of writing instants into another."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from calving.data.records import objects
from calving.data.transforms.columns import Fields, check_options, only_nulls, required
from calving.data.transforms.dates import JavaDateFormat
from calving.data.transforms.fields import Sided
from calving.errors import ConfigError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = {"seconds": "s", "milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}
_TARGETS = ("string", "unix", "Date", "Time", "Timestamp")


class TimestampConverter(Sided):
    """``field`` (the whole, if empty) to ``target.type``; ``format`` for text, ``unix.precision`` for numbers."""

    def __init__(self, options: Mapping[str, str]) -> None:
        known = ("field", "target.type", "format", "unix.precision", "replace.null.with.default")
        check_options(options, known, "TimestampConverter")
        self._field = options.get("field", "")
        self._target = required(options, "target.type", "TimestampConverter")
        if self._target not in _TARGETS:
            raise ConfigError(f"transform TimestampConverter: target.type is one of {', '.join(_TARGETS)}")
        self._format = JavaDateFormat(options["format"]) if options.get("format") else None
        if self._target == "string" and self._format is None:
            raise ConfigError("transform TimestampConverter: target.type = string needs a format")
        precision = options.get("unix.precision", "milliseconds")
        if precision not in _UNITS:
            raise ConfigError(f"transform TimestampConverter: unix.precision is one of {', '.join(_UNITS)}")
        self._unit = _UNITS[precision]

    def change(self, column: pa.Array) -> pa.Array:
        if not self._field:
            return self._convert(column)
        fields = Fields(column)
        found = fields.get(self._field)
        if found is None or only_nulls(found):
            return column
        fields.put(self._field, self._convert(found))
        return fields.column()

    def _convert(self, column: pa.Array) -> pa.Array:
        instants = self._instants(column)
        match self._target:
            case "Timestamp":
                return instants.cast(pa.timestamp("ms", "UTC"), safe=False)
            case "Date":
                return pc.floor_temporal(instants, unit="day").cast(pa.timestamp("us")).cast(pa.date32())
            case "Time":
                return instants.cast(pa.timestamp("us")).cast(pa.time64("us")).cast(pa.time32("ms"), safe=False)
            case "unix":
                return instants.cast(pa.timestamp(self._unit, "UTC"), safe=False).cast(pa.int64())
        write = self._format.format if self._format is not None else str
        return pa.array([None if t is None else write(t) for t in objects(instants)], pa.string())

    def _instants(self, column: pa.Array) -> pa.Array:
        """As microseconds UTC."""
        kind, wanted = column.type, pa.timestamp("us", "UTC")
        if pa.types.is_timestamp(kind):
            return column.cast(pa.timestamp("us"), safe=False).cast(wanted)
        if pa.types.is_date(kind):
            return column.cast(pa.timestamp("us")).cast(wanted)
        if pa.types.is_time(kind):
            return column.cast(pa.time64("us")).cast(pa.int64()).cast(wanted)
        if pa.types.is_integer(kind):
            return column.cast(pa.int64()).cast(pa.timestamp(self._unit, "UTC")).cast(wanted, safe=False)
        if pa.types.is_string(kind) and self._format is not None:
            return pa.array([None if v is None else self._parsed(v) for v in column.to_pylist()], wanted)
        raise ValueError(f"{kind} is no timestamp" + (" without a format" if pa.types.is_string(kind) else ""))

    def _parsed(self, text: Any) -> int:
        assert self._format is not None  # noqa: S101 - the caller has looked
        return (self._format.parse(text) - _EPOCH) // timedelta(microseconds=1)
