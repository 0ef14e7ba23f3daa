"""Kafka Connect's transforms of fields."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from calving.casting.numbers import short
from calving.errors import ConfigError
from calving.records.arrays import JSON, arrow, struct
from calving.records.schema_defaults import default_of, described
from calving.records.semantics import like, plain, plain_type
from calving.records.values import Records
from calving.transforms.columns import (
    Fields,
    Sided,
    check_options,
    each,
    names,
    only_nulls,
    path_of,
    required,
    side_of,
    struct_of,
    with_side,
)
from calving.transforms.interface import NO_FIELDS, Transform, UnfitTypeError
from calving.transforms.text import kind_text
from calving.transforms.tracing import parts_of


class MaskField(Sided):
    """``fields`` get the neutral value of their type; or ``replacement``, if they are text or numbers."""

    keeps_names = True

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, ("fields", "replacement", "replace.null.with.default"), "MaskField")
        self._fields = names(options, "fields")
        self._replacement = options.get("replacement")
        if not self._fields:
            raise ConfigError("transform MaskField: the option 'fields' is missing")
        if self._replacement == "":
            raise ConfigError("transform MaskField: the option 'replacement' is empty")

    def change(self, column: pa.Array, *, typed: bool) -> pa.Array:
        fields = Fields(column)
        for name in self._fields:
            current = fields.get(name)
            if current is None or pa.types.is_null(current.type):
                continue
            if self._replacement is not None:
                masked = _replaced(plain(current), self._replacement, name)
            else:
                masked = _masked(plain(current), typed, name)
            fields.put(name, like(current.type, masked))
        return fields.column()


def _masked(column: pa.Array, typed: bool, name: str) -> pa.Array:
    kind = column.type
    t = pa.types
    if kind == JSON:
        return pa.array([None if v is None else json.dumps(_nothing(v)) for v in each(column, lambda v: v)], JSON)
    if t.is_struct(kind) and not typed:
        return pa.array([{} if valid else None for valid in column.is_valid().to_pylist()], pa.struct([]))
    if t.is_list(kind) or t.is_map(kind):
        return arrow([[] if valid else None for valid in column.is_valid().to_pylist()], kind)
    neutral = _neutral(kind)
    if neutral is None:
        return only_nulls(column, f"field '{name}': {kind_text(kind)} cannot be masked")
    return _everywhere(column, neutral)


def _neutral(kind: pa.DataType) -> pa.Scalar | None:
    """The empty text, false or zero; None for a type that has none of them."""
    t = pa.types
    if t.is_string(kind) or t.is_binary(kind):
        return pa.array([""]).cast(kind)[0]
    if t.is_boolean(kind):
        return pa.scalar(False)
    if t.is_integer(kind) or t.is_floating(kind) or t.is_decimal(kind):
        return pa.array([0]).cast(kind)[0]
    if t.is_temporal(kind):
        return pa.array([0], pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)[0]
    return None


def _nothing(value: Any) -> Any:
    return type(value)() if not isinstance(value, Decimal) else 0.0


def _replaced(column: pa.Array, replacement: str, name: str) -> pa.Array:
    kind = column.type
    t = pa.types
    if t.is_string(kind):
        return _everywhere(column, pa.scalar(replacement, kind))
    if not (kind == JSON or t.is_integer(kind) or t.is_floating(kind) or t.is_decimal(kind)):
        return only_nulls(column, f"field '{name}': {kind_text(kind)} cannot be replaced by '{replacement}'")
    try:
        number = Decimal(replacement)
        whole = int(number)
        if kind == JSON:
            texts = each(column, lambda v: _json_number(v, number), f"field '{name}': ")
            return pa.array(texts, JSON)
        said: Any = whole if t.is_integer(kind) else float(number) if t.is_floating(kind) else number
        return _everywhere(column, pa.array([said], kind)[0])
    except (InvalidOperation, ValueError, OverflowError, pa.ArrowInvalid):
        pass
    return only_nulls(column, f"field '{name}': '{replacement}' is not a number of type {kind}")


def _json_number(value: Any, number: Decimal) -> str:
    if isinstance(value, int | Decimal):
        return str(int(number)) if isinstance(value, int) else repr(float(number))
    raise ValueError(f"{short(value)} cannot be replaced by a number")


def _everywhere(column: pa.Array, said: pa.Scalar) -> pa.Array:
    return pc.if_else(column.is_valid(), said, pa.scalar(None, column.type))


class Drop(Sided):
    """The whole key or value becomes null. (Confluent's Drop.)"""

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, ("schema.behavior",), "Drop")

    def change(self, column: pa.Array, *, typed: bool) -> pa.Array:
        return pa.nulls(len(column))


class ExtractField(Sided):
    """``field`` replaces the whole key or value. With ``field.syntax.version`` = V2, ``field`` may be a path.

    Without a schema a missing field is null. A schema must have the field.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, ("field", "field.syntax.version", "replace.null.with.default"), "ExtractField")
        required(options, "field", "ExtractField")
        self._path = path_of(options, "field", "ExtractField")
        self.required = frozenset(self._path)

    def change(self, column: pa.Array, *, typed: bool) -> pa.Array:
        for step in self._path:
            if not (typed or pa.types.is_struct(column.type)):
                return only_nulls(column, f"it must be an object with a field '{step}', not {kind_text(column.type)}")
            fields = Fields(column)
            column_of_step = fields.require(step) if typed else fields.get(step)
            column = pa.nulls(len(column)) if column_of_step is None else column_of_step
        return column

    def becomes(self, kind: pa.DataType) -> pa.DataType | None:
        type_inside: pa.DataType = kind
        for step in self._path:
            if self.side != "value" or not pa.types.is_struct(type_inside) or type_inside.get_field_index(step) < 0:
                return None
            type_inside = type_inside.field(step).type
        return type_inside


class Filter(Transform):
    """Drops every record. Use it with a predicate."""

    null_types = NO_FIELDS
    keeps_names = True
    ordered = False
    drops = "every record"

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, (), "Filter")

    def apply(self, records: Records) -> Records:
        return records.take(pa.array([], pa.int32()))


class Flatten(Sided):
    """Nested structs become fields whose names are joined by ``delimiter`` (a dot). Lists and maps stay as they are."""

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, ("delimiter",), "Flatten")
        self._delimiter = options.get("delimiter", ".")

    def former(self, names: frozenset[str]) -> frozenset[str] | None:
        return parts_of(names, self._delimiter.lower())

    def change(self, column: pa.Array, *, typed: bool) -> pa.Array:
        flat: dict[str, tuple[pa.Array, pa.Field]] = {}
        self._collect(column, "", True, flat)
        children, fields = [child for child, _ in flat.values()], [field for _, field in flat.values()]
        return struct(children, pa.struct(fields), column.is_null() if column.null_count else None, len(column))

    def becomes(self, kind: pa.DataType) -> pa.DataType | None:
        if self.side != "value" or not pa.types.is_struct(kind):
            return None
        return pa.struct([(str(i), leaf) for i, leaf in enumerate(_leaves(kind))])

    def _collect(self, column: pa.Array, prefix: str, always: bool, flat: dict[str, tuple[pa.Array, pa.Field]]) -> None:
        """Collect the flat fields of a column. ``always``: whether the structs around the column are never null.
        The default of a field inside a struct does not stand for the struct: it is dropped.
        """
        fields = Fields(column)
        for inner in fields.type:
            child, name = fields.require(inner.name), f"{prefix}{self._delimiter}{inner.name}" if prefix else inner.name
            there = always and not inner.nullable
            if pa.types.is_struct(plain_type(child.type)):
                self._collect(child, name, there, flat)
            elif name in flat:
                raise UnfitTypeError(f"two fields are named '{name}' when they are flat")
            else:
                field = pa.field(name, child.type, nullable=not there)
                flat[name] = child, field if prefix else described(field, default_of(inner))


def _leaves(kind: pa.StructType) -> Iterator[pa.DataType]:
    for field in kind:
        if pa.types.is_struct(field.type):
            yield from _leaves(field.type)
        else:
            yield field.type


class HoistField(Sided):
    """The whole key or value becomes the single ``field`` of a new struct, also if it is null."""

    tombstones = True
    ordered = True

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, ("field",), "HoistField")
        self._field = required(options, "field", "HoistField")

    def apply(self, records: Records) -> Records:
        column = side_of(records, self.side)
        return with_side(records, self.side, struct_of({self._field: column}, None, len(column)))

    def becomes(self, kind: pa.DataType) -> pa.DataType | None:
        return pa.struct([(self._field, kind)]) if self.side == "value" else None


class InsertField(Sided):
    """Adds where a record came from, or a constant. A name may end in ``!`` (required) or ``?`` (optional).

    The timestamp is a timestamp if there is a schema, otherwise a number of milliseconds.
    """

    keeps_names = keeps_paths = True
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

    def on(self, records: Records, column: pa.Array) -> Records:
        fields = Fields(column)
        count = len(records)
        columns = {
            "topic": lambda: records.topic,
            "partition": lambda: pa.repeat(pa.scalar(records.partition, pa.int32()), count),
            "offset": lambda: records.offset,
            "timestamp": lambda: records.timestamp if records.typed else records.timestamp.cast(pa.int64()),
            "static": lambda: pa.repeat(pa.scalar(self._static, pa.string()), count),
        }
        for kind, name in self._names.items():
            plain = name[:-1] if name[-1] in "!?" else name
            fields.add(plain, columns[kind](), records.typed, nullable=not name.endswith("!"))
        return with_side(records, self.side, fields.column())


class ReplaceField(Sided):
    """``exclude`` or ``include`` fields (also ``blacklist``, ``whitelist``), and ``renames``: ``old:new`` pairs."""

    def __init__(self, options: Mapping[str, str]) -> None:
        known = ("exclude", "include", "blacklist", "whitelist", "renames", "replace.null.with.default")
        check_options(options, known, "ReplaceField")
        self._exclude = {*names(options, "exclude"), *names(options, "blacklist")}
        self._include = [*names(options, "include"), *names(options, "whitelist")]
        self._renames: dict[str, str] = {}
        for pair in names(options, "renames"):
            parts = pair.split(":")
            if len(parts) != 2 or not parts[1]:
                raise ConfigError(f"transform ReplaceField: renames are pairs old:new, not '{pair}'")
            self._renames[parts[0]] = parts[1]

    def former(self, names: frozenset[str]) -> frozenset[str] | None:
        return names.union(old.lower() for old, new in self._renames.items() if new.lower() in names)

    def change(self, column: pa.Array, *, typed: bool) -> pa.Array:
        fields = Fields(column)
        for name in self._exclude:
            fields.drop(name)
        if self._include:
            fields.keep(self._include)
        fields.rename(self._renames)
        return fields.column()


class SetSchemaMetadata(Sided):
    """Accepted without effect: a table has no names and versions of schemas."""

    keeps_names = keeps_paths = True

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, ("schema.name", "schema.version", "replace.null.with.default"), "SetSchemaMetadata")
        if not ("schema.name" in options or "schema.version" in options):
            raise ConfigError("transform SetSchemaMetadata: set schema.name or schema.version")

    def change(self, column: pa.Array, *, typed: bool) -> pa.Array:
        return column


class ValueToKey(Transform):
    """The key becomes a struct of these ``fields`` of the value.

    Without a schema a missing field is null. A schema must have the field.
    """

    null_types = NO_FIELDS
    keeps_names = True
    tombstones = False
    ordered = False

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, ("fields", "replace.null.with.default"), "ValueToKey")
        self._fields = names(options, "fields")
        self.required = frozenset(self._fields)
        if not self._fields:
            raise ConfigError("transform ValueToKey: the option 'fields' is missing")

    def apply(self, records: Records) -> Records:
        fields = Fields(records.value)
        count = len(records)
        columns: dict[str, pa.Array] = {}
        for name in self._fields:
            column = fields.require(name) if records.typed else fields.get(name)
            columns[name] = pa.nulls(count) if column is None else column
        return replace(records, key=struct_of(columns, None, count))
