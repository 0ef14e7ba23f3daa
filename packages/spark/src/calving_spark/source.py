"""The data source ``calving``. Spark makes it from options, in a process of Python beside the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from calving.errors import ConfigError
from calving.lean import freeze_imports, without_pandas
from calving_spark.masking import no_secrets_in_errors

if TYPE_CHECKING:
    from calving_spark.readers import TableReader
    from calving_spark.writers import BatchWriter, StreamWriter


class DefaultSource(DataSource):
    """Rows of a table of Iceberg."""

    _pinned: int | None = None
    """The snapshot of which Spark was told the columns. A DataFrame stays with it."""

    @classmethod
    def name(cls) -> str:
        return "calving"

    @no_secrets_in_errors()
    def schema(self) -> StructType:
        """The columns to read.

        :raises ConfigError: the options must be changed, or the table has nothing that they name.
        """
        without_pandas()
        from calving_spark.options import read_of_scan
        from calving_spark.scans import Scan
        from calving_spark.table_columns import chosen, frame_schema

        options = read_of_scan(self.options)
        scan, keys = Scan(options), options.keys
        self._pinned = scan.snapshot
        return frame_schema(keys.table, chosen(keys.table, scan.schema, keys.columns or scan.names))

    @no_secrets_in_errors()
    def reader(self, schema: StructType) -> TableReader:
        """:raises ConfigError: the options must be changed, or the table has nothing that they name."""
        without_pandas()
        from calving_spark.options import read_of_scan
        from calving_spark.readers import reader_for
        from calving_spark.scans import Scan

        options = read_of_scan(self.options)
        return reader_for(options, Scan(options, self._pinned), schema)

    def streamReader(self, schema: StructType) -> NoReturn:  # noqa: N802 - as in Spark
        """:raises ConfigError: always."""
        raise ConfigError("calving reads no stream out of a table: use spark.read, or Iceberg's own runtime")

    @no_secrets_in_errors()
    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """:raises ConfigError: the options or the table must be changed; no task has run."""
        without_pandas()
        from calving_spark.options import read
        from calving_spark.planning import plan
        from calving_spark.writers import BatchWriter

        if overwrite:
            raise ConfigError('mode("overwrite") would replace the table: use mode("append")')
        options = read(self.options)
        return BatchWriter(options, plan(options, schema))

    @no_secrets_in_errors()
    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802 - as in Spark
        """:raises ConfigError: the options or the table must be changed; no task has run."""
        without_pandas()
        from calving_spark.options import read
        from calving_spark.planning import plan
        from calving_spark.writers import StreamWriter

        if overwrite:
            raise ConfigError("output mode complete would replace the table: use append")
        freeze_imports("planning")
        options = read(self.options)
        if options.keys.write_id is not None:
            raise ConfigError("option write-id is for batch writes: a stream has its ledger by its sink's name")
        return StreamWriter(options, plan(options, schema))
