"""Whole columns of an Avro data file, found by field id."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, cast
from uuid import UUID

import fastavro
import pyarrow as pa
from pyiceberg.table.name_mapping import MappedField
from pyiceberg.types import DecimalType, IcebergType, ListType, MapType, NestedField, PrimitiveType, StructType

from calving.errors import TableTroubleError
from calving.mutations.avro import fields_of, id_of, strip_logical_types
from calving.mutations.widening import widened
from calving.records.arrays import build
from calving.writing.avro_types import primitive
from calving.writing.keys import scaled

_Read = Callable[[Any], Any]
"""Makes the value of a column from a value of the file."""
_WIDER = {("int", "long"), ("float", "double")}
_FIRST_ROWS = 256
"""So many rows tell how large the rows of a file are."""


def columns(
    stream: Any,
    wanted: StructType,
    kinds: pa.Schema,
    mapped: Sequence[MappedField],
    at_once: Callable[[int, int], int],
) -> Iterator[tuple[list[pa.Array | None], int]]:
    """The wanted columns, in the types of ``kinds``, and how many rows they have. None stands for a column that the
    file does not have. ``at_once``: how many rows are read at a time if so many rows have so many bytes.

    :raises TableTroubleError: the file has a type that the table's does not hold exactly.
    """
    reader = fastavro.reader(stream)
    given = _Written(reader.writer_schema).fields(reader.writer_schema, wanted, mapped)
    # Without logical types fastavro reads numbers and bytes. Python has no dates after the year 9999.
    strip_logical_types(reader.writer_schema)
    rows_of_file = cast(Iterator[Mapping[str, Any]], reader)
    count = _FIRST_ROWS
    while records := list(islice(rows_of_file, count)):
        arrays: list[pa.Array | None] = []
        for field, kind in zip(wanted.fields, kinds, strict=True):
            name, read = given.get(field.field_id, ("", None))
            values = None if read is None else [read(record[name]) for record in records]
            arrays.append(None if values is None else build(values, kind.type, _leaf))
        yield arrays, len(records)
        count = at_once(len(records), sum(array.nbytes for array in arrays if array is not None))


def _leaf(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    storage = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    if pa.types.is_temporal(storage):
        return pa.array(values, pa.int32() if storage.bit_width == 32 else pa.int64()).cast(storage)
    return widened(pa.array(values, storage), kind)


class _Written:
    """The schema of a file."""

    def __init__(self, schema: Any) -> None:
        self._named: dict[str, Mapping[str, Any]] = {}
        self._learn(schema)

    def fields(self, schema: Any, wanted: StructType, mapped: Sequence[MappedField]) -> dict[int, tuple[str, _Read]]:
        """The wanted fields that a record has, by id: the name of each, and how it is read."""
        given = self._declared(schema)["fields"]
        known = {field["name"]: next((one for one in mapped if field["name"] in one.names), None) for field in given}
        ids = {field.get("field-id", id_of(known[field["name"]])): field for field in given}
        if ids.keys() <= {None}:
            raise TableTroubleError(
                "its columns have no field ids, and the table has no name mapping (schema.name-mapping.default)"
            )
        return {
            each.field_id: (
                field["name"],
                self._read(field["type"], each.field_type, fields_of(known[field["name"]]), each.name),
            )
            for each in wanted.fields
            if (field := ids.get(each.field_id)) is not None
        }

    def _read(self, schema: Any, wanted: IcebergType, mapped: Sequence[MappedField], name: str) -> _Read:
        kind = self._declared(schema)
        match wanted, kind["type"]:
            case StructType(), "record":
                return _struct(self.fields(kind, wanted, mapped), wanted)
            case ListType(), "array":
                return _items(self._read(kind["items"], wanted.element_type, _below(mapped, "element"), name))
            case MapType(), "array":
                pair = {field["name"]: field["type"] for field in self._declared(kind["items"]).get("fields", ())}
                if pair.keys() == {"key", "value"}:
                    key = self._read(pair["key"], wanted.key_type, _below(mapped, "key"), name)
                    return _pairs(key, self._read(pair["value"], wanted.value_type, _below(mapped, "value"), name))
            case MapType(), "map":
                return _entries(self._read(kind["values"], wanted.value_type, _below(mapped, "value"), name))
        if isinstance(wanted, PrimitiveType) and (read := _primitive(kind, wanted)) is not None:
            return read
        said = kind.get("logicalType", kind["type"])
        raise TableTroubleError(f"column {name} is {said} in the file, which is not exactly {wanted}")

    def _learn(self, schema: Any) -> None:
        """The named types, which a schema declares once."""
        for inner in schema if isinstance(schema, list) else [*schema.values()] if isinstance(schema, dict) else ():
            self._learn(inner)
        if isinstance(schema, dict) and schema.get("type") in ("fixed", "record"):
            self._named[schema["name"]] = dict(schema)

    def _declared(self, schema: Any) -> Mapping[str, Any]:
        """The type without null, and without names of types. What it says stays when the schema is stripped."""
        options = [each for each in schema if each != "null"] if isinstance(schema, list) else [schema]
        if len(options) > 1:
            raise TableTroubleError("it has a union of several types")
        kind = options[0] if options else "null"
        if isinstance(kind, str):
            return self._named.get(kind, {"type": kind})
        return dict(kind) if isinstance(kind["type"], str) else self._declared(kind["type"])


def _primitive(kind: Mapping[str, Any], wanted: PrimitiveType) -> _Read | None:
    """How a value is read; None if the column's type does not hold it exactly."""
    logical = str(kind.get("logicalType", "")).removeprefix("local-")
    if isinstance(wanted, DecimalType):
        scale = kind.get("scale", 0)
        fits = logical == "decimal" and scale == wanted.scale and kind["precision"] <= wanted.precision
        return _decimal(scale) if fits else None
    told = primitive(wanted)
    other: Mapping[str, Any] = {"type": told} if isinstance(told, str) else told
    is_same = kind["type"] == other["type"] or (kind["type"], other["type"]) in _WIDER
    is_same = is_same and logical == other.get("logicalType", "") and kind.get("size") == other.get("size")
    return _as_it_is if is_same else None


def _as_it_is(value: Any) -> Any:
    return value


def _decimal(scale: int) -> _Read:
    return lambda value: None if value is None else scaled(int.from_bytes(value, "big", signed=True), scale)


def _struct(given: Mapping[int, tuple[str, _Read]], wanted: StructType) -> _Read:
    missing = {field.name: _default(field) for field in wanted.fields if field.field_id not in given}
    reads = [(field.name, *given[field.field_id]) for field in wanted.fields if field.field_id in given]
    return lambda value: None if value is None else {**missing, **{own: read(value[name]) for own, name, read in reads}}


def _default(field: NestedField) -> Any:
    if field.initial_default is None and field.required:
        raise TableTroubleError(f"it lacks the required column {field.name}")
    return field.initial_default.bytes if isinstance(field.initial_default, UUID) else field.initial_default


def _items(read: _Read) -> _Read:
    return lambda value: None if value is None else [read(item) for item in value]


def _pairs(key: _Read, item: _Read) -> _Read:
    return lambda value: None if value is None else [(key(pair["key"]), item(pair["value"])) for pair in value]


def _entries(item: _Read) -> _Read:
    return lambda value: None if value is None else [(key, item(inner)) for key, inner in value.items()]


def _below(mapped: Sequence[MappedField], name: str) -> Sequence[MappedField]:
    return fields_of(next((field for field in mapped if name in field.names), None))
