"""Whole rows of data files, in the types that a table has now.

Columns are found by field id. A value is never changed on the way: a file with a type that the table's does not hold
exactly is refused.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import orc
from pyiceberg.io import FileIO, InputStream
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import MappedField
from pyiceberg.types import ListType, MapType, NestedField, StructType

from calving.errors import CalvingError, TableTroubleError
from calving.mutations import row_avro as avro
from calving.mutations.avro import fields_of, id_of
from calving.mutations.widening import widened
from calving.records.arrays import entries, items_of, lists, maps, offsets_of, struct, take
from calving.records.fields import arrow_schema
from calving.records.foreign import VARIANT
from calving.writing.formats.orc import has_early_fractions

_BATCH_ROWS = 64 * 1024
_BATCH_BYTES = 32 * 1024 * 1024
"""At most so many rows are read at a time, and about so many bytes as a file holds them. A file may hold a long value
once that many rows have; so no more than a row group, or a stripe, is read at a time.
"""
Wanted = Callable[[int, int], bool]
"""Whether rows of a file are needed, from a position up to another."""
NumberedRows = tuple[int, pa.RecordBatch]
"""Rows, and the position of the first of them."""
_ID_OF = {"PARQUET": b"PARQUET:field_id", "ORC": b"iceberg.id"}
_LISTS = pa.ListType, pa.LargeListType, pa.FixedSizeListType
"""Writers on Arrow note their own form of a list in the file, and Arrow reads the column so."""
_NO_IDS = "its columns have no field ids, and the table has no name mapping (schema.name-mapping.default)"


@dataclass(frozen=True)
class RowReader:
    """Reads files of one table as rows of ``schema``. ``mapped``: the table's name mapping, for files without ids."""

    io: FileIO
    schema: Schema
    mapped: tuple[MappedField, ...] = ()

    @cached_property
    def arrow(self) -> pa.Schema:
        """The Arrow schema of the rows."""
        return arrow_schema(self.schema)

    def batches(self, path: str, file_format: str, constants: Mapping[int, Any]) -> Iterator[pa.RecordBatch]:
        """All rows, in the order of the file. A column that the file does not have has the value in ``constants``, by
        its id, or else its initial default, or else none.

        :raises TableTroubleError: the file cannot be read without a loss.
        """
        for _, rows in self._read(path, file_format, constants, lambda start, end: True):
            yield rows

    def rows_at(
        self, path: str, file_format: str, constants: Mapping[int, Any], positions: pa.Array
    ) -> Iterator[pa.RecordBatch]:
        """Like ``batches``, only the rows at these ascending positions."""

        def of(start: int, end: int) -> pa.Array:
            first, last = (bisect_left(positions, row, key=lambda each: each.as_py()) for row in (start, end))
            return positions.slice(first, last - first)

        for start, rows in self._read(path, file_format, constants, lambda start, end: bool(len(of(start, end)))):
            here = pc.subtract(of(start, start + rows.num_rows), start)
            if len(here) == rows.num_rows:
                yield rows
            elif len(here):
                yield pa.RecordBatch.from_arrays([take(column, here) for column in rows.columns], schema=rows.schema)

    def ids(self, path: str) -> frozenset[int]:
        """The field ids of a Parquet file: of its columns, and of the fields within structs and lists.

        :raises TableTroubleError: the file cannot be read.
        """
        with self._opened(path) as stream:
            return frozenset(_ids_of(pq.read_schema(stream)))

    def _read(
        self, path: str, file_format: str, constants: Mapping[int, Any], wanted: Wanted
    ) -> Iterator[NumberedRows]:
        """Rows, and the position of the first of them. ``wanted``: whether rows are needed from a position up to
        another; others may be left out.
        """
        with self._opened(path) as stream:
            yield from _READERS[file_format.upper()](self, stream, constants, wanted)

    @contextmanager
    def _opened(self, path: str) -> Iterator[InputStream]:
        try:
            with self.io.new_input(path).open() as stream:
                yield stream
        except CalvingError as error:
            raise TableTroubleError(f"file {path} cannot be read whole: {error}") from error
        except Exception as error:  # each format has exceptions of its own
            raise TableTroubleError(f"file {path} cannot be read whole: {type(error).__name__}: {error}") from error

    def parquet(self, stream: Any, constants: Mapping[int, Any], wanted: Wanted) -> Iterator[NumberedRows]:
        # Few requests for the parts of a row group. Other writers' 96-bit times can be outside of the years 1677 to
        # 2262.
        with pq.ParquetFile(stream, pre_buffer=True, coerce_int96_timestamp_unit="us") as file:
            of_file = replace(self._of(file.schema_arrow, "PARQUET", constants), instants=_are_instants(file.schema))
            names = of_file.names(file.schema_arrow)
            end = 0
            for number in range(file.metadata.num_row_groups):  # Arrow keeps in memory what it reads in one go
                group = file.metadata.row_group(number)
                start, end = end, end + group.num_rows
                if not wanted(start, end):
                    continue
                count = _at_once(group.num_rows, group.total_byte_size)
                for batch in file.iter_batches(count, row_groups=[number], columns=names, use_threads=False):
                    yield start, of_file.rows(batch)
                    start += batch.num_rows

    def orc(self, stream: Any, constants: Mapping[int, Any], wanted: Wanted) -> Iterator[NumberedRows]:
        file, position = orc.ORCFile(stream), 0
        of_file = self._of(file.schema, "ORC", constants)
        for stripe in range(file.nstripes):
            batch = file.read_stripe(stripe)
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                if has_early_fractions(column):
                    raise TableTroubleError(
                        f"column {name} has a timestamp before 1970 with a fraction of a second, which Java and Arrow"
                        " read from ORC files in two ways"
                    )
            count = _at_once(batch.num_rows, batch.nbytes)
            for start in range(0, batch.num_rows, count):
                yield position + start, of_file.rows(batch.slice(start, count))
            position += batch.num_rows

    def avro(self, stream: Any, constants: Mapping[int, Any], wanted: Wanted) -> Iterator[NumberedRows]:
        missing, position = _Missing(self.schema, constants), 0
        for columns, count in avro.columns(stream, self.schema.as_struct(), self.arrow, self.mapped, _at_once):
            pairs = zip(columns, self.schema.fields, self.arrow, strict=True)
            arrays = [missing.column(f, a.type, count) if array is None else array for array, f, a in pairs]
            yield position, pa.RecordBatch.from_arrays(arrays, schema=self.arrow)
            position += count

    def _of(self, schema: pa.Schema, file_format: str, constants: Mapping[int, Any]) -> _FileRows:
        fields, key = list(schema), _ID_OF[file_format]
        has_ids = any(key in (field.metadata or {}) for field in fields)
        if not has_ids and not self.mapped:
            raise TableTroubleError(_NO_IDS)
        return _FileRows(self.schema, self.arrow, _Missing(self.schema, constants), key, () if has_ids else self.mapped)


def _ids_of(fields: Iterable[pa.Field]) -> Iterator[int]:
    for field in fields:
        said = (field.metadata or {}).get(_ID_OF["PARQUET"])
        if said is not None:
            yield int(said)
        if pa.types.is_struct(field.type):
            yield from _ids_of(field.type)
        elif isinstance(field.type, _LISTS):
            yield from _ids_of([field.type.value_field])


def _are_instants(schema: pq.ParquetSchema) -> bool:
    """Whether a file's times without a zone are instants: Hive, and Spark outside of Iceberg, write instants of 96
    bits, whose type does not say it.
    """
    columns = [schema.column(at) for at in range(len(schema.names))]
    local = any(_is_local(column.logical_type) for column in columns)
    return not local and any(column.physical_type == "INT96" for column in columns)


def _is_local(kind: Any) -> bool:
    return kind.type == "TIMESTAMP" and not json.loads(kind.to_json())["isAdjustedToUTC"]


def live_rows(
    batches: Iterable[pa.RecordBatch], deleted: Sequence[int], path: str, records: int
) -> Iterator[pa.RecordBatch]:
    """The rows of a file that are not ``deleted``, which has positions in order. ``batches``: all of its rows.

    :raises TableTroubleError: the file has more or fewer rows than its entry says.
    """
    start = 0
    for rows in batches:
        live = _are_live(deleted, start, rows.num_rows)
        start += rows.num_rows
        rows = rows if live is None else rows.filter(live)
        if rows.num_rows:
            yield rows
    if start != records:
        raise TableTroubleError(f"file {path} has {start} rows, and its entry in the table says {records}")


def _are_live(deleted: Sequence[int], start: int, count: int) -> pa.Array | None:
    """Whether each of so many rows from ``start`` on is live; None if all are."""
    first, last = bisect_left(deleted, start), bisect_left(deleted, start + count)
    if first == last:
        return None
    gone = pa.array(deleted[first:last], pa.int64())
    return pc.invert(pc.is_in(pa.arange(start, start + count), value_set=gone))


def _at_once(rows: int, size: int) -> int:
    """How many rows are read at a time, of a file of which so many rows have ``size`` bytes."""
    return max(1, min(_BATCH_ROWS, rows * _BATCH_BYTES // max(1, size)))


_READERS = {"PARQUET": RowReader.parquet, "ORC": RowReader.orc, "AVRO": RowReader.avro}


@dataclass(frozen=True, slots=True)
class _Missing:
    """Columns that a file does not have."""

    schema: Schema
    constants: Mapping[int, Any]

    def column(self, field: NestedField, kind: pa.DataType, count: int) -> pa.Array:
        default = self.constants.get(field.field_id, field.initial_default)
        if default is None:
            if field.required:
                raise TableTroubleError(f"it lacks the required column {self.schema.find_column_name(field.field_id)}")
            return pa.nulls(count, kind)
        storage = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
        one = pa.array([default.bytes if isinstance(default, UUID) else default], storage)
        return widened(pa.repeat(one[0], count), kind)


@dataclass(frozen=True, slots=True)
class _FileRows:
    """Turns batches of one file into rows of the table. ``key``: the metadata entry with a field's id. ``instants``:
    whether times without a zone are instants.
    """

    schema: Schema
    arrow: pa.Schema
    missing: _Missing
    key: bytes
    mapped: Sequence[MappedField]
    instants: bool = False

    def names(self, schema: pa.Schema) -> list[str] | None:
        """The columns that have to be read; None: all, because the file has none of them."""
        names = [field.name for field in schema if self._id(field, self.mapped) in self.schema.field_ids]
        return names or None

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        given = list(zip(batch.schema, batch.columns, strict=True))
        columns = self._struct(given, self.schema.as_struct(), list(self.arrow), self.mapped, batch.num_rows)
        return pa.RecordBatch.from_arrays(columns, schema=self.arrow)

    def _struct(
        self,
        given: Sequence[tuple[pa.Field, pa.Array]],
        wanted: StructType,
        kinds: Sequence[pa.Field],
        mapped: Sequence[MappedField],
        count: int,
    ) -> list[pa.Array]:
        by_id: dict[int | None, tuple[pa.Array, MappedField | None]] = {}
        for field, array in given:
            by_id[self._id(field, mapped)] = array, _one(mapped, field.name)
        return [
            self._array(*by_id[field.field_id], field, kind.type)
            if field.field_id in by_id
            else self.missing.column(field, kind.type, count)
            for field, kind in zip(wanted.fields, kinds, strict=True)
        ]

    def _id(self, field: pa.Field, mapped: Sequence[MappedField]) -> int | None:
        said = (field.metadata or {}).get(self.key)
        return int(said) if said is not None else id_of(_one(mapped, field.name))

    def _array(self, array: pa.Array, known: MappedField | None, field: NestedField, kind: pa.DataType) -> pa.Array:
        below, wanted, array = fields_of(known), field.field_type, self._in_plain_form(array, kind)
        if isinstance(wanted, StructType) and isinstance(array, pa.StructArray) and isinstance(kind, pa.StructType):
            given = [(inner, array.field(i)) for i, inner in enumerate(array.type)]
            children = self._struct(given, wanted, list(kind), below, len(array))
            return struct(children, kind, _nulls(array), len(array))
        if wanted == VARIANT and isinstance(array, pa.StructArray) and isinstance(kind, pa.StructType):
            return self._variant(array, field, kind)
        if isinstance(wanted, ListType) and isinstance(array, pa.ListArray) and isinstance(kind, pa.ListType):
            items = self._array(items_of(array), _one(below, "element"), wanted.element_field, kind.value_type)
            return lists(offsets_of(array), items, kind, _nulls(array))
        if isinstance(wanted, MapType) and isinstance(array, pa.MapArray) and isinstance(kind, pa.MapType):
            keys, values = entries(array)
            keys = self._array(keys, _one(below, "key"), wanted.key_field, kind.key_type)
            values = self._array(values, _one(below, "value"), wanted.value_field, kind.item_type)
            return maps(offsets_of(array), keys, values, kind, _nulls(array))
        try:
            return widened(array, kind)  # which refuses nested types
        except pa.ArrowException as error:
            raise TableTroubleError(
                f"column {self._name(field)} is {array.type} in the file, which is not exactly {field.field_type}"
                f" ({error})"
            ) from error

    def _in_plain_form(self, array: pa.Array, kind: pa.DataType) -> pa.Array:
        """The same values, if their writer has lists or instants in a form of its own."""
        found = array.type
        if isinstance(found, _LISTS) and not isinstance(array, pa.ListArray):
            return array.cast(pa.list_(found.value_field))
        if self.instants and pa.types.is_timestamp(found) and pa.types.is_timestamp(kind):
            return array.cast(pa.timestamp(found.unit, kind.tz))
        return array

    def _variant(self, array: pa.StructArray, field: NestedField, kind: pa.StructType) -> pa.Array:
        if {each.name for each in array.type} != {each.name for each in kind}:
            raise TableTroubleError(
                f"column {self._name(field)} is a shredded variant in the file, which calving does not read: rewrite"
                " the file in Spark (rewrite_data_files) with write.parquet.shred-variants = false"
            )
        return struct([array.field(each.name) for each in kind], kind, _nulls(array), len(array))

    def _name(self, field: NestedField) -> str:
        return self.schema.find_column_name(field.field_id) or field.name


def _one(fields: Sequence[MappedField], name: str) -> MappedField | None:
    return next((field for field in fields if name in field.names), None)


def _nulls(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None
