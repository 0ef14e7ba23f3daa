"""A few columns of a data or delete file, found by field id, in Arrow types that compare as Iceberg's do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import orc
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import MappedField
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
)

from calving.records.fields import arrow_type

File = tuple[str, str]
"""A file's path and format."""
_BATCH_ROWS = 256 * 1024
_NUMBERS: dict[type[PrimitiveType], pa.DataType] = {
    IntegerType: pa.int64(),
    LongType: pa.int64(),
    DateType: pa.int32(),
    TimeType: pa.int64(),
    TimestampType: pa.int64(),
    TimestamptzType: pa.int64(),
    TimestampNanoType: pa.int64(),
    TimestamptzNanoType: pa.int64(),
    FloatType: pa.float64(),
    DoubleType: pa.float64(),
}
_ID_OF = {"PARQUET": b"PARQUET:field_id", "ORC": b"iceberg.id"}


@dataclass(frozen=True, slots=True)
class Column:
    """A primitive column of a table."""

    field_id: int
    kind: PrimitiveType

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type in which its values are read."""
        match self.kind:
            case BooleanType():
                return pa.bool_()
            case StringType():
                return pa.string()
            case DecimalType():
                return pa.decimal128(self.kind.precision, self.kind.scale)
        return _NUMBERS.get(type(self.kind), pa.binary())

    def plain(self, found: pa.Array) -> pa.Array:
        """A file's values of the column, converted if the file has an older type of the column."""
        kind = found.type
        if isinstance(found, pa.ExtensionArray):
            return self.plain(found.storage)
        if pa.types.is_dictionary(kind):
            return self.plain(found.cast(kind.value_type))
        if pa.types.is_timestamp(kind) or (pa.types.is_date(kind) and not isinstance(self.kind, DateType)):
            unit = "ns" if isinstance(self.kind, TimestampNanoType | TimestamptzNanoType) else "us"
            return found.cast(pa.timestamp(unit, getattr(kind, "tz", None))).cast(pa.int64())
        if pa.types.is_time(kind):
            return found.cast(pa.time64("us")).cast(pa.int64())
        return found.cast(self.arrow)


def columns_of(schema: Schema, ids: Sequence[int]) -> tuple[Column, ...]:
    """Columns of a table by their ids."""
    kinds = ((each, schema.find_type(each)) for each in ids)
    return tuple(Column(each, kind) for each, kind in kinds if isinstance(kind, PrimitiveType))


@dataclass(frozen=True, slots=True)
class Reading:
    """Reads columns of the files of one table. ``mapped``: the table's name mapping, for files without ids."""

    io: FileIO
    columns: tuple[Column, ...]
    mapped: tuple[MappedField, ...] = ()

    def batches(self, path: str, file_format: str) -> Iterator[pa.RecordBatch]:
        """The columns of all rows, in the order of the file. A column that the file does not have is null."""
        names = [str(column.field_id) for column in self.columns]
        with self.io.new_input(path).open() as stream:
            for found in _READERS[file_format.upper()](self, stream):
                yield pa.RecordBatch.from_arrays(found, names)

    def all_of(self, files: Iterable[File]) -> Iterator[pa.RecordBatch]:
        """The columns of all rows of several files, one file after the other."""
        for file in files:
            yield from self.batches(*file)

    def parquet(self, stream: Any) -> Iterator[list[pa.Array]]:
        with pq.ParquetFile(stream, pre_buffer=True) as file:  # few requests for the parts of a column
            places, names = self._places(file.schema_arrow, "PARQUET")
            if not names:
                yield from self._nothing(file.metadata.num_rows)
                return
            for batch in file.iter_batches(_BATCH_ROWS, columns=names, use_threads=False):
                yield self._walked(batch, places)

    def orc(self, stream: Any) -> Iterator[list[pa.Array]]:
        file = orc.ORCFile(stream)
        places, _ = self._places(file.schema, "ORC")
        top = sorted({place[0] for place in places if place})
        if not top:
            yield from self._nothing(file.nrows)
            return
        for stripe in range(file.nstripes):
            yield self._walked(file.read_stripe(stripe, columns=top), places)

    def avro(self, stream: Any) -> Iterator[list[pa.Array]]:
        reader = fastavro.reader(stream)
        schema: Any = reader.writer_schema
        places = [_avro_place(schema, column.field_id, self.mapped) for column in self.columns]
        kinds = [arrow_type(column.kind) for column in self.columns]
        while records := list(islice(reader, _BATCH_ROWS)):
            values = ([_at(record, place) for record in records] for place in places)
            found = (pa.array(each, kind) for each, kind in zip(values, kinds, strict=True))
            yield [column.plain(each) for column, each in zip(self.columns, found, strict=True)]

    def _places(self, schema: pa.Schema, file_format: str) -> tuple[list[tuple[str, ...]], list[str]]:
        """The names that lead to each column, empty if the file does not have the column; and the paths of the columns
        that it has.
        """
        fields, key = list(schema), _ID_OF[file_format]
        mapped = () if any(key in (field.metadata or {}) for field in fields) else self.mapped
        places = [_place(fields, column.field_id, key, mapped) for column in self.columns]
        return places, sorted({".".join(place) for place in places if place})

    def _walked(self, batch: pa.RecordBatch, places: Sequence[tuple[str, ...]]) -> list[pa.Array]:
        return [
            column.plain(_inner(batch, place)) if place else pa.nulls(batch.num_rows, column.arrow)
            for column, place in zip(self.columns, places, strict=True)
        ]

    def _nothing(self, rows: int) -> Iterator[list[pa.Array]]:
        yield [pa.nulls(rows, column.arrow) for column in self.columns]


_READERS = {"PARQUET": Reading.parquet, "ORC": Reading.orc, "AVRO": Reading.avro}


def _place(fields: Sequence[pa.Field], field_id: int, key: bytes, mapped: Sequence[MappedField]) -> tuple[str, ...]:
    for field in fields:
        known = next((each for each in mapped if field.name in each.names), None)
        said = (field.metadata or {}).get(key)
        if (int(said) if said is not None else _id_of(known)) == field_id:
            return (field.name,)
        if pa.types.is_struct(field.type):
            inner = [field.type.field(i) for i in range(field.type.num_fields)]
            found = _place(inner, field_id, key, _fields_of(known))
            if found:
                return (field.name, *found)
    return ()


def _id_of(known: MappedField | None) -> int | None:
    # Compare with None: a mapped field without fields of its own is false.
    return known.field_id if known is not None else None


def _fields_of(known: MappedField | None) -> Sequence[MappedField]:
    return known.fields if known is not None else ()


def _inner(batch: pa.RecordBatch, place: tuple[str, ...]) -> pa.Array:
    column = batch.column(batch.schema.get_field_index(place[0]))
    for name in place[1:]:
        column = pc.struct_field(column, name)
    return column


def _avro_place(schema: Any, field_id: int, mapped: Sequence[MappedField]) -> tuple[str, ...]:
    record = next((s for s in (schema if isinstance(schema, list) else [schema]) if _is_record(s)), None)
    for field in record["fields"] if record else ():
        known = next((each for each in mapped if field["name"] in each.names), None)
        if field.get("field-id", _id_of(known)) == field_id:
            return (field["name"],)
        found = _avro_place(field["type"], field_id, _fields_of(known))
        if found:
            return (field["name"], *found)
    return ()


def _is_record(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("type") == "record"


def _at(record: Any, place: tuple[str, ...]) -> Any:
    if not place:
        return None
    for name in place:
        record = None if record is None else record[name]
    return record
