"""Reads the files of one task. Never calls a catalog."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.table.name_mapping import parse_mapping_from_json
from pyroaring import BitMap64
from pyspark.sql.types import StructType

from calving.iceberg.delete_files import read_positions
from calving.mutations.rows import RowReader, live_rows
from calving.records.fields import table_schema
from calving_spark.columns import row_type
from calving_spark.hosts import check_version
from calving_spark.scans import FileToRead, ScannedTable
from calving_spark.table_columns import as_spark


def rows_of(
    table: ScannedTable, schema: StructType, version: str, files: Sequence[FileToRead]
) -> Iterator[pa.RecordBatch]:
    """The live rows of the files, as Spark takes them. ``version``: of calving on the driver.

    :raises TableTroubleError: a file cannot be read without a loss.
    """
    check_version(version)
    io = load_file_io(dict(table.io_properties), table.location)
    mapped = tuple(parse_mapping_from_json(table.mapping_json).root) if table.mapping_json is not None else ()
    reader = RowReader(io, table_schema(table.schema_json), mapped)
    wanted = pa.schema([*row_type(table.name, schema)])
    for file in files:
        for rows in _live(reader, io, file):
            columns = [as_spark(column, field.type) for column, field in zip(rows.columns, wanted, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, schema=wanted)


def _live(reader: RowReader, io: FileIO, file: FileToRead) -> Iterator[pa.RecordBatch]:
    gone = BitMap64.deserialize(file.deleted) if file.deleted else BitMap64()
    for delete in file.deletes:
        gone |= read_positions(io, delete, file.path)
    batches = reader.batches(file.path, file.file_format, dict(file.constants))
    return live_rows(batches, gone.to_array(), file.path, file.records)
