"""The data source ``calving``. Spark makes it from options, in a process of Python beside the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from calving.errors import ConfigError

if TYPE_CHECKING:
    from calving_spark.writers import BatchWriter, StreamWriter


class DefaultSource(DataSource):
    """Appends rows to a table of Iceberg."""

    @classmethod
    def name(cls) -> str:
        return "calving"

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """:raises ConfigError: the options or the table must be changed; no task has run."""
        from calving_spark.options import read
        from calving_spark.planning import plan
        from calving_spark.writers import BatchWriter

        if overwrite:
            raise ConfigError('mode("overwrite") would replace the table: use mode("append")')
        options = read(self.options)
        return BatchWriter(options, plan(options, schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802 - as in Spark
        """:raises ConfigError: the options or the table must be changed; no task has run."""
        from calving_spark.options import read
        from calving_spark.planning import plan
        from calving_spark.writers import StreamWriter

        if overwrite:
            raise ConfigError("output mode complete would replace the table: use append")
        options = read(self.options)
        if options.keys.write_id is not None:
            raise ConfigError("option write-id is for batch writes: a stream has its ledger by its sink's name")
        return StreamWriter(options, plan(options, schema))
