"""Turns key files into equality deletes for one head: in the partitions of their keys, or in all partitions (E2)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema, prune_columns
from pyiceberg.table import Table

from calving.errors import TableTroubleError
from calving.iceberg.locations import carried
from calving.iceberg.manifests import read_manifest_list
from calving.model.files import DELETES, DataFile, FileContent, PartitionTuple
from calving.model.record_path import Limits
from calving.model.tables import TableSpec
from calving.mutations.candidates import tells_partition
from calving.records.fields import arrow_schema
from calving.writing.identity import optional
from calving.writing.mutations import without_bloom_filters
from calving.writing.table import TableWriter

_FIELD_ID = b"PARQUET:field_id"


@dataclass(frozen=True, slots=True)
class Deletes:
    """The equality deletes of a snapshot. ``written``: the paths of those that were written for it. ``unused``: the
    paths of key files that the snapshot does not need.
    """

    files: tuple[DataFile, ...]
    written: tuple[str, ...]
    unused: tuple[str, ...]


class EqualityDeletes:
    """Makes deletes of key files, for one head of a table."""

    def __init__(self, table: Table, live: Collection[int]) -> None:
        """``live``: the ids of the specs of the live data files below these deletes.

        :raises TableTroubleError: the table has no spec for deletes that apply to all partitions.
        """
        specs = table.metadata.specs()
        self._table, self._live = table, [specs[spec_id] for spec_id in sorted(live)]
        everywhere = unpartitioned(specs.values())
        if everywhere is None:
            raise TableTroubleError(f"table {'.'.join(table.name())} has no spec without partitions any more")
        self._everywhere = everywhere

    def of(self, key_files: Iterable[DataFile]) -> Deletes:
        """The deletes for these key files. A delete applies to all partitions, because a row may have moved to any
        partition; unless the id columns determine the row's partition.
        """
        files: list[DataFile] = []
        written: list[str] = []
        unused: list[str] = []
        for file in key_files:
            divided = self._divided(file) if self._is_told_by(file.equality_ids or ()) else None
            if divided is None:
                files.append(replace(file, spec_id=self._everywhere, partition=PartitionTuple()))
                continue
            files += divided
            written += (made.file_path for made in divided)
            unused.append(file.file_path)
        return Deletes(tuple(files), tuple(written), tuple(unused))

    def _is_told_by(self, ids: Collection[int]) -> bool:
        return all(tells_partition(spec, ids) for spec in self._live)

    def _divided(self, file: DataFile) -> list[DataFile] | None:
        """The file's keys divided by partition, once for each spec; None if the file was written for other columns."""
        whole, ids = self._table.metadata.schema(), set(file.equality_ids or ())
        schema = optional(prune_columns(whole, ids), ids)
        made: list[DataFile] = []
        for spec in self._live:
            writer = TableWriter(self._as_written(schema, spec), 0, Limits(), kind=DELETES)
            for rows in _read(self._table.io, file.file_path, arrow_schema(schema)):
                if rows is None:
                    writer.discard()
                    return None
                writer.write(rows)
            made += writer.close()
        return [
            replace(each, content=FileContent.EQUALITY_DELETES, equality_ids=file.equality_ids, sort_order_id=None)
            for each in made
        ]

    def _as_written(self, schema: Schema, spec: PartitionSpec) -> TableSpec:
        table = self._table
        return TableSpec(
            ".".join(table.name()),
            schema.model_dump_json(),
            spec.model_dump_json(),
            table.metadata.location,
            {**without_bloom_filters(table.metadata.properties), "write.format.default": "parquet"},
            carried(table.io),
        )


def unpartitioned(specs: Iterable[PartitionSpec]) -> int | None:
    """The spec under which a delete applies to all partitions."""
    return next((spec.spec_id for spec in specs if not spec.fields), None)


def live_specs(table: Table, branch: str) -> set[int]:
    """The ids of the specs of the branch's live data files."""
    head = table.metadata.snapshot_by_name(branch)
    return {
        manifest.partition_spec_id
        for manifest in (read_manifest_list(table.io, head.manifest_list) if head is not None else ())
        if manifest.content == ManifestContent.DATA and (manifest.has_added_files() or manifest.has_existing_files())
    }


def _read(io: FileIO, path: str, schema: pa.Schema) -> Iterator[pa.RecordBatch | None]:
    """The rows of a key file in this schema; None for a batch that does not have its columns."""
    with io.new_input(path).open() as stream, pq.ParquetFile(stream) as file:
        for batch in file.iter_batches(use_threads=False):
            yield _fitted(batch, schema)


def _fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch | None:
    """The schema's columns, found by field id: since the file was written, a column may have been renamed or
    widened.
    """
    given = zip(batch.schema, batch.columns, strict=True)
    by_id = {(field.metadata or {}).get(_FIELD_ID): column for field, column in given}
    try:
        columns = [_cast(by_id[(field.metadata or {})[_FIELD_ID]], field.type) for field in schema]
    except (KeyError, pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return None
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type == kind else column.cast(kind)
