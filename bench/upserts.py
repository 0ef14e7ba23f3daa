"""The whole sink with rows that records replace, beside the same records as rows that are appended."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime

import pyarrow as pa
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import DoubleType, LongType, NestedField, StringType, TimestamptzType

from calving.source.client import client_config

LIVE = 1_000_000
"""Rows that the table has at the start."""
_SHARE = 0.1
"""Of the records that change one of these rows; the others are new ones."""
_COLUMNS = {"id": LongType(), "ts": TimestamptzType(), "user": StringType(), "type": StringType()}
_COLUMNS |= {"amount": DoubleType(), "payload": StringType()}
SCHEMA = Schema(*(NestedField(i, name, kind, required=False) for i, (name, kind) in enumerate(_COLUMNS.items(), 1)))
Record = Callable[[int, str, str], bytes]


def changes_and_inserts(records: int) -> Iterator[int]:
    """The id of each record: of a live row, or a new one."""
    chance = random.Random(1)
    for new in range(LIVE, LIVE + records):
        yield chance.randrange(LIVE) if chance.random() < _SHARE else new


def changes(records: int) -> Iterator[int]:
    """The id of each record, of a live row."""
    chance = random.Random(2)
    for _ in range(records):
        yield chance.randrange(LIVE)


def fill(servers: str, topic: str, ids: Iterable[int], partitions: int, record: Record) -> int:
    """Send a record for each id, each id to one partition; returns how many rows the table has afterwards."""
    admin = AdminClient(client_config({"bootstrap.servers": servers}))
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result()
    producer = Producer(client_config({"bootstrap.servers": servers}, linger_ms=50, compression_type="lz4"))
    letters = random.Random(1)
    payloads = ["".join(letters.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=80)) for _ in range(1000)]
    rows = LIVE
    for place, number in enumerate(ids):
        rows += number >= LIVE
        value = record(number, "epoch", payloads[place % 1000])
        while True:
            try:
                producer.produce(topic, value, str(number).encode(), partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.2)
    producer.flush()
    return rows


def make_live(table: Table, rows: int = LIVE) -> None:
    """The rows with which it starts, 100,000 in a file."""
    size = 100_000
    for start in range(0, rows, size):
        ids = pa.arange(start, start + size)
        now = pa.array([datetime(2026, 1, 1, tzinfo=UTC)] * size, pa.timestamp("us", "UTC"))
        name = ids.cast(pa.string())
        table.append(pa.table([ids, now, name, name, ids.cast(pa.float64()), name], names=table.schema().column_names))
