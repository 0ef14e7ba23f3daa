"""Schemaless JSON by the decoder in Rust: the fields of objects by the columns of the tables that they go to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

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
from calving.records.fields import Lookup, Target
from calving.records.projection import Projection

_RARE, _FEW = 8, 64
"""In blocks of more than a few one of so many values may be refused; of more, the other ways make a better job."""
_REST, _REST_AT_MOST = 16, 256
"""Blocks that go the other ways after one of which too many were refused; after several such, twice as many each."""
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
    TimeType: "time",
    TimestampType: "timestamp",
    TimestamptzType: "timestamptz",
    TimestampNanoType: "timestamp_ns",
    TimestamptzNanoType: "timestamptz_ns",
}
_KEYS = ("string", "long", "date", "uuid")
"""Of these the decoder tells whether a key comes twice."""


class Patience:
    """Whether blocks are worth it to be decoded so: not for a while after one of which too many were refused."""

    def __init__(self) -> None:
        self._resting, self._rest = 0, _REST

    def waits(self) -> bool:
        """Whether this block had better go another way."""
        waits = self._resting > 0
        self._resting -= waits
        return waits

    def is_over(self, refused: int, values: int) -> bool:
        """Whether so many refused ones are too many."""
        if refused * _RARE > values > _FEW:
            self._resting, self._rest = self._rest, min(2 * self._rest, _REST_AT_MOST)
            return True
        self._rest = _REST
        return False


class NativeJson:
    """Objects that go to tables, or to the choice of one, as they are."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder, self._patience = decoder, Patience()

    def read(self, values: Sequence[bytes]) -> tuple[pa.StructArray, list[int]] | None:
        """Rows, and the places of the values that have none; None: these values had better go another way."""
        if self._patience.waits():
            return None
        rows, refused, _ = self._decoder.read(values)
        return None if self._patience.is_over(len(refused), len(values)) else (rows, refused)


def native_json(projection: Projection | None, nesting: int) -> NativeJson | None:
    """The decoder in Rust for this projection; None if there is none."""
    if absence() is not None or projection is None or not (projection.targets or projection.route):
        return None
    try:
        fields = _wanted(projection)
    except NoWayError:
        return None
    fold = any(target.lookup(target.columns).folds for target in projection.targets)
    return NativeJson(json_decoder(fields, closed=projection.unknown != "add", fold=fold, nesting=nesting))


def _wanted(projection: Projection) -> list[Field]:
    """The columns of all tables, and the route field. :raises NoWayError: that is not one way of reading."""
    if len(projection.targets) > 1 and projection.unknown != "ignore":
        raise NoWayError
    exact = all(target.lookup(target.columns).is_exact for target in projection.targets)
    if not exact and (len(projection.targets) > 1 or projection.route is not None):
        raise NoWayError
    found: dict[str, Field] = {}
    for target in projection.targets:
        for field in fields_of(target):
            if found.setdefault(field.names[0], field) != field:
                raise NoWayError
    fields = list(found.values())
    return fields if projection.route is None else _with_route(fields, projection.route.split("."))


def _with_route(fields: Sequence[Field], path: Sequence[str]) -> list[Field]:
    """Only a text column tells the text that stands in the record: of a number there are several."""
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
    """A table's columns. A null in a required one is for others to judge; inside of columns it is refused.

    :raises NoWayError: a name has several forms in lower case.
    """
    return [replace(field, null=NULL_VALUE) for field in _fields(target.columns, target.lookup)]


def _fields(struct: StructType, lookups: Callable[[StructType], Lookup]) -> tuple[Field, ...]:
    lookup = lookups(struct)
    found = []
    for field in struct.fields:
        names = lookup.names_of(field)
        if lookup.folds and any(name.lower() != name for name in names):
            raise NoWayError
        if names:  # else no field of a record leads to it
            found.append(_field(names, field.field_type, field.required, lookups))
    return tuple(found)


def _field(names: tuple[str, ...], kind: IcebergType, required: bool, lookups: Callable[[StructType], Lookup]) -> Field:
    null = NO_NULL if required else NULL_VALUE
    match kind:
        case StructType():
            return Field(names, "struct", _fields(kind, lookups), null)
        case ListType():
            element = _field(("element",), kind.element_type, kind.element_required, lookups)
            return Field(names, "list", (element,), null) if element.kind != "other" else Field(names, "other")
        case MapType():
            key = _field(("key",), kind.key_type, True, lookups)
            value = _field(("value",), kind.value_type, kind.value_required, lookups)
            if key.kind not in _KEYS or value.kind == "other":
                return Field(names, "other")
            return Field(names, "map", (key, value), null)
        case DecimalType() if 0 <= kind.scale <= kind.precision:
            return Field(names, f"decimal({kind.precision},{kind.scale})", (), null)
        case FixedType() if len(kind) > 0:
            return Field(names, f"fixed({len(kind)})", (), null)
    known = _KINDS.get(type(kind))
    return Field(names, "other") if known is None else Field(names, known, (), null)
