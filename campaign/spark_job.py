"""A driver of Spark that writes numbers into ``lake.t``, to be killed:
``python -m campaign.spark_job WAREHOUSE CHECKPOINT KIND``. Its query is started again whenever it fails. The kind
``reads`` appends, and reads the table all the time; the file ``reads`` has a line for each read that came to its end.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from calving.engine.spark import LOCAL_JAVA

BATCH = 10
TABLE, SINK = "lake.t", "numbers"
KEYS, DELETED = 7, 5
"""Changes: the number of keys, and of how many changes one deletes."""
_LOOK_SECONDS = 1
READS = "reads"
"""The file of reads, beside the warehouse; and the line of one that was right."""
RIGHT = "right"
_KILLED = (PySparkException, Py4JJavaError)
"""What Spark raises where a process of Python was killed; of one that planned, the error has no name in Python."""
Kind = Literal["append", "upserts", "changes", "cdc", "reads"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_KEYED = (f"value % {KEYS} AS id", "value AS seq")
_OPERATION = f"IF(value % {DELETED} = 0, 'D', 'U') AS op"
_COLUMNS = {
    "append": ("value",),
    "reads": ("value",),
    "upserts": _KEYED,
    "changes": (*_KEYED, _OPERATION),
    "cdc": (*_KEYED, _OPERATION),
}
_OPTIONS: dict[str, dict[str, str]] = {
    "append": {},
    "reads": {},
    "upserts": {"keys": "id", "sequence_by": "seq"},
    "changes": {"keys": "id", "sequence_by": "seq", "apply_as_deletes": "op = 'D'"},
    "cdc": {"id-columns": "id", "order-field": "seq", "cdc-field": "op"},
}


def catalog(folder: Path) -> dict[str, str]:
    """The options of a catalog in a folder."""
    uri = f"sqlite:///{folder}/catalog.db?timeout=60"
    return {"catalog.type": "sql", "catalog.uri": uri, "catalog.warehouse": f"file://{folder}"}


def expected(kind: Kind, batches: int) -> list[tuple[int, ...]]:
    """The rows of a table that has so many batches, in order."""
    values = range(batches * BATCH)
    if kind in ("append", "reads"):
        return [(value,) for value in values]
    last = {value % KEYS: value for value in values}
    return sorted((key, value) for key, value in last.items() if value % DELETED or kind == "upserts")


def judged(values: Sequence[int]) -> str:
    """Whether a read has found the rows of whole batches, each once: the line about it."""
    return RIGHT if sorted(values) == [*range(len(values))] and len(values) % BATCH == 0 else f"wrong: {values}"


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
            query = writer.start(TABLE)
            while not query.awaitTermination(_LOOK_SECONDS):
                if kind == "reads":
                    _read(session, folder)
        except _KILLED as failure:
            print(failure, file=sys.stderr, flush=True)


def _read(session: SparkSession, folder: Path) -> None:
    try:
        rows = session.read.format("calving").options(**catalog(folder)).load(TABLE).collect()
    except _KILLED as failure:  # whoever reads is killed, too; it reads again
        print(failure, file=sys.stderr, flush=True)
        return
    with (folder.parent / READS).open("a") as file:
        file.write(f"{judged([row['value'] for row in rows])}\n")


if __name__ == "__main__":
    main()
