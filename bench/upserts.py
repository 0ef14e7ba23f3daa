"""The whole sink with rows that records replace, beside the same records as rows that are appended."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise

import pyarrow as pa
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyiceberg.table import Table

from calving.source.client import client_config

LIVE = 1_000_000
"""Rows that the table has at the start."""
_SHARE = 0.1
"""Of the records that change one of these rows; the others are new ones."""
Record = Callable[[int, str, str], bytes]


def numbers(records: int) -> Iterator[int]:
    """The id of each record."""
    chance = random.Random(1)
    for new in range(LIVE, LIVE + records):
        yield chance.randrange(LIVE) if chance.random() < _SHARE else new


def fill(servers: str, topic: str, records: int, partitions: int, record: Record) -> int:
    """Send them, each id to one partition; returns how many rows the table has afterwards."""
    admin = AdminClient(client_config({"bootstrap.servers": servers}))
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result()
    producer = Producer(client_config({"bootstrap.servers": servers}, linger_ms=50, compression_type="lz4"))
    letters = random.Random(1)
    payloads = ["".join(letters.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=80)) for _ in range(1000)]
    rows = LIVE
    for place, number in enumerate(numbers(records)):
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


@dataclass(frozen=True, slots=True)
class Steady:
    """So many upserts a second of random rows out of a table, and how long."""

    rate: int = 500
    rows: int = 4_000_000
    seconds: int = 60


def send_steadily(servers: str, topic: str, load: Steady, record: Record, until: Callable[[], bool]) -> int:
    """Send until this is so; returns how many were sent."""
    producer = Producer(client_config({"bootstrap.servers": servers}, linger_ms=5, enable_idempotence=True))
    chance, sent, started = random.Random(1), 0, time.monotonic()
    while not until():
        while sent < (time.monotonic() - started) * load.rate:
            number = chance.randrange(load.rows)
            producer.produce(topic, record(number, "epoch", "x" * 80), str(number).encode(), partition=number % 4)
            sent += 1
        producer.poll(0.02)
    producer.flush()
    return sent


def steadiness(table: Table) -> dict[str, float]:
    """Seconds between the commits of a sink from ten seconds after its first one, and what they took."""
    made = [each for each in table.metadata.snapshots if each.summary and "calving.mutations.keys" in each.summary]
    begin = made[0].timestamp_ms + 10_000
    later = [each for each in made if each.timestamp_ms >= begin]
    gaps = sorted((b.timestamp_ms - a.timestamp_ms) / 1000 for a, b in pairwise(later))
    names = ("load-ms", "resolve-ms", "write-ms")
    taken = sorted(sum(int(e.summary[f"calving.mutations.{n}"] or 0) for n in names) / 1000 for e in later if e.summary)
    keys = sorted(int(each.summary["calving.mutations.keys"] or 0) for each in later if each.summary)
    return {
        "commits": len(later),
        "between commits p50": gaps[len(gaps) // 2],
        "between commits p99": gaps[len(gaps) * 99 // 100],
        "between commits max": gaps[-1],
        "load, resolve and write p50": taken[len(taken) // 2],
        "load, resolve and write max": taken[-1],
        "keys a commit p50": keys[len(keys) // 2],
    }
