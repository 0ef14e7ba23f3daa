"""Parquet data files: field ids, row groups bounded by the table's properties, dictionaries and delta encodings if they
pay off, and Bloom filters.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import OutputStream
from pyiceberg.io.pyarrow import parquet_path_to_id_mapping
from pyiceberg.schema import Schema

from calving.errors import ConfigError
from calving.records.arrays import children_of, entries, items_of, joined
from calving.records.fields import arrow_schema
from calving.records.foreign import geo_types, variant_ids
from calving.writing.formats.footers import VARIANT_NODE, geo_node, with_nodes
from calving.writing.formats.interface import BOUNDED, Bounds, Ending, FileFormat, FileWriter, Part
from calving.writing.properties import WriteProperties

_CODECS = {"uncompressed": "none"}
_ROW_GROUP_BYTES = 32 * 1024 * 1024
"""The largest row group, in bytes before encoding. A larger one would take more memory, and would not make files faster
to read.
"""
_ROW_GROUP_ROWS_AT_LEAST = 1000
_FPP = 0.01
_SAMPLE = 4096
_SHORT_SHARE, _LONG_SHARE = 0.75, 0.9
"""A dictionary pays off if at most this share of the sampled values is distinct, for short and for long values.
Repeated long values save more. Measured with zstd, on values that are drawn from pools and on values that follow Zipf's
law.
"""
_LONG_BYTES = 16
_INTEGER_DIGITS = 18
"""Decimals of at most this precision are stored as integers."""
_FLOATS = ("FLOAT", "DOUBLE")


class ParquetWriter(FileWriter):
    def __init__(self, out: OutputStream, table: Parquet) -> None:
        self._out, self._table = out, table
        self._ended = _Ended(out) if table.nodes else None
        self._sink: Any = out if self._ended is None else self._ended
        self._opened: pq.ParquetWriter | None = None
        self._buffered = 0

    def _writer(self, rows: pa.Table | None) -> pq.ParquetWriter:
        """The writer, opened with the first rows of the file. These rows show in which columns values repeat."""
        if self._opened is None:
            encodings = self._table.encodings([] if rows is None else _leaves(joined(rows.slice(0, _SAMPLE))))
            self._opened = pq.ParquetWriter(self._sink, self._table.schema, **encodings, **self._table.options)
        return self._opened

    def write(self, rows: pa.Table) -> None:
        per_row = max(1, rows.nbytes // max(1, rows.num_rows))
        by_bytes = max(_ROW_GROUP_ROWS_AT_LEAST, self._table.row_group_bytes // per_row)
        self._writer(rows).write_table(rows, min(self._table.row_group_rows, by_bytes))
        self._buffered += rows.nbytes

    def size(self) -> int:
        return max(self._out.tell(), self._buffered // 4)

    def close(self) -> Ending:
        writer = self._writer(None)
        if self._ended is not None:
            self._ended.hold()
        writer.close()
        if self._ended is not None:
            self._ended.write_end(self._table.nodes)
        size = self._out.tell()
        metadata, ids = writer.writer.metadata, self._table.ids
        sizes: Counter[int] = Counter()
        splits, parts = [], []
        for group in map(metadata.row_group, range(metadata.num_row_groups)):
            chunks = [*map(group.column, range(group.num_columns))]
            columns = {ids[column.path_in_schema]: column for column in chunks}
            splits.append(min(map(_start, chunks)))
            for column in chunks:
                sizes[ids[column.path_in_schema]] += column.total_compressed_size
            bounded = ((field_id, columns[field_id]) for field_id in self._table.bounded)
            parts.append(Part(group.num_rows, {i: bounds(column) for i, column in bounded if has_values(column)}))
        return Ending(size, dict(sizes), tuple(sorted(splits)) or None, parts)


class _Ended:
    """The stream to which Arrow writes a file of which the end is changed before it is written."""

    closed = False

    def __init__(self, out: OutputStream) -> None:
        self._out = out
        self._held: list[bytes] | None = None

    def hold(self) -> None:
        """Hold what is written from now on."""
        self._held = []

    def write(self, data: Any) -> int:
        if self._held is None:
            return self._out.write(data)
        self._held.append(bytes(data))
        return len(data)

    def write_end(self, nodes: Mapping[int, bytes]) -> None:
        """Write what was held, with the columns of these ids marked as these logical types."""
        self._out.write(with_nodes(b"".join(self._held or ()), nodes))

    def tell(self) -> int:
        return self._out.tell() + sum(map(len, self._held or ()))

    def flush(self) -> None:
        """Nothing is kept here but the end."""


def has_values(column: Any) -> bool:
    """Whether a column chunk may have a value that is neither null nor NaN."""
    known = column.statistics
    return known is None or known.has_min_max or (known.num_values > 0 and column.physical_type not in _FLOATS)


def bounds(column: Any) -> Bounds | None:
    """The bounds of a column chunk; None if Arrow has left them out, as it does if one of them is long."""
    known = column.statistics
    return (known.min, known.max) if known is not None and known.has_min_max else None


def _start(column: Any) -> int:
    """The offset at which a column chunk starts: the offset of its dictionary, if it has one."""
    dictionary = column.dictionary_page_offset if column.has_dictionary_page else None
    return int(column.data_page_offset if dictionary is None else min(dictionary, column.data_page_offset))


def _repeats(column: pa.Array) -> bool:
    """Whether a dictionary pays off for a column, judged by the first of its rows.

    A dictionary of values that hardly repeat costs twice: each value is looked up in a hash table until the dictionary
    is full, and indices compress worse than values that resemble their neighbours. If values repeat, a dictionary saves
    both. Every reader of Iceberg tables accepts dictionaries and plain values, also old vectorised readers.
    """
    valid = len(column) - column.null_count
    if not valid:
        return True
    return bool(pc.count_distinct(column).as_py() <= valid * (_LONG_SHARE if _is_long(column) else _SHORT_SHARE))


def _is_long(column: pa.Array) -> bool:
    return column.nbytes >= _LONG_BYTES * len(column)


def _delta(column: pa.Array) -> str | None:
    """The delta encoding that pays off for a column without a dictionary. The lengths of long text stand before all
    text then, instead of between the values, where they delay compression. For short text that hardly matters.
    """
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_temporal(kind) or _is_integer_decimal(kind):
        return "DELTA_BINARY_PACKED"
    is_text = pa.types.is_string(kind) or pa.types.is_binary(kind)
    return "DELTA_LENGTH_BYTE_ARRAY" if is_text and _is_long(column) else None


def _is_integer_decimal(kind: pa.DataType) -> bool:
    return pa.types.is_decimal(kind) and kind.precision <= _INTEGER_DIGITS


Leaves = Iterable[tuple[str, pa.Array]]
"""Columns without nested columns, by their paths in a file."""


def _leaves(rows: pa.RecordBatch) -> Iterator[tuple[str, pa.Array]]:
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        yield from _leaves_of(column, name)


def _leaves_of(column: pa.Array, path: str) -> Iterator[tuple[str, pa.Array]]:
    if isinstance(column, pa.StructArray):
        for field, child in zip(column.type, children_of(column), strict=True):
            yield from _leaves_of(child, f"{path}.{field.name}")
    elif isinstance(column, pa.MapArray):
        for name, inner in zip(("key", "value"), entries(column), strict=True):
            yield from _leaves_of(inner, f"{path}.key_value.{name}")
    elif isinstance(column, pa.ListArray):
        yield from _leaves_of(items_of(column), f"{path}.list.element")
    else:
        yield path, column.storage if isinstance(column, pa.ExtensionArray) else column


def _bloom_filters(properties: WriteProperties) -> dict[str, Any]:
    wanted: dict[str, dict[str, float]] = {}
    for column, enabled in properties.bloom_by_column.items():
        if enabled:
            fpp = properties.bloom_fpp_by_column.get(column, _FPP)
            # The most distinct values for which a split-block filter of the largest allowed size keeps this rate.
            most = int(-properties.bloom_bytes * math.log(1 - fpp ** (1 / 8)))
            wanted[column] = {"ndv": max(1, min(most, 1024 * 1024)), "fpp": fpp}
    return {"bloom_filter_options": wanted} if wanted else {}


class Parquet(FileFormat):
    name = "parquet"
    holds_variants = True
    measures_up_to = 4096  # Arrow leaves the bounds of a row group out if one of them is longer.

    def __init__(self, schema: Schema, properties: WriteProperties) -> None:
        self.schema = arrow_schema(schema)
        for field in self.schema:
            _refuse_empty(field)
        variants, geo = variant_ids(schema.as_struct()), geo_types(schema.as_struct())
        self.nodes = dict.fromkeys(variants, VARIANT_NODE) | {i: geo_node(kind) for i, kind in geo.items()}
        self.ids = _ids(schema, variants)
        self.bounded = {i for i in self.ids.values() if isinstance(schema.find_type(i), BOUNDED)}
        self.row_group_bytes = min(properties.row_group_bytes, _ROW_GROUP_BYTES)
        self.row_group_rows = properties.row_group_rows
        self._dictionaries = properties.dictionaries
        self._deltas = properties.page_version in ("v2", "2")
        self.options = {
            "data_page_version": "2.0" if self._deltas else "1.0",
            "compression": _CODECS.get(properties.parquet_codec, properties.parquet_codec),
            "compression_level": properties.parquet_level,
            "data_page_size": properties.page_bytes,
            "max_rows_per_page": properties.page_rows,
            "dictionary_pagesize_limit": properties.dictionary_bytes,
            "store_decimal_as_integer": True,
            # Geometries have no order: the specification of Parquet allows no least and greatest value of them.
            "write_statistics": not geo or [path for path, i in self.ids.items() if i not in geo] or False,
            **_bloom_filters(properties),
        }

    def open(self, out: OutputStream) -> FileWriter:
        return ParquetWriter(out, self)

    def encodings(self, leaves: Leaves) -> dict[str, Any]:
        """The arguments for Arrow's writer that say how a file's columns are encoded. ``leaves``: its first rows."""
        dictionaries, deltas = [], {}
        for path, column in leaves:
            if self._dictionaries or (self._dictionaries is None and _repeats(column)):
                dictionaries.append(path)
            elif self._deltas and (encoding := _delta(column)) is not None:
                deltas[path] = encoding
        return {"use_dictionary": dictionaries or False, "column_encoding": deltas or None}


def _ids(schema: Schema, variants: Collection[int]) -> dict[str, int]:
    """The ids of columns by their paths in a file. Both parts of a variant have its id."""
    ids = parquet_path_to_id_mapping(schema)
    parts = {f"{path}.{part}": i for path, i in ids.items() if i in variants for part in ("metadata", "value")}
    return {path: i for path, i in ids.items() if i not in variants} | parts


def _refuse_empty(field: pa.Field, above: str = "") -> None:
    path = above + field.name
    if pa.types.is_struct(field.type) and not field.type.num_fields:
        raise ConfigError(
            f"column '{path}': Parquet files cannot hold a struct without fields; add a field to it,"
            " or set write.format.default = orc or avro for the table"
        )
    if pa.types.is_nested(field.type):
        for i in range(field.type.num_fields):
            _refuse_empty(field.type.field(i), f"{path}.")
