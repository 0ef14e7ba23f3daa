"""Schemaless JSON: a decoder in Rust reads a block. The exact path reads what it refuses, or all without a decoder. The
columns of the tables to which objects go determine how the decoder reads fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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

from calving.converters.interface import Converter, Decoded, stage
from calving.converters.native import NO_NULL, NULL_VALUE, Decoder, Field, NoWayError, Pieces, absence, json_decoder
from calving.converters.native_whole import native_whole
from calving.model.record_path import Limits
from calving.records.arrays import Indices
from calving.records.fields import Projection, Target
from calving.records.foreign import VARIANT
from calving.records.jsontext import parse_all
from calving.records.values import Payloads, RecordError, Values

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
    route = replace(route, null=known.null, tracked=known.tracked)
    return [route if field is known else field for field in fields]


def fields_of(target: Target) -> list[Field]:
    """A table's columns as fields. A null in a required column is accepted here and judged later. A null in a required
    field inside a column is refused.

    :raises NoWayError: a name has several forms in lower case.
    """
    return [replace(field, null=NULL_VALUE) for field in _fields(target.columns, target)]


def _fields(struct: StructType, target: Target, *, within_list: bool = False) -> tuple[Field, ...]:
    lookup = target.lookup(struct)
    fields = []
    for field in struct.fields:
        names = lookup.names_of(field)
        if lookup.folds and any(name.lower() != name for name in names):
            raise NoWayError
        if names:  # otherwise no field of a record leads to it
            kind = _KEEPING.get(type(field.field_type)) if field.field_id in target.compared else None
            made = _field(names, field, target, within_list=within_list) if kind is None else Field(names, kind)
            fields.append(replace(made, tracked=target.is_tracked(field, within_list=within_list)))
    return tuple(fields)


def _field(names: tuple[str, ...], column: NestedField, target: Target, *, within_list: bool) -> Field:
    kind, required = column.field_type, column.required
    null = NO_NULL if required else NULL_VALUE
    match kind:
        case StructType():
            return Field(names, "struct", _fields(kind, target, within_list=within_list), null)
        case ListType():
            element = _field(("element",), kind.element_field, target, within_list=True)
            return Field(names, "list", (element,), null) if element.kind != "other" else Field(names, "other")
        case MapType():
            key = _field(("key",), kind.key_field, target, within_list=True)
            value = _field(("value",), kind.value_field, target, within_list=True)
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
    known = _named(kind)
    return Field(names, "other") if known is None else Field(names, known, (), null)


def _named(kind: IcebergType) -> str | None:
    return "variant" if kind == VARIANT else _KINDS.get(type(kind))


_KEEPING: Mapping[type[IcebergType], str] = {
    DecimalType: "other",
    DoubleType: "fraction",
    FloatType: "other",
    **dict.fromkeys((TimeType, TimestampType, TimestamptzType), "string"),
}
"""How values that may not lose digits are read, because Rust rounds numbers and cuts moments."""


Read = Callable[[Payloads], tuple[Pieces, Indices]]
"""Reads values in Rust: the decoded ones, and the places of those that have to take the exact path."""


class JsonConverter(Converter):
    projects = True

    def __init__(self, options: Mapping[str, str], *, is_key: bool, limits: Limits | None = None) -> None:
        self._stage = stage(is_key)
        self._limits = limits or Limits()
        self._projection: Projection | None = None
        self._read: Read | None = None

    def decode(self, values: Sequence[bytes], projection: Projection | None) -> Decoded:
        if projection is not self._projection:
            self._projection, self._read = projection, _native(projection, self._limits)
        if self._read is None:
            return self._exactly(list(values), range(len(values)))
        payloads = values if isinstance(values, Payloads) else Payloads(values)
        pieces, refused = self._read(payloads)
        decoded = self._exactly(payloads.take(refused).items, refused) if refused else Decoded()
        return Decoded([*(Values(column, False, kept) for column, kept in pieces), *decoded.values], decoded.bad)

    def _exactly(self, values: list[bytes], places: Indices) -> Decoded:
        """The values at these places of the block, each parsed alone."""
        objects = parse_all(values, self._limits.nesting)
        bad = [
            RecordError(place, self._stage, type(error).__name__, f"not JSON: {error}")
            for place, error in zip(places, objects, strict=True)
            if isinstance(error, ValueError)
        ]
        if bad:
            right = [n for n, each in enumerate(objects) if not isinstance(each, ValueError)]
            objects, places = [objects[n] for n in right], [places[n] for n in right]
        return Decoded([Values(objects, False, places)] if objects else [], bad)


def _native(projection: Projection | None, limits: Limits) -> Read | None:
    """The way to read values of this projection in Rust; None if there is none."""
    if projection is None:
        return None
    if (decoder := native_json(projection, limits)) is not None:
        return decoder.pieces
    whole = native_whole(projection, limits)
    return None if whole is None else whole.read
