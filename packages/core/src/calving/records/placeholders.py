"""Values that a source has left out, for which Debezium writes a placeholder: large values of Postgres and Oracle that
did not change.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import reduce
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from calving.records.arrays import children_of, offsets_of
from calving.records.values import Objects

FieldPath = tuple[str, ...]
"""The names that lead to a field through objects."""


class Placeholder:
    """Finds the placeholder in all of its forms: as text; as bytes, also in Base64 or as hexadecimal digits; in an
    array of texts, bytes, or UUIDs; as an array of the numbers of its bytes; and as the only key of an hstore, also as
    JSON text.
    """

    def __init__(self, text: str) -> None:
        """``text``: Debezium's ``unavailable.value.placeholder``."""
        self._text, self._bytes = text, text.encode()
        raw = self._bytes
        as_texts = (base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode(), raw.hex())
        hstore = json.dumps({text: text}, ensure_ascii=False, separators=(",", ":"))
        self._texts = frozenset({text, hstore, *as_texts})
        uuid = UUID(bytes=hashlib.md5(raw, usedforsecurity=False).digest(), version=3)  # Java's nameUUIDFromBytes
        self._lists: tuple[list[Any], ...] = ([text], [str(uuid)], [uuid], [uuid.bytes], [as_texts[0]], [raw], [*raw])

    def found(self, data: pa.Array | Objects) -> Iterator[tuple[int, FieldPath]]:
        """The rows that have it in a field, and the names that lead to this field. A row may come several times."""
        if isinstance(data, list):
            for row, value in enumerate(data):
                yield from ((row, path) for path in self._paths(value) if path)
        elif isinstance(data, pa.StructArray):
            yield from self._in_struct(data, ())

    def _paths(self, value: Any, path: FieldPath = ()) -> Iterator[FieldPath]:
        if isinstance(value, Mapping) and [*value] != [self._text]:
            for name, item in value.items():
                yield from self._paths(item, (*path, name))
        elif isinstance(value, Mapping) or (value in self._texts if isinstance(value, str) else value in self._lists):
            yield path

    def _in_struct(self, column: Any, path: FieldPath) -> Iterator[tuple[int, FieldPath]]:
        for field, child in zip(column.type, children_of(column), strict=True):
            inner = (*path, field.name)
            if isinstance(child, pa.StructArray) and child.type.get_field_index(self._text) < 0:
                yield from self._in_struct(child, inner)
            else:
                yield from ((row, inner) for row in self._rows(child))

    def _rows(self, column: Any) -> list[int]:
        """The rows of a column of single values, lists, or maps."""
        if isinstance(column, pa.ExtensionArray):
            column = column.storage
        kind = column.type
        if pa.types.is_struct(kind):
            return self._only(column)
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            return _having(column, pc.binary_length(column), self._texts)
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            return _having(column, pc.binary_length(column), [self._bytes])
        if pa.types.is_map(kind):
            return _having(column, _lengths(column), [[(self._text, self._text)]])
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            inner = kind.value_type
            return _having(column, _lengths(column), self._lists) if _is_plain(inner) else []
        return []

    def _only(self, column: Any) -> list[int]:
        """The objects with no other field than the placeholder's; none of what Debezium writes as an object."""
        if column.type.get_field_index(self._text) < 0:
            return []
        has = (column.field(at).is_valid() for at, field in enumerate(column.type) if field.name != self._text)
        is_only = pc.invert(reduce(pc.or_, has, pa.repeat(pa.scalar(False), len(column))))
        rows: list[int] = pc.indices_nonzero(pc.and_(column.field(self._text).is_valid(), is_only)).to_pylist()
        return rows


def _is_plain(kind: pa.DataType) -> bool:
    """Whether these are texts, bytes, UUIDs or whole numbers."""
    if isinstance(kind, pa.BaseExtensionType):
        return _is_plain(kind.storage_type)
    is_binary = pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind)
    return bool(is_binary or pa.types.is_string(kind) or pa.types.is_integer(kind))


def _lengths(column: Any) -> pa.Array:
    """How many items each list or map has."""
    ends = offsets_of(column)
    return pc.subtract(ends.slice(1), ends.slice(0, len(column)))


def _having(column: Any, lengths: pa.Array, values: Any) -> list[int]:
    """The rows with one of the values. Few values have the length of one of these."""
    wanted = sorted({len(value.encode() if isinstance(value, str) else value) for value in values})
    span = pc.min_max(lengths)
    least, most = span["min"].as_py(), span["max"].as_py()
    if least is None or most < wanted[0] or least > wanted[-1]:
        return []
    rows = pc.indices_nonzero(pc.is_in(lengths, pa.array(wanted, lengths.type)))
    return [row for row, value in zip(rows.to_pylist(), column.take(rows).to_pylist(), strict=True) if value in values]
