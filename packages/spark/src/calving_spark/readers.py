"""The reader that Spark calls. It is made where the catalog is, and travels to the tasks, which read files."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyiceberg.schema import Schema
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from calving.errors import ConfigError
from calving.lean import freeze_imports
from calving_spark import __version__
from calving_spark.conditions import condition
from calving_spark.masking import no_secrets_in_errors
from calving_spark.options import ReadOptions
from calving_spark.scans import FileToRead, Scan
from calving_spark.table_columns import chosen, frame_schema

if TYPE_CHECKING:
    import pyarrow as pa

_PUSHDOWN = "pyspark.sql.worker.data_source_pushdown_filters"
"""Spark's module that hands filters to readers. Spark runs it if spark.sql.python.filterPushdown.enabled is true, and
refuses readers that take filters if it is false.
"""


class FilesOfTask(InputPartition):
    """The files that one task reads."""

    def __init__(self, files: Sequence[FileToRead]) -> None:
        super().__init__(None)
        self.files = tuple(files)


class TableReader(DataSourceReader):
    """Reads one snapshot of a table."""

    def __init__(self, options: ReadOptions, scan: Scan, schema: StructType) -> None:
        """``schema``: the columns that Spark wants.

        :raises ConfigError: a column of the table is not as Spark believes.
        """
        columns = columns_for(options.keys.table, scan, schema)
        self._schema, self._version, self._table = schema, __version__, scan.scanned(columns)
        self._planning: tuple[Scan, Schema] | None = scan, columns
        self._filters: list[Filter] = []

    @no_secrets_in_errors()
    def partitions(self) -> Sequence[InputPartition]:
        """:raises TableTroubleError: files of the table cannot be read."""
        if self._planning is None:
            raise RuntimeError("only where it was made does a reader know the table's files")
        scan, columns = self._planning
        groups = scan.groups(columns, condition(scan.table.metadata, columns, self._filters))
        return [FilesOfTask(group) for group in groups]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """:raises TableTroubleError: a file cannot be read without a loss."""
        # Imported here, because planning reads no files.
        from calving_spark.reading import rows_of

        freeze_imports("tasks")
        # Spark makes up a partition if there is none.
        files = partition.files if isinstance(partition, FilesOfTask) else ()
        return rows_of(self._table, self._schema, self._version, files)

    def __getstate__(self) -> dict[str, Any]:
        """What tasks need: no catalog."""
        return {**self.__dict__, "_planning": None, "_filters": []}


class FilteredReader(TableReader):
    """Leaves out files in which no row passes Spark's filters."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - as in Spark
        """Spark applies all filters to the rows, too."""
        self._filters = list(filters)
        return filters


def reader_for(options: ReadOptions, scan: Scan, schema: StructType) -> TableReader:
    """A reader that takes filters, where Spark has some to hand over."""
    kind = FilteredReader if _PUSHDOWN in sys.modules else TableReader
    return kind(options, scan, schema)


def columns_for(table: str, scan: Scan, schema: StructType) -> Schema:
    """The table's columns that have these names.

    :raises ConfigError: there are none, or they have other types.
    """
    columns = chosen(table, scan.schema, schema.names)
    for wanted, there in zip(schema.fields, frame_schema(table, columns).fields, strict=True):
        if wanted.dataType != there.dataType:
            raise ConfigError(
                f"table {table}: column {there.name} is {there.dataType.simpleString()}, not"
                f" {wanted.dataType.simpleString()}: read it as it is, and cast it in the query"
            )
        if there.nullable and not wanted.nullable:
            raise ConfigError(
                f"table {table}: column {there.name} may be null, and the schema of this read says NOT NULL: Spark"
                " would find no nulls there; leave NOT NULL out"
            )
    return columns
