"""Searches data files of one table in a task. The payload and the answer are text (L5)."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.io import load_file_io
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.types import NestedField, PrimitiveType

from calving.mutations.columns import Column, ColumnReader, File
from calving.mutations.keys import ChangedKeys, Matches

_ROW = "row"


class Tasks(Protocol):
    """Runs tasks on the sink's engine, which other jobs use as well."""

    @property
    def slots(self) -> int:
        """Tasks that run at the same time."""

    def map(self, function: Callable[[str], str], payloads: Sequence[str]) -> list[str]:
        """The function's result for each payload, in order. A payload may be attempted several times."""


@dataclass(frozen=True, slots=True)
class KeyLookup:
    """The payload of a task: search ``files`` for the keys of ``key_files``.

    ``ids``: how many of the ``columns`` identify a row; an order column may follow. Each file has a path, a format, and
    the columns, by id, that have one value in its partition.
    """

    io: Mapping[str, str]
    location: str
    columns: tuple[Column, ...]
    ids: int
    key_files: tuple[File, ...]
    files: tuple[tuple[str, str, Mapping[int, Any]], ...]
    mapping: NameMapping | None = None

    def to_json(self) -> str:
        return json.dumps(
            {
                "io": dict(self.io),
                "location": self.location,
                "columns": [_to_json(column) for column in self.columns],
                "ids": self.ids,
                "key_files": self.key_files,
                "files": [(path, file_format, self._encoded(of)) for path, file_format, of in self.files],
                "mapping": None if self.mapping is None else self.mapping.model_dump(mode="json"),
            }
        )

    @staticmethod
    def from_json(text: str) -> KeyLookup:
        raw: dict[str, Any] = json.loads(text)
        columns = tuple(map(_column, raw["columns"]))
        kinds = {column.field_id: column.kind for column in columns}
        return KeyLookup(
            io=raw["io"],
            location=raw["location"],
            columns=columns,
            ids=raw["ids"],
            key_files=tuple((path, file_format) for path, file_format in raw["key_files"]),
            files=tuple((path, file_format, _decoded(of, kinds)) for path, file_format, of in raw["files"]),
            mapping=None if raw["mapping"] is None else NameMapping.model_validate(raw["mapping"]),
        )

    def _encoded(self, constants: Mapping[int, Any]) -> dict[int, str | None]:
        """Values as text: their single-value serialization, in hexadecimal digits."""
        kinds = {column.field_id: column.kind for column in self.columns}
        return {
            each: None if value is None else to_bytes(kinds[each], value).hex() for each, value in constants.items()
        }


def _decoded(constants: Mapping[str, str | None], kinds: Mapping[int, PrimitiveType]) -> dict[int, Any]:
    return {
        int(each): None if value is None else from_bytes(kinds[int(each)], bytes.fromhex(value))
        for each, value in constants.items()
    }


def _to_json(column: Column) -> dict[str, Any]:
    field = NestedField(
        column.field_id, column.name, column.kind, required=False, initial_default=column.default
    ).model_dump(mode="json")
    return {"field": field, "parent": column.parent}


def _column(raw: Mapping[str, Any]) -> Column:
    field = NestedField.model_validate(raw["field"])
    if not isinstance(field.field_type, PrimitiveType):
        raise TypeError(f"column {field.name} is {field.field_type}")
    return Column(field.field_id, field.field_type, field.initial_default, raw["parent"], field.name)


def look(text: str) -> str:
    """The task: finds in each file the rows that have one of the keys."""
    lookup = KeyLookup.from_json(text)
    io = load_file_io(dict(lookup.io), lookup.location)
    reading = ColumnReader(io, lookup.columns, tuple(lookup.mapping.root) if lookup.mapping is not None else ())
    own = ColumnReader(io, lookup.columns[: lookup.ids])
    keys = ChangedKeys(own.columns, [own.all_of(lookup.key_files)])
    return json.dumps([_packed(_found(keys, reading.within(of).batches(*file))) for *file, of in lookup.files])


def matches(answer: str, keys: Sequence[ChangedKeys]) -> Iterator[Matches]:
    """The matches in a task's answer. ``keys``: the keys that were searched for in each file."""
    for packed, wanted in zip(json.loads(answer), keys, strict=True):
        with pa.ipc.open_stream(base64.b64decode(packed)) as stream:
            rows = stream.read_all().combine_chunks()
        matched = wanted.found_in(rows.drop_columns(_ROW).to_batches())
        places = rows.column(_ROW).combine_chunks()
        yield Matches(places.take(matched.rows), matched.keys, matched.orders)


def _found(keys: ChangedKeys, batches: Iterator[pa.RecordBatch]) -> pa.Table:
    """For each row that has one of the keys: its key, its order value, and its position in the file."""
    matched = keys.found_in(batches)
    table = pa.Table.from_batches([keys.rows.take(matched.keys)])
    if len(matched.orders):
        table = table.append_column("order", matched.orders)
    return table.append_column(_ROW, matched.rows)


def _packed(table: pa.Table) -> str:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return base64.b64encode(sink.getvalue()).decode()
