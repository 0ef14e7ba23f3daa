"""One value into one Iceberg type: the Java sink's ``RecordConverter``, with repairs.

The repairs: a value that does not fit is an error; it is never wrapped around or truncated. The fast path in
``columns`` must give the same result for every value that it accepts. Both use the same Arrow casts for text of
temporal columns.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import pyarrow as pa
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

from calving.casting.digits import loses
from calving.casting.evolution import Path, SchemaEvolution, UnfitError
from calving.casting.findings import MadeTexts
from calving.casting.geometries import geometry_of
from calving.casting.numbers import boolean, decimal, floating, integer, short, text_of
from calving.casting.temporal import day, instant, nanos, time_of_day, timestamp_text, timestamptz_text
from calving.casting.texts import TooMuchTextError, from_base64, string
from calving.casting.variants import encode
from calving.errors import first_line
from calving.model.tables import SchemaChange
from calving.records.arrays import Pairs, Scaled
from calving.records.failures import pass_on
from calving.records.fields import MILLIS, Counting, Target
from calving.records.foreign import VARIANT, geo_type
from calving.records.inferred import of_value


def primitive(value: Any, kind: IcebergType, counting: Counting = MILLIS) -> Any:
    """A value in the form that ``pyarrow.array`` takes for ``kind``. Temporal values become integers.

    Numbers for temporal columns mean days (date), or what ``counting`` says: milliseconds by default, as in the Java
    sink.

    :raises ValueError: the value is not of this kind.
    :raises OverflowError: the value is of this kind, but too large for it.
    """
    if isinstance(value, Scaled):
        value = value.number
    if type(kind) in _MOMENTS:
        return _MOMENTS[type(kind)](value, counting)
    convert = _CONVERT.get(type(kind))
    if convert is None:
        raise ValueError(f"columns of type {kind} cannot be written")
    return convert(value, kind)


class WrongTypeError(UnfitError):
    """The value is not of the column's type. ``path`` leads to the column."""


_UUID = re.compile(r"[0-9a-fA-F]{8}(-?)[0-9a-fA-F]{4}\1[0-9a-fA-F]{4}\1[0-9a-fA-F]{4}\1[0-9a-fA-F]{12}")


def _uuid_bytes(value: Any) -> bytes:
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, bytes) and len(value) == 16:
        return value
    text = text_of(value)
    if not _UUID.fullmatch(text):
        raise ValueError("not 32 hexadecimal digits, with hyphens between the groups or without hyphens")
    return bytes.fromhex(text.replace("-", ""))


def _binary(value: Any) -> bytes:
    """The bytes of a value. Text is base64."""
    return value if isinstance(value, bytes) else from_base64(text_of(value))


def _fixed(value: Any, length: int) -> bytes:
    raw = _binary(value)
    if len(raw) != length:
        raise ValueError(f"{len(raw)} bytes instead of {length}")
    return raw


_CONVERT: Mapping[type[IcebergType], Callable[[Any, Any], Any]] = {
    BooleanType: lambda value, _: boolean(value),
    IntegerType: lambda value, _: integer(value, 32),
    LongType: lambda value, _: integer(value, 64),
    FloatType: lambda value, _: floating(value, single=True),
    DoubleType: lambda value, _: floating(value, single=False),
    DecimalType: decimal,
    StringType: lambda value, _: string(value),
    UUIDType: lambda value, _: _uuid_bytes(value),
    BinaryType: lambda value, _: _binary(value),
    FixedType: lambda value, kind: _fixed(value, len(kind)),
}
_MOMENTS: Mapping[type[IcebergType], Callable[[Any, Counting], int]] = {
    DateType: day,
    TimeType: time_of_day,
    TimestamptzType: lambda value, counting: instant(value, timestamptz_text, counting),
    TimestampType: lambda value, counting: instant(value, timestamp_text, counting),
    TimestamptzNanoType: lambda value, counting: nanos(value, timestamptz_text, counting),
    TimestampNanoType: lambda value, counting: nanos(value, timestamp_text, counting),
}


class ExactConverter:
    """Converts values to the columns of one table, and collects the schema changes that other values need.

    ``typed`` values come with a schema, which alone decides the types of new columns.
    """

    def __init__(
        self, schema_evolution: SchemaEvolution, target: Target, *, typed: bool = False, texts: MadeTexts | None = None
    ) -> None:
        self._schema_evolution, self._target, self._typed, self._texts = (
            schema_evolution,
            target,
            typed,
            texts or MadeTexts(),
        )
        self.changes: list[SchemaChange] = []

    def value(self, value: Any, column: NestedField, path: Path) -> Any:
        """Convert one value of one column.

        :raises UnfitError: the value does not fit, and no schema change helps. No change is collected for it.
        """
        before = len(self.changes)
        try:
            converted = self._to(value, column.field_type, path, column.field_id)
            if value is None and column.required:
                self.changes.append(self._schema_evolution.optional(column, path))
        except Exception as error:
            del self.changes[before:]
            pass_on(error)
            if isinstance(error, UnfitError):
                raise
            # An error of a library counts as the value's error, too: another attempt would fail in the same way.
            raise UnfitError(path, f"{type(error).__name__}: {first_line(error)}") from error
        return converted

    def _to_struct(self, value: Any, struct: StructType, path: Path) -> dict[str, Any]:
        if isinstance(value, Pairs) and all(isinstance(key, str) for key, _ in value):
            value = dict(value)
        if not isinstance(value, Mapping):
            raise WrongTypeError(path, f"{short(value)} is not an object")
        row: dict[str, Any] = dict.fromkeys((f.name for f in struct.fields), None)
        given = self._given(value, struct, path)
        for name, (column, item) in given.items():
            row[name] = self._to(item, column.field_type, (*path, name), column.field_id)
        for column in struct.fields:
            if column.name not in given and (default := self._target.defaults.get(column.field_id)) is not None:
                row[column.name] = default.value
            elif column.required and given.get(column.name, (column, None))[1] is None:
                self.changes.append(self._schema_evolution.optional(column, (*path, column.name)))
        return row

    def _given(self, value: Mapping[str, Any], struct: StructType, path: Path) -> dict[str, tuple[NestedField, Any]]:
        """The columns that an object has fields for, by their names, and these fields' values."""
        lookup = self._target.lookup(struct)
        given: dict[str, tuple[NestedField, Any]] = {}
        for name, item in value.items():
            column = lookup.find(name)
            if column is not None:
                given[column.name] = (column, item)  # the last of several fields for one column counts
            else:
                self.unknown(item, (*path, lookup.asks_for(name)))
        return given

    def unknown(self, value: Any, path: Path) -> None:
        """Request a column for a field without one.

        :raises UnfitError: the table cannot have this column.
        """
        if self._typed or not self._schema_evolution.adds:
            return
        kind = of_value(value)
        if kind is not None:
            self.changes.append(self._schema_evolution.add(path, kind, 1, value))

    def _widen(self, value: Any, kind: IcebergType, path: Path, error: OverflowError) -> None:
        """Request a wider column, which holds the value.

        :raises UnfitError: no column may be widened so far.
        """
        wider = "long" if isinstance(kind, IntegerType) else "double" if isinstance(kind, FloatType) else None
        if wider is None or not self._schema_evolution.evolves or not _fits_wider(value, wider):
            raise WrongTypeError(path, str(error)) from error
        self.changes.append(self._schema_evolution.widen(path, wider))

    def _to(self, value: Any, kind: IcebergType, path: Path, column_id: int) -> Any:
        if value is None:
            return None
        match kind:
            case StructType():
                return self._to_struct(value, kind, path)
            case ListType():
                if not isinstance(value, list) or isinstance(value, Pairs):
                    raise WrongTypeError(path, f"{short(value)} is not an array")
                return [self._element(item, kind, (*path, "element")) for item in value]
            case MapType():
                return self._to_map(value, kind, path)
        converted = self._to_primitive(value, kind, path, column_id)
        if column_id in self._target.compared and loses(value, converted, kind, self._target.counting(column_id)):
            raise UnfitError(path, f"{short(value)} loses digits as a {kind}, {_COMPARED}")
        return converted

    def _to_primitive(self, value: Any, kind: IcebergType, path: Path, column_id: int) -> Any:
        try:
            if isinstance(value, dict | list) and isinstance(kind, StringType):
                return self._texts.of(value)
            if kind == VARIANT:
                return encode(value, typed=self._typed)._asdict()
            if (geo := geo_type(kind)) is not None:
                return geometry_of(value, geo)
            return primitive(value, kind, self._target.counting(column_id))
        except TooMuchTextError as error:
            raise UnfitError(path, self._texts.too_much) from error
        except OverflowError as error:
            self._widen(value, kind, path, error)
            return None
        except (ValueError, ArithmeticError, pa.ArrowInvalid) as error:
            raise WrongTypeError(path, f"{short(value)} is not a {kind}: {_why(error, kind)}") from error

    def _element(self, value: Any, kind: ListType, path: Path) -> Any:
        converted = self._to(value, kind.element_type, path, kind.element_id)
        if value is None and kind.element_required:
            self.changes.append(self._schema_evolution.optional(kind.element_field, path))
        return converted

    @cached_property
    def _keys(self) -> ExactConverter:
        """For the keys of maps, whose types Iceberg does not change."""
        return ExactConverter(self._schema_evolution.fixed(), self._target, typed=self._typed, texts=self._texts)

    def _to_map(self, value: Any, kind: MapType, path: Path) -> list[tuple[Any, Any]]:
        if not isinstance(value, Mapping | Pairs):
            raise WrongTypeError(path, f"{short(value)} is not an object")
        pairs: list[tuple[Any, Any]] = []
        keys: set[str] = set()
        missing = False
        for k, v in value.items() if isinstance(value, Mapping) else value:
            missing = missing or v is None
            key = self._keys._to(k, kind.key_type, (*path, "key"), kind.key_id)
            if key is None:
                raise UnfitError((*path, "key"), "a map has no null keys")
            if repr(key) in keys:
                raise UnfitError((*path, "key"), f"the key {short(key)} comes twice")
            keys.add(repr(key))
            pairs.append((key, self._to(v, kind.value_type, (*path, "value"), kind.value_id)))
        if kind.value_required and missing:
            self.changes.append(self._schema_evolution.optional(kind.value_field, (*path, "value")))
        return pairs


_COMPARED = "but identifies the row or orders its changes: the column needs a type with more digits, or string"


def _fits_wider(value: Any, wider: str) -> bool:
    try:
        primitive(value, LongType() if wider == "long" else DoubleType())
    except (ValueError, OverflowError):
        return False
    return True


def _why(error: Exception, kind: IcebergType) -> str:
    if not isinstance(error, pa.ArrowInvalid) or "Failed to parse string" not in str(error):
        return first_line(error)
    return "write ISO 8601, such as 2026-01-31" + ("" if isinstance(kind, DateType) else "T23:59:59Z")
