"""Avro data files, written row by row, with field ids in the schema."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from itertools import pairwise
from typing import Any

import fastavro
import pyarrow as pa
from fastavro.write import Writer
from pyiceberg.io import OutputStream
from pyiceberg.schema import Schema

from calving.errors import ConfigError
from calving.records.arrays import children_of, entries, items_of, offsets_of
from calving.writing.avro_types import record
from calving.writing.formats.interface import Ending, FileFormat, FileWriter
from calving.writing.properties import WriteProperties

_CODECS = {"gzip": "deflate", "zstd": "zstandard", "uncompressed": "null", "snappy": "snappy"}
_NUMBERS = (
    (pa.types.is_timestamp, pa.int64()),
    (pa.types.is_time, pa.int64()),
    (pa.types.is_date, pa.int32()),
)
"""Dates and times are passed as the numbers that Avro stores, because fastavro takes a time without a zone for local
time.
"""


class AvroWriter(FileWriter):
    def __init__(self, out: OutputStream, table: Avro) -> None:
        self._out = out
        # fastavro only calls ``write`` of ``out``.
        self._writer = Writer(out, table.schema, **table.options)  # type: ignore[arg-type]

    def write(self, rows: pa.Table) -> None:
        names = rows.schema.names
        for batch in rows.to_batches():
            for row in zip(*map(_values, batch.columns), strict=True):
                self._writer.write(dict(zip(names, row, strict=True)))

    def size(self) -> int:
        return self._out.tell()

    def close(self) -> Ending:
        self._writer.flush()
        return Ending(self._out.tell())


def _values(column: pa.Array) -> Sequence[Any]:
    """Python values for fastavro. Maps are lists of entries, which the spec allows for keys of any type."""
    if isinstance(column, pa.ExtensionArray):
        return _values(column.storage)
    if isinstance(column, pa.StructArray):
        children = [_values(child) for child in children_of(column)]
        rows = [dict(zip(column.type.names, row, strict=True)) for row in zip(*children, strict=True)]
        return _nulled(rows or [{}] * len(column), column)
    if isinstance(column, pa.MapArray):
        keys, values = map(_values, entries(column))
        return _cut([{"key": k, "value": v} for k, v in zip(keys, values, strict=True)], column)
    if isinstance(column, pa.ListArray):
        return _cut(_values(items_of(column)), column)
    number = next((wanted for accepts, wanted in _NUMBERS if accepts(column.type)), None)
    return (column if number is None else column.cast(number)).to_pylist()


def _cut(items: Sequence[Any], column: pa.ListArray) -> Sequence[Any]:
    """The items, divided by the list or map to which they belong."""
    ends = offsets_of(column).to_pylist()
    return _nulled([items[start:end] for start, end in pairwise(ends)], column)


def _nulled(rows: Sequence[Any], column: pa.Array) -> Sequence[Any]:
    if not column.null_count:
        return rows
    return [row if valid else None for row, valid in zip(rows, column.is_valid().to_pylist(), strict=True)]


class Avro(FileFormat):
    name = "avro"

    def __init__(self, schema: Schema, properties: WriteProperties) -> None:
        self.schema = fastavro.parse_schema(record(schema.as_struct(), "table"))
        self.options: dict[str, Any] = {
            "codec": _CODECS[properties.avro_codec],
            "compression_level": properties.avro_level,
            "metadata": {"iceberg.schema": schema.model_dump_json()},
        }
        try:
            self.open(BytesIO())
        except ValueError as error:
            raise ConfigError(f"write.avro.compression-codec = {properties.avro_codec}: {error}") from error

    def open(self, out: OutputStream) -> FileWriter:
        return AvroWriter(out, self)
