"""Kafka Connect's transforms of fields."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from calving.data.records import Records, field, objects
from calving.data.transforms.columns import (
    Fields,
    Side,
    as_text,
    check_options,
    names,
    only_nulls,
    required,
    side_of,
    struct_of,
    with_side,
)
from calving.data.transforms.interface import Transform
from calving.errors import ConfigError


class Sided(Transform):
    """A transform with a ``$Key`` and a ``$Value`` form. Nulls are left alone."""

    side: Side = "value"

    def apply(self, records: Records) -> Records:
        column = side_of(records, self.side)
        return records if only_nulls(column) else with_side(records, self.side, self.change(column))

    def change(self, column: pa.Array) -> pa.Array:
        """The column after this step."""
        raise NotImplementedError


class Cast(Sided):
    """``spec``: ``field:type`` pairs, or one type for the whole. A number that does not fit is an error."""

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, ("spec", "replace.null.with.default"), "Cast")
        self._whole: str | None = None
        self._fields: dict[str, str] = {}
        for part in required(options, "spec", "Cast").split(","):
            name, separator, kind = part.strip().rpartition(":")
            if kind.strip() not in _CASTS:
                raise ConfigError(f"transform Cast: there is no type '{kind}'; there are: {', '.join(_CASTS)}")
            if separator:
                self._fields[name.strip()] = kind.strip()
            else:
                self._whole = kind.strip()

    def change(self, column: pa.Array) -> pa.Array:
        if self._whole is not None:
            return _cast(column, self._whole)
        fields = Fields(column)
        for name, kind in self._fields.items():
            found = fields.get(name)
            if found is not None:
                fields.put(name, _cast(found, kind))
        return fields.column()


_CASTS: Mapping[str, pa.DataType] = {
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
}


def _cast(column: pa.Array, name: str) -> pa.Array:
    kind = _CASTS[name]
    if only_nulls(column):
        return pa.nulls(len(column), kind)
    if name == "string":
        return as_text(column)
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    elif pa.types.is_date(column.type) or pa.types.is_time32(column.type):
        column = column.cast(pa.int32())
    if name == "boolean":
        if pa.types.is_string(column.type):
            return pc.equal(pc.utf8_lower(column), "true")
        return column if pa.types.is_boolean(column.type) else pc.not_equal(column, 0)
    if pa.types.is_boolean(column.type) or pa.types.is_integer(column.type):
        return column.cast(kind)
    if pa.types.is_floating(column.type):
        return column.cast(kind) if pa.types.is_floating(kind) else pc.trunc(column).cast(kind)
    as_number = float if pa.types.is_floating(kind) else _whole
    return pa.array([None if v is None else as_number(v) for v in objects(column)], kind)


def _whole(value: Any) -> int:
    if isinstance(value, str):
        return int(value)
    if isinstance(value, Decimal | float | int):
        return math.trunc(value)
    raise ValueError(f"{value!r} is not a number")


class Drop(Sided):
    """The whole key or value becomes null. (Confluent's Drop.)"""

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, ("schema.behavior",), "Drop")

    def change(self, column: pa.Array) -> pa.Array:
        return pa.nulls(len(column))


class ExtractField(Sided):
    """``field`` takes the place of the whole; dotted with ``field.syntax.version`` = V2."""

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, ("field", "field.syntax.version", "replace.null.with.default"), "ExtractField")
        self._field = required(options, "field", "ExtractField")
        self._dotted = options.get("field.syntax.version", "V1").upper() == "V2"

    def change(self, column: pa.Array) -> pa.Array:
        found = field(column, self._field) if self._dotted else Fields(column).get(self._field)
        return pa.nulls(len(column)) if found is None else found


class Filter(Transform):
    """Drops every record: meant for a predicate."""

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, (), "Filter")

    def apply(self, records: Records) -> Records:
        return records.take(pa.array([], pa.int32()))


class Flatten(Sided):
    """Nested structs become fields whose names are joined by ``delimiter`` (a dot)."""

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, ("delimiter",), "Flatten")
        self._delimiter = options.get("delimiter", ".")

    def change(self, column: pa.Array) -> pa.Array:
        flat: dict[str, pa.Array] = {}
        self._collect(column, "", flat)
        return struct_of(flat, column.is_null() if column.null_count else None, len(column))

    def _collect(self, column: pa.Array, prefix: str, flat: dict[str, pa.Array]) -> None:
        fields = Fields(column)
        for name in fields:
            child, path = fields.require(name), prefix + name
            if pa.types.is_struct(child.type):
                self._collect(child, path + self._delimiter, flat)
            else:
                flat[path] = child


class HoistField(Sided):
    """The whole becomes the single ``field`` of a new struct; a null too."""

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, ("field",), "HoistField")
        self._field = required(options, "field", "HoistField")

    def apply(self, records: Records) -> Records:
        column = side_of(records, self.side)
        return with_side(records, self.side, struct_of({self._field: column}, None, len(column)))


class InsertField(Sided):
    """Adds where a record came from, or a constant. A name may end in ``!`` (required) or ``?`` (optional)."""

    needs = frozenset({"offset", "timestamp"})

    def __init__(self, options: Mapping[str, str]) -> None:
        wanted = ("topic.field", "partition.field", "offset.field", "timestamp.field", "static.field")
        check_options(options, (*wanted, "static.value", "replace.null.with.default"), "InsertField")
        self._names = {kind.removesuffix(".field"): options[kind] for kind in wanted if options.get(kind)}
        if not self._names:
            raise ConfigError(f"transform InsertField: set one of {', '.join(wanted)}")
        if ("static" in self._names) != ("static.value" in options):
            raise ConfigError("transform InsertField: static.field and static.value belong together")
        self._static = options.get("static.value")

    def apply(self, records: Records) -> Records:
        column = side_of(records, self.side)
        if only_nulls(column):
            return records
        fields = Fields(column)
        count = len(records)
        found = {
            "topic": lambda: records.topic,
            "partition": lambda: pa.repeat(pa.scalar(records.partition, pa.int32()), count),
            "offset": lambda: records.offset,
            "timestamp": lambda: records.timestamp,
            "static": lambda: pa.repeat(pa.scalar(self._static, pa.string()), count),
        }
        for kind, name in self._names.items():
            fields.put(name.rstrip("!?"), found[kind](), nullable=not name.endswith("!"))
        return with_side(records, self.side, fields.column())


class MaskField(Sided):
    """``fields`` get a value of their type that says nothing, or ``replacement`` where they are text or numbers."""

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, ("fields", "replacement", "replace.null.with.default"), "MaskField")
        self._fields = names(options, "fields")
        self._replacement = options.get("replacement")
        if not self._fields:
            raise ConfigError("transform MaskField: the option 'fields' is missing")

    def change(self, column: pa.Array) -> pa.Array:
        fields = Fields(column)
        for name in self._fields:
            found = fields.get(name)
            if found is not None and not only_nulls(found):
                fields.put(name, _masked(found, self._replacement))
        return fields.column()


def _masked(column: pa.Array, replacement: str | None) -> pa.Array:
    kind = column.type
    t = pa.types
    if replacement is not None:
        if not (t.is_string(kind) or t.is_integer(kind) or t.is_floating(kind) or t.is_decimal(kind)):
            raise ValueError(f"a field of type {kind} cannot be replaced by '{replacement}'")
        said = pa.array([replacement]).cast(kind)[0]
        return pc.if_else(column.is_valid(), said, pa.scalar(None, kind))
    if t.is_nested(kind) and not t.is_struct(kind):
        return pa.array([None if null else [] for null in column.is_null().to_pylist()], kind)
    if t.is_string(kind) or t.is_binary(kind):
        nothing = pa.array([""]).cast(kind)[0]
    elif t.is_boolean(kind):
        nothing = pa.scalar(False)
    elif t.is_integer(kind) or t.is_floating(kind) or t.is_decimal(kind):
        nothing = pa.array([0]).cast(kind)[0]
    elif t.is_timestamp(kind) or t.is_date(kind) or t.is_time(kind):
        nothing = pa.array([0], pa.int32() if t.is_date32(kind) or t.is_time32(kind) else pa.int64()).cast(kind)[0]
    else:
        raise ValueError(f"a field of type {kind} cannot be masked")
    return pc.if_else(column.is_valid(), nothing, pa.scalar(None, kind))


class ReplaceField(Sided):
    """``exclude`` or ``include`` fields (also ``blacklist``, ``whitelist``), and ``renames``: ``old:new`` pairs."""

    def __init__(self, options: Mapping[str, str]) -> None:
        known = ("exclude", "include", "blacklist", "whitelist", "renames", "replace.null.with.default")
        check_options(options, known, "ReplaceField")
        self._exclude = {*names(options, "exclude"), *names(options, "blacklist")}
        self._include = [*names(options, "include"), *names(options, "whitelist")]
        self._renames: dict[str, str] = {}
        for pair in names(options, "renames"):
            old, separator, new = pair.partition(":")
            if not separator or not new:
                raise ConfigError(f"transform ReplaceField: renames are pairs old:new, not '{pair}'")
            self._renames[old] = new

    def change(self, column: pa.Array) -> pa.Array:
        fields = Fields(column)
        for name in self._exclude:
            fields.drop(name)
        if self._include:
            fields.keep(self._include)
        fields.rename(self._renames)
        return fields.column()


class SetSchemaMetadata(Sided):
    """Accepted and without effect: names and versions of schemas mean nothing to a table."""

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, ("schema.name", "schema.version", "replace.null.with.default"), "SetSchemaMetadata")

    def change(self, column: pa.Array) -> pa.Array:
        return column


class ValueToKey(Transform):
    """The key becomes a struct of these ``fields`` of the value."""

    tombstones = False

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, ("fields", "replace.null.with.default"), "ValueToKey")
        self._fields = names(options, "fields")
        if not self._fields:
            raise ConfigError("transform ValueToKey: the option 'fields' is missing")

    def apply(self, records: Records) -> Records:
        fields = Fields(records.value)
        return replace(records, key=struct_of({n: fields.require(n) for n in self._fields}, None, len(records)))
