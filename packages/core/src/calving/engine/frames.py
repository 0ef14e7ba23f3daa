"""Tasks on Spark Connect, which knows only frames: Arrow batches of texts, mapped by functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import SparkSession

from calving.engine import shipping

_PLACE = ("tbl", "part")
_PARCELS = 64
"""Parcels that a receiver is handed at once; Spark's own 10,000 could be gigabytes."""


def prepare(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(_PARCELS))


def run(spark: SparkSession, texts: Sequence[str]) -> list[str]:
    """The results of all tasks."""
    frame = spark.range(len(texts), numPartitions=len(texts))
    done = frame.mapInArrow(partial(_run, texts), "result string")
    return [row.result for row in done.collect()]


def shuffle(spark: SparkSession, texts: Sequence[str], slots: int) -> list[str]:
    """The results of all tasks, and of the ``slots`` that write what those have read."""
    frame = spark.range(len(texts), numPartitions=len(texts))
    sent = frame.mapInArrow(partial(_send, texts), "tbl string, part string, content binary")
    # Sorted, so that a receiver has one file open at a time.
    received = sent.repartition(slots, *_PLACE).sortWithinPartitions(*_PLACE)
    done = received.mapInArrow(partial(_receive, texts[0]), "result string")
    return [row.result for row in done.collect()]


def _run(texts: Sequence[str], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for number in _numbers(batches):
        yield pa.RecordBatch.from_pydict({"result": [shipping.run(texts[number])]})


def _send(texts: Sequence[str], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for number in _numbers(batches):
        for sent in shipping.send(texts[number]):
            yield pa.RecordBatch.from_arrays([[value] for value in sent], names=[*_PLACE, "content"])


def _receive(text: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    sent = (row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns), strict=True))
    yield pa.RecordBatch.from_pydict({"result": shipping.receive(text, sent)})


def _numbers(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column("id").to_pylist()
