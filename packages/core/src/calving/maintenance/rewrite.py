"""Rewrites data files into few files of the same rows, in the same order, with the table's properties of now."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField
from pyroaring import BitMap64

from calving.errors import BadRecordError, TableTroubleError
from calving.iceberg.live_files import LiveData
from calving.iceberg.locations import carried
from calving.iceberg.manifests import LINEAGE_VERSION
from calving.maintenance.rows import RowReader
from calving.maintenance.translate import InputRows, OutputRows, RowPlaces
from calving.model.files import DataFile
from calving.model.record_path import Limits
from calving.model.tables import TableSpec
from calving.mutations.candidates import identities
from calving.writing.partitioning import Numbers
from calving.writing.table import TableWriter

T = TypeVar("T")
ROW_ID, LAST_UPDATED = 2147483540, 2147483539
"""The ids of the columns that keep the row lineage of format version 3 in a data file (K6)."""
_LINEAGE = (
    NestedField(ROW_ID, "_row_id", LongType(), required=False),
    NestedField(LAST_UPDATED, "_last_updated_sequence_number", LongType(), required=False),
)


@dataclass(frozen=True, slots=True)
class RewrittenRows:
    """The files that hold the rows now; and where each row of the former files is, by their paths."""

    outputs: tuple[DataFile, ...]
    inputs: Mapping[str, InputRows]
    places: RowPlaces


class DeletedRows(Protocol):
    """The deleted rows of the files of one head."""

    def before(self, path: str) -> BitMap64:
        """The positions of the deleted rows of a file."""


class Rewriting(Protocol):
    """``rewrite``, or something that does it elsewhere."""

    def __call__(
        self, table: Table, inputs: Collection[LiveData], deletions: DeletedRows, spec: TableSpec, /
    ) -> RewrittenRows: ...


def output_spec(table: Table, write_properties: Mapping[str, str]) -> TableSpec:
    """The table as outputs are written: in its default spec, and in no sort order, because files are joined."""
    metadata = table.metadata
    schema = metadata.schema()
    if metadata.format_version >= LINEAGE_VERSION:
        schema = Schema(*schema.fields, *_LINEAGE, schema_id=schema.schema_id)
    return TableSpec(
        name=".".join(table.name()),
        schema_json=schema.model_dump_json(),
        spec_json=metadata.spec().model_dump_json(),
        location=metadata.location,
        properties={**metadata.properties, **write_properties},
        io_properties=carried(table.io),
    )


def rewrite(
    table: Table,
    inputs: Collection[LiveData],
    deletions: DeletedRows,
    spec: TableSpec,
    limits: Limits = Limits(),  # noqa: B008 - it never changes
) -> RewrittenRows:
    """Write the live rows of these files of one head into new files. Memory is bounded by ``limits``, besides the
    number of its partition for each row whose file has another spec.

    :raises TableTroubleError: a file cannot be read, or written again, without a loss. Nothing is left behind.
    :raises Exception: the storage failed, with the storage's own error. Files are deleted if it allows that.
    """
    writer = TableWriter(spec, 0, limits)
    taken: dict[str, InputRows] = {}
    numbers: list[tuple[Numbers, int]] = []
    try:
        for data in inputs:
            file = data.candidate
            taken[file.path] = InputRows(writer.rows, file.records, deletions.before(file.path))
            for rows in _live_rows(table, data, taken[file.path]):
                try:
                    placed = writer.prepare(rows)
                except BadRecordError as error:
                    raise TableTroubleError(f"file {file.path} cannot be rewritten: {error}") from error
                numbers.append((placed[1], rows.num_rows))
                writer.accept(placed)
                while writer.buffered_bytes > limits.buffered_bytes:
                    writer.flush_largest()
        outputs = tuple(map(_without_lineage, writer.close()))
        if sum(output.record_count for output in outputs) != writer.rows:
            raise TableTroubleError(f"table {spec.name}: the new files do not hold the rows that were written")
    except BaseException:
        writer.discard()
        raise
    made = zip(outputs, writer.numbers, strict=True)
    places = [OutputRows(output.file_path, number, output.record_count) for output, number in made]
    return RewrittenRows(outputs, taken, RowPlaces(_partitions(numbers), places))


def _live_rows(table: Table, data: LiveData, taken: InputRows) -> Iterator[pa.RecordBatch]:
    """The rows of a file that are not deleted, with their lineage in version 3."""
    file, schema = data.candidate, table.metadata.schema()
    has_lineage = table.metadata.format_version >= LINEAGE_VERSION
    if has_lineage:
        schema = Schema(*schema.fields, *_LINEAGE)
    mapping = table.name_mapping()
    spec = table.metadata.specs()[file.spec_id]
    constants = {each: file.partition[place] for each, place in identities(spec, schema.field_ids).items()}
    reader = RowReader(table.io, schema, tuple(mapping.root) if mapping is not None else ())
    deleted, start = taken.deleted.to_array(), 0
    for rows in reader.batches(file.path, file.file_format, constants):
        if has_lineage:
            rows = _with_lineage(rows, data, start)
        live = _are_live(deleted, start, rows.num_rows)
        start += rows.num_rows
        rows = rows if live is None else rows.filter(live)
        if rows.num_rows:
            yield rows
    if start != file.records:
        raise TableTroubleError(f"file {file.path} has {start} rows, and its entry in the table says {file.records}")


def _are_live(deleted: array[int], start: int, count: int) -> pa.Array | None:
    """Whether each of so many rows is live; None if all are."""
    first, last = bisect_left(deleted, start), bisect_left(deleted, start + count)
    if first == last:
        return None
    gone = pa.array(deleted[first:last], pa.int64())
    return pc.invert(pc.is_in(pa.arange(start, start + count), value_set=gone))


def _with_lineage(rows: pa.RecordBatch, data: LiveData, start: int) -> pa.RecordBatch:
    """A row's id and the sequence number of its last change: those in the file, or else those of its place."""
    *columns, ids, changes = rows.columns
    if data.first_row_id is not None:
        own = pa.arange(data.first_row_id + start, data.first_row_id + start + rows.num_rows)
        ids = pc.coalesce(ids, own)
    changes = pc.fill_null(changes, data.sequence)
    return pa.RecordBatch.from_arrays([*columns, ids, changes], schema=rows.schema)


def _without_lineage(file: DataFile) -> DataFile:
    """The file without statistics of the columns that no schema of the table has."""
    return replace(
        file,
        column_sizes=_without(file.column_sizes),
        value_counts=_without(file.value_counts),
        null_value_counts=_without(file.null_value_counts),
        nan_value_counts=_without(file.nan_value_counts),
        lower_bounds=_without(file.lower_bounds),
        upper_bounds=_without(file.upper_bounds),
    )


def _without(by_column: Mapping[int, T] | None) -> dict[int, T] | None:
    if by_column is None:
        return None
    return {each: told for each, told in by_column.items() if each not in (ROW_ID, LAST_UPDATED)}


def _partitions(numbers: Sequence[tuple[Numbers, int]]) -> pa.Array | None:
    """The number of the partition of each row; None if all rows have the same."""
    if all(isinstance(number, int) for number, _ in numbers) and len({number for number, _ in numbers}) <= 1:
        return None
    return pa.concat_arrays(
        pa.repeat(pa.scalar(number, pa.int32()), count) if isinstance(number, int) else number
        for number, count in numbers
    )
