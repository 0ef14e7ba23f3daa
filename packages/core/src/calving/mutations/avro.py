"""A few columns of an Avro data file, found by field id, in the Arrow types of their Avro types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import fastavro
import pyarrow as pa
from pyiceberg.table.name_mapping import MappedField

from calving.writing.keys import scaled

_PLAIN: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
}
_TIMES: Mapping[str, pa.DataType] = {
    "date": pa.date32(),
    "time-millis": pa.time32("ms"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("ms"),
    "timestamp-micros": pa.timestamp("us"),
    "timestamp-nanos": pa.timestamp("ns"),
}
_Place = tuple[str, ...]
"""The names that lead to a field through its records; empty if the file does not have the field."""


@dataclass(frozen=True, slots=True)
class RowChunk:
    """Some rows of a file. For each column: its values, or None and whether the record around it is not null; both are
    None if the file has neither.
    """

    rows: int
    columns: Sequence[tuple[pa.Array | None, pa.Array | None]]


def columns(
    stream: Any, ids: Sequence[tuple[int, int | None]], mapped: Sequence[MappedField], rows: int
) -> Iterator[RowChunk]:
    """The columns with these ids, about ``rows`` rows at a time. Beside each id is the id of the record whose nulls are
    needed if the file does not have the column.
    """
    reader = fastavro.reader(stream)
    written = _Written(reader.writer_schema, mapped)
    own = [written.places.get(each, ()) for each, _ in ids]
    around = [
        () if place or above is None else written.places.get(above, ())
        for place, (_, above) in zip(own, ids, strict=True)
    ]
    kinds = [written.kind(place) if place else {} for place in own]
    # Without logical types fastavro reads numbers and bytes. Python has no dates after the year 9999.
    strip_logical_types(reader.writer_schema)
    while records := list(islice(reader, rows)):
        yield RowChunk(
            len(records),
            [
                (
                    _array([_at(record, place) for record in records], kind) if place else None,
                    pa.array([_at(record, above) is not None for record in records]) if above else None,
                )
                for place, above, kind in zip(own, around, kinds, strict=True)
            ],
        )


class _Written:
    """The schema of a file: the place of each field id, and the type at each place."""

    def __init__(self, schema: Any, mapped: Sequence[MappedField]) -> None:
        self.places: dict[int, _Place] = {}
        self._kinds: dict[_Place, dict[str, Any]] = {}
        self._named: dict[str, dict[str, Any]] = {}
        self._walk(schema, (), mapped)

    def kind(self, place: _Place) -> dict[str, Any]:
        """The type at a place, as it was declared: without null, and without names of types."""
        return self._kinds[place]

    def _walk(self, schema: Any, place: _Place, mapped: Sequence[MappedField]) -> None:
        kind = self._declared(schema)
        self._kinds[place] = kind
        if kind["type"] == "array":
            self._walk(kind["items"], (*place, "[]"), ())
        elif kind["type"] == "map":
            self._walk(kind["values"], (*place, "{}"), ())
        for field in kind["fields"] if kind["type"] == "record" else ():
            known = next((each for each in mapped if field["name"] in each.names), None)
            here = (*place, field["name"])
            field_id = field.get("field-id", id_of(known))
            if field_id is not None and not {"[]", "{}"} & {*place}:
                self.places.setdefault(field_id, here)
            self._walk(field["type"], here, fields_of(known))

    def _declared(self, schema: Any) -> dict[str, Any]:
        options = schema if isinstance(schema, list) else [schema]
        (kind, *_) = [each for each in options if each != "null"] or ["null"]
        if isinstance(kind, str):
            return self._named.get(kind, {"type": kind})
        if kind["type"] == "fixed":
            self._named[kind["name"]] = dict(kind)
        return dict(kind)


def strip_logical_types(schema: Any) -> None:
    """Take the logical types out of the schema of a reader, which then reads numbers and bytes."""
    for inner in schema if isinstance(schema, list) else [*schema.values()] if isinstance(schema, dict) else ():
        strip_logical_types(inner)
    if isinstance(schema, dict):
        schema.pop("logicalType", None)


def _array(values: list[Any], kind: Mapping[str, Any]) -> pa.Array:
    logical = str(kind.get("logicalType")).removeprefix("local-")
    if logical == "decimal":
        scale = kind.get("scale", 0)
        decimals = (
            None if each is None else scaled(int.from_bytes(each, "big", signed=True), scale) for each in values
        )
        return pa.array([*decimals], pa.decimal128(kind["precision"], scale))
    array = pa.array(values, _PLAIN[kind["type"]])
    return array.cast(_TIMES[logical]) if logical in _TIMES else array


def _at(record: Any, place: _Place) -> Any:
    for name in place:
        record = None if record is None else record[name]
    return record


def id_of(known: MappedField | None) -> int | None:
    """The id that a name mapping gives to a field."""
    # Compare with None: a mapped field without fields of its own is false.
    return known.field_id if known is not None else None


def fields_of(known: MappedField | None) -> Sequence[MappedField]:
    """The inner fields of a name mapping."""
    return known.fields if known is not None else ()
