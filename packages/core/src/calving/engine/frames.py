"""Tasks on Spark Connect, which knows only frames: Arrow batches of texts, mapped by functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from calving.data.ranges import Cuts
from calving.engine import shipping
from calving.engine.shipping import Sent

_PLACE = ("tbl", "place")
_SENT = "tbl string, place string, content binary"
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
    sent = frame.mapInArrow(partial(_send, texts), _SENT)
    if not shipping.has_ranges(texts[0]):
        return _received(sent, texts[0], slots)
    sent = sent.persist(StorageLevel.DISK_ONLY)
    try:
        samples = [(row.tbl, row.place, row.content) for row in sent.filter(sent.tbl == shipping.SAMPLES).collect()]
        how = shipping.plan(texts[0], samples, slots)
        return _received(sent.mapInArrow(partial(_cut, texts[0], how), _SENT), texts[0], slots)
    finally:
        sent.unpersist()


def _received(sent: DataFrame, text: str, slots: int) -> list[str]:
    # Sorted, so that a receiver has one file open at a time.
    received = sent.repartition(slots, *_PLACE).sortWithinPartitions(*_PLACE)
    done = received.mapInArrow(partial(_receive, text), "result string")
    return [row.result for row in done.collect()]


def _run(texts: Sequence[str], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for number in _numbers(batches):
        yield pa.RecordBatch.from_pydict({"result": [shipping.run(texts[number])]})


def _send(texts: Sequence[str], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for number in _numbers(batches):
        for sent in shipping.send(texts[number]):
            yield _row(sent)


def _cut(text: str, how: Cuts, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from map(_row, shipping.cut(text, how, _rows(batches)))


def _receive(text: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"result": shipping.receive(text, _rows(batches))})


def _row(sent: Sent) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([[value] for value in sent], names=[*_PLACE, "content"])


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[Sent]:
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _numbers(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column("id").to_pylist()
