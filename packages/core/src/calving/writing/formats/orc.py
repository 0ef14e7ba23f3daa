"""ORC data files: Iceberg's ids and types travel as attributes of the ORC types (the spec's appendix A)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc as po
from pyiceberg.io import OutputStream
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import FileFormat as IcebergFormat
from pyiceberg.schema import Schema

from calving.errors import BadRecordError
from calving.records.arrays import children_of
from calving.records.fields import leaves, small
from calving.records.foreign import GeoType, geo_types, without_foreign
from calving.writing.formats.interface import Ending, FileFormat, FileWriter
from calving.writing.properties import WriteProperties

_PER_SECOND = {"us": 1_000_000, "ns": 1_000_000_000}
_CODECS = {"none": "uncompressed"}
_ID, _BINARY_TYPE = b"iceberg.id", b"iceberg.binary-type"


class OrcWriter(FileWriter):
    def __init__(self, out: OutputStream, table: Orc) -> None:
        self._out, self._schema = out, table.schema
        self._writer = po.ORCWriter(out, **table.options)
        self._buffered = self._unwritten = self._written = 0

    def write(self, rows: pa.Table) -> None:
        for batch in rows.to_batches():
            columns = [_marked(c.cast(field.type)) for c, field in zip(batch.columns, self._schema, strict=True)]
            self._writer.write(pa.Table.from_arrays(columns, schema=self._schema))
        self._buffered += rows.nbytes
        # A stripe stays in memory until it is full.
        written, before = self._out.tell(), self._written
        self._unwritten = rows.nbytes if written > before else self._unwritten + rows.nbytes
        self._written = written

    def held(self) -> int:
        return super().held() + self._unwritten // 3

    def size(self) -> int:
        return max(self._out.tell(), self._buffered // 4)

    def close(self) -> Ending:
        self._writer.close()
        return Ending(self._out.tell())


def _marked(column: pa.Array) -> pa.Array:
    """The column in a form that Arrow's ORC writer writes correctly. The writer has two faults. If a field of a null
    struct is not null, the writer writes its value, and readers take this value for the next row's. From a slice of an
    array, the writer takes nulls and values of different rows.
    """
    column = pa.concat_arrays([column]) if column.offset else column
    kind = column.type
    if isinstance(column, pa.StructArray):
        children = [_marked(child) for child in children_of(column)]
        return pa.StructArray.from_arrays(children, fields=column.type.fields, mask=column.is_null())
    if isinstance(column, pa.MapArray):
        pairs = [_marked(column.keys), _marked(column.items)]
        fields = [column.type.key_field, column.type.item_field]
        inside: pa.Array = pa.StructArray.from_arrays(pairs, fields=fields)
    elif isinstance(column, pa.ListArray):
        inside = _marked(column.values)
    else:
        return column
    return pa.Array.from_buffers(kind, len(column), column.buffers()[:2], column.null_count, 0, [inside])


def has_early_fractions(column: pa.Array) -> bool:
    """Whether a column has a timestamp before 1970 with a fraction of a second.

    Arrow 26 stores such a timestamp as a second rounded up and a negative fraction. Arrow reads it back unchanged, but
    Java reads it a second earlier; and Arrow reads what Java has written a second later.
    """
    for leaf in leaves([column]):
        if not pa.types.is_timestamp(leaf.type) or leaf.null_count == len(leaf):
            continue
        moments, second = leaf.cast(pa.int64()), _PER_SECOND[leaf.type.unit]
        early = moments.filter(pc.less(moments, 0))
        if pc.any(pc.not_equal(early, pc.multiply(pc.divide(early, second), second))).as_py():
            return True
    return False


def _check_range(name: str, column: pa.Array) -> None:
    # Arrow writes such a timestamp, but when it reads ORC files its timestamps are 64-bit nanoseconds.
    if pa.types.is_timestamp(column.type):
        try:
            column.cast(pa.timestamp("ns", column.type.tz))
        except pa.ArrowInvalid:
            raise BadRecordError(
                f"column '{name}': rows are found by it, and from ORC files timestamps can only be read from 1677-09-21"
                " to 2262-04-11; set write.format.default = parquet or avro for the table"
            ) from None


def _with_attributes(field: pa.Field, geo: Mapping[int, GeoType]) -> pa.Field:
    """The field as ORC stores it. Attributes tell the types that ORC does not have. ``geo``: the types of the columns
    of geometries, by their ids.
    """
    kind = field.type
    told: dict[bytes, bytes] = dict(field.metadata or {})
    if (place := geo.get(int(told[_ID]))) is not None:
        told[_BINARY_TYPE] = b"GEOMETRY" if place.edges is None else b"GEOGRAPHY"
    elif kind == pa.uuid():
        kind, told = pa.binary(), {**told, _BINARY_TYPE: b"UUID", b"iceberg.length": b"16"}
    elif pa.types.is_fixed_size_binary(kind):
        told |= {_BINARY_TYPE: b"FIXED", b"iceberg.length": str(kind.byte_width).encode()}
        kind = pa.binary()
    elif pa.types.is_time(kind):
        kind, told = pa.int64(), {**told, b"iceberg.long-type": b"TIME"}
    elif pa.types.is_struct(kind):
        kind = pa.struct([_with_attributes(kind.field(i), geo) for i in range(kind.num_fields)])
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        kind = pa.list_(_with_attributes(kind.value_field, geo))
    elif pa.types.is_map(kind):
        kind = pa.map_(_with_attributes(kind.key_field, geo), _with_attributes(kind.item_field, geo))
    return pa.field(field.name, small(kind), field.nullable, told)


def _places(schema: pa.Schema, names: list[str]) -> list[int]:
    """The numbers of the named columns. ORC numbers its types depth first; the root is 0."""
    wanted = {name.strip() for name in names}
    return [place for place, name in enumerate(_names(schema, ""), 1) if name in wanted]


def _names(fields: pa.Schema | pa.DataType, prefix: str) -> Iterator[str]:
    for i in range(len(fields) if isinstance(fields, pa.Schema) else fields.num_fields):
        field = fields.field(i)
        yield prefix + field.name
        if pa.types.is_nested(field.type):
            yield from _names(field.type, f"{prefix}{field.name}.")


class Orc(FileFormat):
    name = "orc"

    def __init__(self, schema: Schema, properties: WriteProperties) -> None:
        known, geo = without_foreign(schema.as_struct()), geo_types(schema.as_struct())
        ids = schema_to_pyarrow(Schema(*known.fields), file_format=IcebergFormat.ORC)
        self.schema = pa.schema([_with_attributes(field, geo) for field in ids])
        self.options: dict[str, Any] = {
            "compression": _CODECS.get(properties.orc_codec, properties.orc_codec),
            "compression_strategy": properties.orc_strategy,
            "stripe_size": properties.stripe_bytes,
            "dictionary_key_size_threshold": properties.orc_dictionary_share,
            "bloom_filter_columns": _places(self.schema, properties.orc_bloom_columns.split(",")) or None,
            "bloom_filter_fpp": properties.orc_bloom_fpp,
        }

    def check(self, rows: pa.RecordBatch) -> None:
        for name, column in zip(rows.schema.names, rows.columns, strict=True):
            if has_early_fractions(column):
                raise BadRecordError(
                    f"column '{name}': ORC files cannot hold a timestamp before 1970 with a fraction of a second;"
                    " set write.format.default = parquet or avro for the table"
                )

    def check_compared(self, name: str, column: pa.Array) -> None:
        _check_range(name, column)

    def open(self, out: OutputStream) -> FileWriter:
        return OrcWriter(out, self)
