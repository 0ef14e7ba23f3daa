"""Tasks on classic Spark. Plain Python rows: to plan SQL for a handful of tasks costs more than to run them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from zlib import crc32

from pyspark import SparkContext

from calving.engine import shipping
from calving.engine.shipping import Sent

_Place = tuple[str, str]


def run(context: SparkContext, texts: Sequence[str]) -> list[str]:
    """The results of all tasks."""
    return list(context.parallelize(texts, len(texts)).map(shipping.run).collect())


def shuffle(context: SparkContext, texts: Sequence[str], slots: int) -> list[str]:
    """The results of all tasks, and of the ``slots`` that write what those have read."""
    sent = context.parallelize(texts, len(texts)).flatMap(_send)
    # Sorted, so that a receiver has one file open at a time; what does not fit into memory is on disk meanwhile.
    received = sent.repartitionAndSortWithinPartitions(slots, _receiver)
    return list(received.mapPartitions(partial(_receive, texts[0])).collect())


def _send(text: str) -> Iterator[tuple[_Place, bytes]]:
    for table, partition, rows in shipping.send(text):
        yield (table, partition), rows


def _receiver(place: _Place) -> int:
    return crc32("\0".join(place).encode())


def _receive(text: str, found: Iterable[tuple[_Place, bytes]]) -> list[str]:
    sent: Iterator[Sent] = ((*place, rows) for place, rows in found)
    return shipping.receive(text, sent)
