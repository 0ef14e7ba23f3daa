"""A driver of Spark that writes Parquet files as a stream into a table, each micro-batch some files:
``python -m bench.spark_writer FORMAT SOURCE WAREHOUSE CHECKPOINT``. Formats: ``calving``; ``iceberg``, which is that of
Iceberg's own runtime; ``parquet``, Spark's own files; ``empty``, a sink in Python that takes the rows and writes
nothing; ``noop``, to which no row comes. Prints the seconds of the batches, as JSON.
"""

from __future__ import annotations

import json
import sys
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from harness import spark_reader

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

TABLE = "bench.events"
FILES_OF_A_BATCH = 4


class EmptyWriter(DataSourceStreamArrowWriter):
    """Takes the rows."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]  # as in Spark
        for _ in iterator:
            pass
        return WriterCommitMessage()


class EmptySource(DataSource):
    """What every sink in Python costs."""

    @classmethod
    def name(cls) -> str:
        return "empty"

    def streamWriter(self, schema: StructType, overwrite: bool) -> EmptyWriter:  # noqa: N802 - as in Spark
        return EmptyWriter()


def main() -> None:
    name, source, warehouse, checkpoint = sys.argv[1:]
    with _session(name, warehouse) as spark:
        spark.sparkContext.setLogLevel("ERROR")
        schema = spark.read.parquet(source).schema
        spark.dataSource.register(EmptySource)
        rows = spark.readStream.schema(schema).option("maxFilesPerTrigger", FILES_OF_A_BATCH).parquet(source)
        writer = rows.writeStream.format(name).option("checkpointLocation", checkpoint).trigger(availableNow=True)
        if name == "iceberg":
            query = writer.toTable(f"iceberg.{TABLE}")
        elif name == "calving":
            catalog = {"catalog.type": "embedded", "catalog.warehouse": warehouse}
            query = writer.options(**catalog, sink="bench").start(TABLE)
        elif name == "parquet":
            query = writer.start(f"{warehouse}/parquet")
        else:
            query = writer.start()
        query.awaitTermination()
        seconds = [each.durationMs["triggerExecution"] / 1000 for each in query.recentProgress if each.numInputRows]
    print(json.dumps(seconds), flush=True)


def _session(name: str, warehouse: str) -> AbstractContextManager[SparkSession]:
    """Java's options are its defaults, as users have them: those of tests make a start short, and rows dear."""
    return spark_reader.session(str(Path(warehouse)), java="") if name == "iceberg" else _without_jars()


@contextmanager
def _without_jars() -> Iterator[SparkSession]:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
    spark = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
