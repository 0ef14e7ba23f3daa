"""A driver of Spark that writes numbers into ``lake.t``, to be killed: ``python -m tests.spark.job WAREHOUSE CHECKPOINT``."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

from harness.jvm import spark
from tests.spark.lake import SparkLake

BATCH = 10


def main() -> None:
    lake, checkpoint = SparkLake(Path(sys.argv[1])), sys.argv[2]
    settings = {**spark(), "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1"}
    builder = SparkSession.builder.master("local[2]").config("spark.driver.bindAddress", "127.0.0.1")
    for name, text in settings.items():
        builder = builder.config(name, text)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    source = session.readStream.format("rate-micro-batch").option("rowsPerBatch", BATCH).option("numPartitions", 2)
    writer = source.load().select("value").writeStream.format("calving").options(**lake.options)
    writer.option("sink", "numbers").option("checkpointLocation", checkpoint).trigger(
        processingTime="50 milliseconds"
    ).start("lake.t")
    while True:
        time.sleep(1)


if __name__ == "__main__":
    main()
