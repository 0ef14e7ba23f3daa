"""Tasks on classic Spark. Plain Python rows: to plan SQL for a handful of tasks costs more than to run them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from zlib import crc32

from pyspark import RDD, SparkContext, StorageLevel

from calving.data.ranges import Place
from calving.engine import shipping
from calving.engine.shipping import Sent


def run(context: SparkContext, texts: Sequence[str]) -> list[str]:
    """The results of all tasks."""
    return list(context.parallelize(texts, len(texts)).map(shipping.run).collect())


def shuffle(context: SparkContext, texts: Sequence[str], slots: int) -> list[str]:
    """The results of all tasks, and of the ``slots`` that write what those have read."""
    sent = context.parallelize(texts, len(texts)).flatMap(shipping.send)
    if not shipping.has_ranges(texts[0]):
        return _received(sent, texts[0], slots, {})
    sent = sent.persist(StorageLevel.DISK_ONLY)
    try:
        samples = sent.filter(lambda each: each[0] == shipping.SAMPLES).collect()
        how = shipping.plan(texts[0], samples, slots)
        return _received(sent.mapPartitions(partial(shipping.cut, texts[0], how)), texts[0], slots, how.receivers)
    finally:
        sent.unpersist()


def _received(sent: RDD[Sent], text: str, slots: int, receivers: Mapping[Place, int]) -> list[str]:
    # Sorted, so that a receiver has one file open at a time; what does not fit into memory is on disk meanwhile.
    placed = sent.map(lambda each: (each[:2], each[2]))
    received = placed.repartitionAndSortWithinPartitions(slots, partial(_receiver, receivers))
    return list(received.mapPartitions(partial(_receive, text)).collect())


def _receiver(receivers: Mapping[Place, int], place: Place) -> int:
    found = receivers.get(place)
    return crc32("\0".join(place).encode()) if found is None else found


def _receive(text: str, found: Iterable[tuple[Place, bytes]]) -> list[str]:
    sent: Iterator[Sent] = ((*place, rows) for place, rows in found)
    return shipping.receive(text, sent)
