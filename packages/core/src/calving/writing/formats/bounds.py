"""Reads the bounds of text and binary columns of Parquet files again, where they may be wrong.

A version of calving before 0.2.0 took the bounds of a row group from Arrow's statistics also where Arrow had left them
out, because one of them was longer than 4,096 bytes. Only the values of such a row group tell its bounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO

from calving.writing.formats.metrics import bytes_not_below, text_not_below
from calving.writing.formats.parquet import bounds, has_values

_WIDTH = 16
"""The length of a new bound, in characters or bytes, if the wrong one is not longer."""
_ROWS_AT_ONCE = 1024
_ARROW = "parquet-cpp-arrow"
_FIELD_ID = b"PARQUET:field_id"
_FIRST_RIGHT = (0, 2)

Stored = Mapping[int, bytes]


def are_right_by(version: str | None) -> bool:
    """Whether files that a version of calving has written have right bounds. None: a version before 0.2.0, or another
    writer.
    """
    parts = (version or "").split(".")
    try:
        return (int(parts[0]), int(parts[1])) >= _FIRST_RIGHT
    except (IndexError, ValueError):
        return False


@dataclass(frozen=True, slots=True)
class RightBounds:
    """All bounds of a file, of which those of ``columns`` were wrong."""

    lower: Stored
    upper: Stored
    columns: frozenset[int]


def right_bounds(io: FileIO, path: str, lower: Stored, upper: Stored) -> RightBounds | None:
    """The right bounds of a Parquet file; None if none of these bounds excludes a value of the file. Reads the file's
    end, and values only of row groups without statistics.

    :raises Exception: whatever reading the file raises.
    """
    with io.new_input(path).open() as stream, pq.ParquetFile(stream) as file:
        if not str(file.metadata.created_by).startswith(_ARROW):
            return None
        mended = {column.field_id: column for column in _columns(file, lower.keys() | upper.keys())}
        wrong = {i for i, column in mended.items() if not column.is_within(lower.get(i), upper.get(i))}
    if not wrong:
        return None
    below, above = dict(lower), dict(upper)
    for field_id in wrong:
        column = mended[field_id]
        below[field_id] = column.lower(lower.get(field_id))
        greatest = column.upper(upper.get(field_id))
        above.pop(field_id, None)
        above |= {} if greatest is None else {field_id: greatest}
    return RightBounds(below, above, frozenset(wrong))


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of a file, and its least and greatest value."""

    field_id: int
    least: str | bytes
    greatest: str | bytes

    def is_within(self, lower: bytes | None, upper: bytes | None) -> bool:
        # UTF-8 has the order of the characters.
        return (lower is None or lower <= _encoded(self.least)) and (upper is None or upper >= _encoded(self.greatest))

    def lower(self, before: bytes | None) -> bytes:
        return _encoded(self.least[: _width(before)])

    def upper(self, before: bytes | None) -> bytes | None:
        if isinstance(self.greatest, bytes):
            return bytes_not_below(self.greatest, _width(before))
        text = text_not_below(self.greatest, _width(before))
        return None if text is None else text.encode()


def _width(before: bytes | None) -> int:
    return max(_WIDTH, len(before or b""))


def _encoded(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()


def _columns(file: pq.ParquetFile, ids: set[int]) -> Iterator[_Column]:
    """Of these columns, the text and binary columns that have values."""
    metadata = file.metadata
    places = {metadata.schema.column(i).path: i for i in range(metadata.num_columns)}
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    for field_id, path in _paths(list(file.schema_arrow)):
        if field_id not in ids:
            continue
        chunks = [group.column(places[".".join(path)]) for group in groups]
        unknown = [i for i, chunk in enumerate(chunks) if has_values(chunk) and bounds(chunk) is None]
        ends = [known for chunk in chunks if (known := bounds(chunk)) is not None]
        ends += _read(file, path, unknown) if unknown else ()
        if ends:
            yield _Column(field_id, min(low for low, _ in ends), max(high for _, high in ends))


def _paths(fields: Sequence[pa.Field], above: tuple[str, ...] = ()) -> Iterator[tuple[int, tuple[str, ...]]]:
    """The ids of text and binary columns that are not in lists or maps, and the names that lead to them."""
    for field in fields:
        said = (field.metadata or {}).get(_FIELD_ID)
        path = (*above, field.name)
        if pa.types.is_struct(field.type):
            yield from _paths([field.type.field(i) for i in range(field.type.num_fields)], path)
        elif said is not None and (pa.types.is_string(field.type) or pa.types.is_binary(field.type)):
            yield int(said), path


def _read(file: pq.ParquetFile, path: Sequence[str], groups: Sequence[int]) -> Iterator[tuple[str, str]]:
    """The least and the greatest value of each part of these row groups that has values."""
    for batch in file.iter_batches(_ROWS_AT_ONCE, row_groups=groups, columns=[".".join(path)], use_threads=False):
        column = batch.column(batch.schema.get_field_index(path[0]))
        for name in path[1:]:
            column = pc.struct_field(column, name)
        ends = pc.min_max(column)
        if ends["min"].is_valid:
            yield ends["min"].as_py(), ends["max"].as_py()
