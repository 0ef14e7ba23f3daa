"""Decoders in Rust, of the distribution ``calving-native``, where it is installed.

They take what they read exactly as the exact way does, and refuse the rest: it goes that way.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from calving.records.payloads import Payloads
from calving.records.projection import Projection
from calving.version import __version__

SWITCH = "CALVING_NATIVE"
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
    DateType: "date",
    TimestampType: "timestamp",
    TimestamptzType: "timestamptz",
}
Described = tuple[str, str, list[Any]]
"""A field in the decoder's description: name, kind, and nested fields."""


def _installed() -> Any:
    try:
        return importlib.import_module("calving_native")
    except ImportError:
        return None


_NATIVE = _installed()


def absence() -> str | None:
    """Why there are no decoders in Rust; None: there are."""
    if os.environ.get(SWITCH) == "0":
        return f"switched off by {SWITCH} = 0"
    if _NATIVE is None:
        return "calving-native is not installed"
    if _NATIVE.__version__.split(".")[:2] != __version__.split(".")[:2]:
        return f"calving-native {_NATIVE.__version__} is of another version"
    return None


class NativeJson:
    """Objects that go to tables, or to the choice of one, as they are."""

    def __init__(self, decoder: Any) -> None:
        self._decoder = decoder
        self._resting, self._rest = 0, _REST

    def read(self, values: Sequence[bytes]) -> tuple[pa.StructArray, list[int]] | None:
        """Rows, and the places of the values that have none; None: these values had better go another way."""
        if self._resting:
            self._resting -= 1
            return None
        payloads = Payloads.of(values)
        if payloads.are_columns:
            rows, refused = self._decoder.decode_column(payloads.column)
        else:
            rows, refused = self._decoder.decode(payloads.items)
        if len(refused) * _RARE > len(values) > _FEW:
            self._resting, self._rest = self._rest, min(2 * self._rest, _REST_AT_MOST)
            return None
        self._rest = _REST
        return pa.array(rows), refused


def native_json(projection: Projection | None, nesting: int) -> NativeJson | None:
    """The decoder in Rust for this projection; None if there is none."""
    if absence() is not None or projection is None or not (projection.targets or projection.route):
        return None
    fields = _wanted(projection)
    if fields is None:
        return None
    return NativeJson(_NATIVE.JsonDecoder(fields, projection.unknown == "ignore", nesting))


def _wanted(projection: Projection) -> list[Described] | None:
    """The columns of all tables, and the route field; None: that is not one way of reading."""
    found: dict[str, Described] = {}
    if len(projection.targets) > 1 and projection.unknown != "ignore":
        return None
    for target in projection.targets:
        if not target.lookup(target.columns).is_exact:
            return None
        for field in fields_of(target.columns):
            if found.setdefault(field[0], field) != field:
                return None
    fields = list(found.values())
    return fields if projection.route is None else _with_route(fields, projection.route.split("."))


def _with_route(fields: list[Described], path: Sequence[str]) -> list[Described] | None:
    """Only a text column tells the text that stands in the record: of a number there are several."""
    name, *inner = path
    known = next((field for field in fields if field[0] == name), None)
    if known is not None and known[1] != ("struct" if inner else "string"):
        return None
    below = _with_route(known[2] if known is not None else [], inner) if inner else []
    if below is None:
        return None
    route = (name, "struct" if inner else "string", below)
    return [*fields, route] if known is None else [route if field is known else field for field in fields]


def fields_of(struct: StructType) -> list[Described]:
    """The columns in the decoder's description."""
    return [_described(field.name, field.field_type) for field in struct.fields]


def _described(name: str, kind: IcebergType) -> Described:
    match kind:
        case StructType():
            return name, "struct", fields_of(kind)
        case ListType():
            element = _described("element", kind.element_type)
            return (name, "list", [element]) if element[1] != "other" else (name, "other", [])
        case DecimalType() if 0 <= kind.scale <= kind.precision:
            return name, f"decimal({kind.precision},{kind.scale})", []
    return name, _KINDS.get(type(kind), "other"), []
