"""Rewrites data files into few files of the same rows, with the table's properties of now.

Rows of one partition of the table's default spec are written in their order, as they are read. Otherwise they are
sorted: by the partition to which they go, then by the order that the strategy asks for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.locations import load_location_provider
from pyroaring import BitMap64

from calving.errors import BadRecordError, TableTroubleError
from calving.iceberg.live_files import LiveData
from calving.iceberg.manifests import LINEAGE_VERSION
from calving.maintenance.external_sort import ExternalSort
from calving.maintenance.outputs import LAST_UPDATED, LINEAGE, ROW_ID, OutputSpec
from calving.maintenance.permutation import ROWS, PermutationWriter
from calving.maintenance.translate import InputRows, OutputRows, RowPlaces
from calving.maintenance.z_order import SAMPLED, ZOrder, column_keys
from calving.model.files import DataFile, file_name
from calving.model.record_path import Limits
from calving.mutations.candidates import Candidate, identities
from calving.mutations.rows import RowReader, live_rows
from calving.records.fields import table_schema
from calving.writing.layout import Sorting, sorting
from calving.writing.partitioning import Numbers, divide
from calving.writing.table import TableWriter

T = TypeVar("T")
_AT_ONCE = 32 * 1024 * 1024
"""So many bytes of rows are sorted in memory. What is more is sorted on the local disk."""


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
        self, table: Table, inputs: Collection[LiveData], deletions: DeletedRows, spec: OutputSpec, /
    ) -> RewrittenRows: ...


class _SeveralPartitionsError(Exception):
    """Rows of one partition go to several."""


def rewrite(
    table: Table,
    inputs: Collection[LiveData],
    deletions: DeletedRows,
    spec: OutputSpec,
    limits: Limits = Limits(),  # noqa: B008 - it never changes
) -> RewrittenRows:
    """Write the live rows of these files of one head into new files. Memory is bounded by ``limits``, and while rows
    are sorted, by a few times ``_AT_ONCE``.

    :raises TableTroubleError: a file cannot be read, or written again, without a loss. Nothing is left behind.
    :raises Exception: the storage failed, with the storage's own error. Files are deleted if it allows that.
    """
    specs = {data.candidate.spec_id for data in inputs}
    if not spec.order and specs <= {table.metadata.default_spec_id}:
        with suppress(_SeveralPartitionsError):
            return _Rewriter(table, inputs, deletions, spec, limits).in_their_order()
    return _Rewriter(table, inputs, deletions, spec, limits).sorted()


class _Rewriter:
    """Rewrites some files once."""

    def __init__(
        self, table: Table, inputs: Collection[LiveData], deletions: DeletedRows, spec: OutputSpec, limits: Limits
    ) -> None:
        self._table, self._inputs, self._deletions = table, inputs, deletions
        self._spec, self._limits = spec, limits
        self._schema = table_schema(spec.table.schema_json)
        self._id = uuid4()
        self._writer = TableWriter(spec.table, 0, limits, self._id)
        self._partition: int | None = None
        """The partition that is written, by its number."""
        self._permutation: PermutationWriter | None = None
        self._taken: dict[str, InputRows] = {}
        self._count = 0

    def in_their_order(self) -> RewrittenRows:
        """:raises _SeveralPartitionsError: the rows do not go to one partition."""
        with self._discarding():
            for _, rows, numbers in self._placed():
                (number, *others) = [numbers] if isinstance(numbers, int) else numbers.unique().to_pylist()
                if others or self._partition not in (None, number):
                    raise _SeveralPartitionsError
                self._write(rows, number)
            return self._done(is_ordered=True)

    def sorted(self) -> RewrittenRows:
        """By their new partition, then in the order of the strategy, then as they were."""
        with self._discarding():
            for rows, numbers, places in self._in_new_order():
                for number, part in divide(rows, numbers):
                    self._write(part, number)
                if self._spec.tracks:
                    self._track(places)
            if self._permutation is not None:
                self._permutation.close()
            return self._done(is_ordered=False)

    def _in_new_order(self) -> Iterator[tuple[pa.RecordBatch, pa.Array, pa.Array]]:
        """Rows, their new partitions, and their numbers in the old order."""
        order = self._order()
        own = order.sort_keys if order is not None else ()
        with closing(ExternalSort([("partition", "ascending"), *own, ("row", "ascending")], _AT_ONCE)) as sort:
            for path, rows, numbers in self._placed():
                is_one = isinstance(numbers, int)
                keys = {"partition": pa.repeat(pa.scalar(numbers, pa.int32()), rows.num_rows) if is_one else numbers}
                if order is not None:
                    with _naming(path):
                        own_keys = order.keys(rows)
                    keys |= dict(zip(own_keys.schema.names, own_keys.columns, strict=True))
                keys["row"] = pa.arange(self._count - rows.num_rows, self._count)
                sort.add(pa.RecordBatch.from_pydict(keys), rows)
            for sorted_keys, rows in sort.sorted():
                yield rows, sorted_keys.column("partition"), sorted_keys.column("row")

    def _order(self) -> Sorting | ZOrder | None:
        if not self._spec.z_order:
            return sorting(self._spec.table)
        columns = [self._schema.find_field(name).field_id for name in self._spec.z_order]
        return ZOrder(self._schema, columns, self._sample(columns))

    def _sample(self, columns: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """The values of these columns in rows of all files, at even distances."""
        schema = self._table.metadata.schema().select(*self._spec.z_order)
        distance = max(1, sum(data.candidate.records for data in self._inputs) // SAMPLED)
        start = 0
        for data in self._inputs:
            for rows in _batches(self._table, data.candidate, schema):
                chosen = range(-start % distance, rows.num_rows, distance)
                start += rows.num_rows
                if chosen:
                    yield column_keys(schema, columns, rows.take(pa.array(chosen, pa.int64())))

    def _placed(self) -> Iterator[tuple[str, pa.RecordBatch, Numbers]]:
        """The live rows of each file as new files hold them, with their new partitions."""
        for data in self._inputs:
            file = data.candidate
            taken = InputRows(self._count, file.records, self._deletions.before(file.path))
            self._taken[file.path] = taken
            for rows in _live_rows(self._table, data, taken):
                with _naming(file.path):
                    placed, numbers = self._writer.prepare(rows)
                self._count += rows.num_rows
                yield file.path, placed, numbers

    def _write(self, rows: pa.RecordBatch, number: int) -> None:
        writer = self._writer
        if self._partition not in (None, number):
            writer.close()
        self._partition = number
        writer.accept((rows, number))
        while writer.buffered_bytes > self._limits.buffered_bytes:
            writer.flush_largest()

    def _track(self, places: pa.Array) -> None:
        if self._permutation is None:
            locations = load_location_provider(self._spec.table.location, dict(self._spec.table.properties))
            path = locations.new_data_location(file_name(0, self._id, 1, ROWS, "arrow"))
            self._permutation = PermutationWriter(self._table.io, path)
        self._permutation.add(places)

    def _done(self, *, is_ordered: bool) -> RewrittenRows:
        outputs = tuple(map(_without_lineage, self._writer.close()))
        if sum(output.record_count for output in outputs) != self._count:
            raise TableTroubleError(f"table {self._spec.table.name}: the new files do not hold the rows that were read")
        rows = tuple(OutputRows(output.file_path, output.record_count) for output in outputs)
        path = self._permutation.path if self._permutation is not None else None
        return RewrittenRows(outputs, self._taken, RowPlaces(rows, is_ordered, path))

    @contextmanager
    def _discarding(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._writer.discard()
            if self._permutation is not None:
                self._permutation.discard()
            raise


@contextmanager
def _naming(path: str) -> Iterator[None]:
    try:
        yield
    except BadRecordError as error:
        raise TableTroubleError(f"file {path} cannot be rewritten: {error}") from error


def _batches(table: Table, file: Candidate, schema: Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a file with the columns of a schema, in their order."""
    mapping, spec = table.name_mapping(), table.metadata.specs()[file.spec_id]
    constants = {each: file.partition[place] for each, place in identities(spec, schema.field_ids).items()}
    reader = RowReader(table.io, schema, tuple(mapping.root) if mapping is not None else ())
    return reader.batches(file.path, file.file_format, constants)


def _live_rows(table: Table, data: LiveData, taken: InputRows) -> Iterator[pa.RecordBatch]:
    """The rows of a file that are not deleted, with their lineage in version 3."""
    file, schema = data.candidate, table.metadata.schema()
    has_lineage = table.metadata.format_version >= LINEAGE_VERSION
    if has_lineage:
        schema = Schema(*schema.fields, *LINEAGE)
    batches = _batches(table, file, schema)
    if has_lineage:
        batches = _all_with_lineage(batches, data)
    return live_rows(batches, taken.deleted.to_array(), file.path, file.records)


def _all_with_lineage(batches: Iterator[pa.RecordBatch], data: LiveData) -> Iterator[pa.RecordBatch]:
    start = 0
    for rows in batches:
        yield _with_lineage(rows, data, start)
        start += rows.num_rows


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
