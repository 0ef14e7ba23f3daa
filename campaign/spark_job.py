"""A driver of Spark that writes numbers into ``lake.t``, to be killed:
``python -m campaign.spark_job WAREHOUSE CHECKPOINT KIND``. Its query is started again whenever it fails.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal, get_args

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from calving.engine.spark import LOCAL_JAVA

BATCH = 10
TABLE, SINK = "lake.t", "numbers"
KEYS, DELETED = 7, 5
"""Changes: the number of keys, and of how many changes one deletes."""
Kind = Literal["append", "changes"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_COLUMNS = {
    "append": ("value",),
    "changes": (
        f"value % {KEYS} AS id",
        "value AS seq",
        f"IF(value % {DELETED} = 0, 'D', 'U') AS op",
    ),
}
_OPTIONS: dict[str, dict[str, str]] = {
    "append": {},
    "changes": {"keys": "id", "sequence_by": "seq", "apply_as_deletes": "op = 'D'"},
}


def catalog(folder: Path) -> dict[str, str]:
    """The options of a catalog in a folder."""
    uri = f"sqlite:///{folder}/catalog.db?timeout=60"
    return {"catalog.type": "sql", "catalog.uri": uri, "catalog.warehouse": f"file://{folder}"}


def expected(kind: Kind, batches: int) -> list[tuple[int, ...]]:
    """The rows of a table that has so many batches, in order."""
    values = range(batches * BATCH)
    if kind == "append":
        return [(value,) for value in values]
    last = {value % KEYS: value for value in values}
    return sorted((key, value) for key, value in last.items() if value % DELETED)


def main() -> None:
    folder, checkpoint, kind = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    # No archive of classes: a driver that is killed while it writes one leaves none to the next.
    settings = {
        "spark.driver.extraJavaOptions": LOCAL_JAVA,
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
    }
    builder = SparkSession.builder.master("local[2, 2]").config("spark.driver.bindAddress", "127.0.0.1")
    for name, text in settings.items():
        builder = builder.config(name, text)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    source = session.readStream.format("rate-micro-batch").option("rowsPerBatch", BATCH).option("numPartitions", 2)
    rows = source.load().selectExpr(*_COLUMNS[kind])
    options = {**catalog(folder), **_OPTIONS[kind], "auto-create-enabled": "true", "sink": SINK}
    writer = rows.writeStream.format("calving").options(**options).option("checkpointLocation", checkpoint)
    writer = writer.trigger(processingTime="50 milliseconds")
    while True:
        try:
            writer.start(TABLE).awaitTermination()
        except StreamingQueryException as failure:
            print(failure, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
