"""Decodes schemaless JSON in Rust. The columns of the tables to which objects go determine how fields are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

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

from calving.converters.native import NO_NULL, NULL_VALUE, Decoder, Field, NoWayError, absence, json_decoder
from calving.model.record_path import Limits
from calving.records.fields import Projection, Target

_KINDS: dict[type[IcebergType], str] = {
    BooleanType: "boolean",
    IntegerType: "long",
    LongType: "long",
    FloatType: "double",
    DoubleType: "double",
    StringType: "string",
    UUIDType: "uuid",
    BinaryType: "base64",
    DateType: "date",
}
_COUNTED: dict[type[IcebergType], str] = {
    TimeType: "time",
    TimestampType: "timestamp",
    TimestamptzType: "timestamptz",
    TimestampNanoType: "timestamp_ns",
    TimestamptzNanoType: "timestamptz_ns",
}
"""Kinds whose numbers have a unit."""
_KEYS = ("string", "long", "date", "uuid")
"""For map keys of these kinds, the decoder finds out whether a key comes twice."""


def native_json(projection: Projection, limits: Limits) -> Decoder | None:
    """The decoder in Rust of what this projection needs; None if there is none."""
    if absence() is not None or not (projection.targets or projection.route):
        return None
    try:
        fields = _wanted(projection)
    except NoWayError:
        return None
    fold = any(target.lookup(target.columns).folds for target in projection.targets)
    closed = projection.unknown != "add"
    return json_decoder(fields, closed=closed, fold=fold, nesting=limits.nesting, cells=limits.cells)


def _wanted(projection: Projection) -> list[Field]:
    """The columns of all tables, and the route field.

    :raises NoWayError: these columns cannot be read in one way.
    """
    if len(projection.targets) > 1 and projection.unknown != "ignore":
        raise NoWayError
    exact = all(target.lookup(target.columns).is_exact for target in projection.targets)
    if not exact and (len(projection.targets) > 1 or projection.route is not None):
        raise NoWayError
    by_name: dict[str, Field] = {}
    for target in projection.targets:
        for field in fields_of(target):
            if by_name.setdefault(field.names[0], field) != field:
                raise NoWayError
    fields = list(by_name.values())
    return fields if projection.route is None else _with_route(fields, projection.route.split("."))


def _with_route(fields: Sequence[Field], path: Sequence[str]) -> list[Field]:
    """The fields with the route field. Only a text column keeps the text in the record: a number has several texts."""
    name, *inner = path
    known = next((field for field in fields if field.names == (name,)), None)
    if known is not None and known.kind != ("struct" if inner else "string"):
        raise NoWayError
    below = _with_route(known.inner if known is not None else (), inner) if inner else []
    route = Field((name,), "struct" if inner else "string", tuple(below))
    if known is None:
        return [*fields, route]
    return [replace(route, null=known.null) if field is known else field for field in fields]


def fields_of(target: Target) -> list[Field]:
    """A table's columns as fields. A null in a required column is accepted here and judged later. A null in a required
    field inside a column is refused.

    :raises NoWayError: a name has several forms in lower case.
    """
    return [replace(field, null=NULL_VALUE) for field in _fields(target.columns, target)]


def _fields(struct: StructType, target: Target) -> tuple[Field, ...]:
    lookup = target.lookup(struct)
    fields = []
    for field in struct.fields:
        names = lookup.names_of(field)
        if lookup.folds and any(name.lower() != name for name in names):
            raise NoWayError
        if names:  # otherwise no field of a record leads to it
            fields.append(_field(names, field, target))
    return tuple(fields)


def _field(names: tuple[str, ...], column: NestedField, target: Target) -> Field:
    kind, required = column.field_type, column.required
    null = NO_NULL if required else NULL_VALUE
    match kind:
        case StructType():
            return Field(names, "struct", _fields(kind, target), null)
        case ListType():
            element = _field(("element",), kind.element_field, target)
            return Field(names, "list", (element,), null) if element.kind != "other" else Field(names, "other")
        case MapType():
            key = _field(("key",), kind.key_field, target)
            value = _field(("value",), kind.value_field, target)
            if key.kind not in _KEYS or value.kind == "other":
                return Field(names, "other")
            return Field(names, "map", (key, value), null)
        case DecimalType() if 0 <= kind.scale <= kind.precision:
            return Field(names, f"decimal({kind.precision},{kind.scale})", (), null)
        case FixedType() if len(kind) > 0:
            return Field(names, f"fixed({len(kind)})", (), null)
    if type(kind) in _COUNTED:
        unit = target.counting(column.field_id).unit
        return Field(names, _COUNTED[type(kind)] + ("" if unit == "ms" else f"({unit})"), (), null)
    known = _KINDS.get(type(kind))
    return Field(names, "other") if known is None else Field(names, known, (), null)
