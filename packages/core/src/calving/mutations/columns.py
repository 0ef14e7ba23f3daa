"""A few columns of a data or delete file, found by field id, in Arrow types that compare as Iceberg's do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any
from uuid import UUID

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
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
)

from calving.errors import CalvingError, TableTroubleError
from calving.mutations import avro
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


@dataclass(frozen=True)
class Column:
    """A primitive column of a table.

    ``default``: the value in all rows of a file that does not have the column. It is the column's initial default, or
    the value of the file's partition. ``parent``: the id of the struct around it; rows in which this struct is null
    have no value.
    """

    field_id: int
    kind: PrimitiveType
    default: Any = None
    parent: int | None = None
    name: str = field(default="", compare=False)
    """Its dotted name, for messages."""

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
        if pa.types.is_date(kind) and self.arrow == pa.int64():  # a date that became a timestamp
            return self.plain(found.cast(pa.timestamp(self._unit)))
        if pa.types.is_timestamp(kind):
            # Other writers' files may have finer times than the column; readers cut them off.
            return found.cast(pa.timestamp(self._unit, kind.tz), safe=False).cast(pa.int64())
        if pa.types.is_time(kind):
            return found.cast(pa.time64("us"), safe=False).cast(pa.int64())
        return found.cast(self.arrow)

    def missing(self, rows: int) -> pa.Array:
        """The values in a file that does not have the column."""
        return pa.repeat(self._default, rows)

    @property
    def parent_to_read(self) -> int | None:
        """The struct that tells which rows of a file without the column have its default."""
        return None if self.default is None else self.parent

    @property
    def _unit(self) -> str:
        return "ns" if isinstance(self.kind, TimestampNanoType | TimestamptzNanoType) else "us"

    @cached_property
    def _default(self) -> pa.Scalar:
        value = self.default.bytes if isinstance(self.default, UUID) else self.default
        return self.plain(pa.array([value], arrow_type(self.kind)))[0]


def columns_of(schema: Schema, ids: Sequence[int]) -> tuple[Column, ...]:
    """Columns of a table by their ids. Columns that are no single value are left out."""
    parents = _parents(schema.as_struct(), None)
    return tuple(
        Column(each, about.field_type, about.initial_default, parents.get(each), schema.find_column_name(each) or "")
        for each in ids
        if isinstance((about := schema.find_field(each)).field_type, PrimitiveType)
    )


def _parents(struct: StructType, above: int | None) -> dict[int, int | None]:
    """The id of the struct around each field."""
    parent_of = {each.field_id: above for each in struct.fields}
    for each in struct.fields:
        if isinstance(each.field_type, StructType):
            parent_of |= _parents(each.field_type, each.field_id)
    return parent_of


@dataclass(frozen=True, slots=True)
class ColumnReader:
    """Reads columns of the files of one table. ``mapped``: the table's name mapping, for files without ids."""

    io: FileIO
    columns: tuple[Column, ...]
    mapped: tuple[MappedField, ...] = ()

    def within(self, partition: Mapping[int, Any]) -> ColumnReader:
        """Reads files of a partition in which these columns, by id, have one value each. In a file that does not have
        such a column, as files of an imported Hive table, this value counts before any default (the specification's
        rules of column projection).
        """
        if not any(column.field_id in partition for column in self.columns):
            return self
        columns = (
            replace(column, default=partition[column.field_id], parent=None) if column.field_id in partition else column
            for column in self.columns
        )
        return replace(self, columns=tuple(columns))

    def batches(self, path: str, file_format: str) -> Iterator[pa.RecordBatch]:
        """The columns of all rows, in the order of the file. A column that the file does not have has its default.

        :raises TableTroubleError: the file cannot be read, or Arrow cannot hold one of its values.
        """
        names = [str(column.field_id) for column in self.columns]
        try:
            with self.io.new_input(path).open() as stream:
                for arrays in _READERS[file_format.upper()](self, stream):
                    yield pa.RecordBatch.from_arrays(arrays, names)
        except CalvingError:
            raise
        except Exception as error:  # each format has exceptions of its own
            columns = ", ".join(column.name or str(column.field_id) for column in self.columns)
            raise TableTroubleError(f"file {path} cannot be searched, column {columns}: {error}") from error

    def all_of(self, files: Iterable[File]) -> Iterator[pa.RecordBatch]:
        """The columns of all rows of several files, one file after the other."""
        for file in files:
            yield from self.batches(*file)

    def parquet(self, stream: Any) -> Iterator[list[pa.Array]]:
        # Few requests for the parts of a column. Other writers' 96-bit times can be outside of the years 1677 to 2262.
        with pq.ParquetFile(stream, pre_buffer=True, coerce_int96_timestamp_unit="us") as file:
            places, names = self._places(file.schema_arrow, "PARQUET")
            if not names:
                yield self._nothing(file.metadata.num_rows)
                return
            for batch in file.iter_batches(_BATCH_ROWS, columns=names, use_threads=False):
                yield self._walked(batch, places)

    def orc(self, stream: Any) -> Iterator[list[pa.Array]]:
        file = orc.ORCFile(stream)
        places, names = self._places(file.schema, "ORC")
        if not names:
            yield self._nothing(file.nrows)
            return
        for stripe in range(file.nstripes):
            yield self._walked(file.read_stripe(stripe, columns=names), places)

    def avro(self, stream: Any) -> Iterator[list[pa.Array]]:
        ids = [(column.field_id, column.parent_to_read) for column in self.columns]
        for chunk in avro.columns(stream, ids, self.mapped, _BATCH_ROWS):
            yield [
                self._filled(column, *each, chunk.rows)
                for column, each in zip(self.columns, chunk.columns, strict=True)
            ]

    def _places(self, schema: pa.Schema, file_format: str) -> tuple[list[_Place], list[str]]:
        """The place of each column, and the paths to read."""
        fields, key = list(schema), _ID_OF[file_format]
        mapped = () if any(key in (field.metadata or {}) for field in fields) else self.mapped
        places = [
            _Place(
                _place(fields, column.field_id, key, mapped),
                () if (above := column.parent_to_read) is None else _place(fields, above, key, mapped),
            )
            for column in self.columns
        ]
        return places, sorted({".".join(place.read) for place in places if place.read})

    def _walked(self, batch: pa.RecordBatch, places: Sequence[_Place]) -> list[pa.Array]:
        return [
            self._filled(
                column,
                _inner(batch, place.own) if place.own else None,
                _inner(batch, place.parent).is_valid() if place.parent and not place.own else None,
                batch.num_rows,
            )
            for column, place in zip(self.columns, places, strict=True)
        ]

    def _filled(self, column: Column, values: pa.Array | None, in_parent: pa.Array | None, rows: int) -> pa.Array:
        """The column as it is compared. ``values``: None if the file does not have the column. ``in_parent``: whether
        the struct around it has a value; None if the file does not have this struct.
        """
        if values is not None:
            return column.plain(values)
        if column.parent is None:
            return column.missing(rows)
        if in_parent is None or column.default is None:
            return pa.nulls(rows, column.arrow)
        return pc.if_else(in_parent, column.missing(rows), pa.scalar(None, column.arrow))

    def _nothing(self, rows: int) -> list[pa.Array]:
        return [self._filled(column, None, None, rows) for column in self.columns]


@dataclass(frozen=True, slots=True)
class _Place:
    """The names that lead to a column in a file, and to the struct around it; empty if the file does not have it."""

    own: tuple[str, ...]
    parent: tuple[str, ...]

    @property
    def read(self) -> tuple[str, ...]:
        """The names that lead to what is read for the column."""
        return self.own or self.parent


_READERS = {"PARQUET": ColumnReader.parquet, "ORC": ColumnReader.orc, "AVRO": ColumnReader.avro}


def _place(fields: Sequence[pa.Field], field_id: int, key: bytes, mapped: Sequence[MappedField]) -> tuple[str, ...]:
    for each in fields:
        known = next((one for one in mapped if each.name in one.names), None)
        said = (each.metadata or {}).get(key)
        if (int(said) if said is not None else avro.id_of(known)) == field_id:
            return (each.name,)
        if pa.types.is_struct(each.type):
            inner = [each.type.field(i) for i in range(each.type.num_fields)]
            below = _place(inner, field_id, key, avro.fields_of(known))
            if below:
                return (each.name, *below)
    return ()


def _inner(batch: pa.RecordBatch, place: tuple[str, ...]) -> pa.Array:
    column = batch.column(batch.schema.get_field_index(place[0]))
    for name in place[1:]:
        column = pc.struct_field(column, name)
    return column
