"""Iceberg schemas seen from a record: look-up of fields, Arrow types, types inferred from values."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, MapType, NestedField, StructType

Json = Any


def arrow_schema(schema: Schema) -> pa.Schema:
    """The Arrow schema of a table's data files, field ids in the metadata."""
    return pa.schema([_small_field(field) for field in schema_to_pyarrow(schema, include_field_ids=True)])


def _small_field(field: pa.Field) -> pa.Field:
    return field.with_type(_small(field.type))


def _small(kind: pa.DataType) -> pa.DataType:
    """32-bit offsets instead of 64-bit ones; pyiceberg's own conversion drops the field ids of list elements."""
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return pa.list_(_small_field(kind.value_field))
    if pa.types.is_struct(kind):
        return pa.struct([_small_field(kind.field(i)) for i in range(kind.num_fields)])
    if pa.types.is_map(kind):
        return pa.map_(_small_field(kind.key_field), _small_field(kind.item_field))
    return kind


class Lookup:
    """Finds the column of a record's field, exactly or ignoring case."""

    def __init__(self, struct: StructType, case_insensitive: bool) -> None:
        self._fold = case_insensitive
        self._fields: dict[str, NestedField] = {self._key(f.name): f for f in struct.fields}

    def _key(self, name: str) -> str:
        return name.lower() if self._fold else name

    def find(self, name: str) -> NestedField | None:
        return self._fields.get(self._key(name))


def infer(value: object) -> Json | None:
    """The Iceberg type of a JSON value, as pyiceberg's JSON; None where it says nothing (null, empty)."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "long" if -(2**63) <= value < 2**63 else "decimal(38, 0)" if abs(value) < 10**38 else "string"
    if isinstance(value, float | Decimal):
        return "double"
    if isinstance(value, str):
        return "string"
    if isinstance(value, Mapping):
        fields = {str(name): kind for name, item in value.items() if (kind := infer(item)) is not None}
        return {"struct": fields} if fields else None
    if isinstance(value, list):
        element: Json | None = None
        for item in value:
            element = merge(element, infer(item))
        return {"list": element} if element is not None else None
    return None


def merge(a: Json | None, b: Json | None) -> Json | None:
    """The narrowest type that takes both. What nothing else takes together is text."""
    if a is None or b is None or a == b:
        return a if b is None else b
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        if "struct" in a and "struct" in b:
            names = [*a["struct"], *(n for n in b["struct"] if n not in a["struct"])]
            return {"struct": {n: merge(a["struct"].get(n), b["struct"].get(n)) for n in names}}
        if "list" in a and "list" in b:
            return {"list": merge(a["list"], b["list"])}
    numbers = {"long", "double", "decimal(38, 0)"}
    if isinstance(a, str) and isinstance(b, str) and {a, b} <= numbers:
        return "double" if "double" in (a, b) else "decimal(38, 0)"
    return "string"


def contains_map(kind: object) -> bool:
    """Whether a type holds a map anywhere."""
    match kind:
        case MapType():
            return True
        case StructType():
            return any(contains_map(f.field_type) for f in kind.fields)
        case ListType():
            return contains_map(kind.element_type)
    return False
