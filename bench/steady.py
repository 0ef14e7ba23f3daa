"""Upserts of random rows of a large table, all the time, with a commit interval of one second."""

from __future__ import annotations

import json
import random
import threading
import time
from itertools import pairwise
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyiceberg.table import Table
from rich.console import Console

from bench import latency, meter
from bench.upserts import SCHEMA, make_live
from calving.iceberg.catalog import find_table, open_catalog
from calving.iceberg.summary import mutations_in
from calving.services.kafka import kafka
from calving.source.client import client_config

RATE, ROWS, SECONDS = 500, 4_000_000, 60
"""Upserts a second, rows, and how long once the first of them are committed."""
_TOPIC, _PARTITIONS = "steady", 2
_SETTLING_MS = 10_000


def measure(folder: Path, console: Console, calving: Path) -> object:
    """Seconds between two commits, and what they took; CPU and memory of the whole process tree."""
    keys = {"type": "embedded", "warehouse": str(folder / "warehouse")}
    catalog = open_catalog("iceberg", keys)
    catalog.create_namespace("bench")
    make_live(catalog.create_table(latency.TABLE, SCHEMA), ROWS)
    with kafka(folder / "kafka") as servers:
        admin = AdminClient(client_config({"bootstrap.servers": servers}))
        admin.create_topics([NewTopic(_TOPIC, _PARTITIONS, 1)])[_TOPIC].result()
        config = folder / "steady.json"
        config.write_text(json.dumps(_settings(servers, keys)))
        end = threading.Event()
        sending = threading.Thread(target=send, args=(servers, _TOPIC, end))
        sending.start()
        first: list[float] = []

        def done() -> bool:
            table = find_table(catalog, latency.TABLE)
            if table is not None and commits(table):
                first.append(time.monotonic())
            return bool(first) and time.monotonic() > first[0] + SECONDS

        log = Path("bench-results") / "steady.log"
        log.parent.mkdir(exist_ok=True)
        try:
            usage = meter.run([str(calving), "run", str(config)], log, {"CALVING_LOG_LEVEL": "INFO"}, done)
        finally:
            end.set()
            sending.join()
    found = {
        **_told(catalog.load_table(latency.TABLE)),
        "CPU seconds of all": round(usage.cpu_seconds, 1),
        "seconds": round(usage.wall_seconds, 1),
        "peak MiB of all": round(usage.peak_bytes / 2**20),
    }
    console.print(f"{RATE} upserts/s into {ROWS:,} rows, commit interval 1 s: {found}")
    return found


def _settings(servers: str, keys: dict[str, str]) -> dict[str, object]:
    upserts = {"iceberg.tables.upsert-mode-enabled": True, "iceberg.tables.default-id-columns": "id"}
    return latency.settings(servers, _TOPIC, keys) | upserts


def send(servers: str, topic: str, end: threading.Event) -> None:
    """Upserts at the rate, until the event is set."""
    producer = Producer(client_config({"bootstrap.servers": servers}, linger_ms=5, enable_idempotence=True))
    chance, sent, started = random.Random(1), 0, time.monotonic()
    while not end.wait(0.02):
        while sent < (time.monotonic() - started) * RATE:
            number = chance.randrange(ROWS)
            value = json.dumps({"id": number, "user": f"user {sent}", "amount": sent / 100})
            producer.produce(topic, value, str(number).encode(), partition=number % _PARTITIONS)
            sent += 1
        producer.poll(0)
    producer.flush()


def commits(table: Table) -> list[tuple[int, dict[str, int]]]:
    """Of the sink: when, in milliseconds, and what each did to rows."""
    found = (
        (each.timestamp_ms, mutations_in(each.summary.additional_properties))
        for each in table.metadata.snapshots
        if each.summary is not None
    )
    return [(at, told) for at, told in found if told]


def _told(table: Table) -> dict[str, float]:
    """Without the first ten seconds, in which it takes what has piled up."""
    made = commits(table)
    later = [(at, told) for at, told in made if at >= made[0][0] + _SETTLING_MS]
    gaps = sorted((b - a) / 1000 for (a, _), (b, _) in pairwise(later))
    work = sorted((told["load-ms"] + told["resolve-ms"] + told["write-ms"]) / 1000 for _, told in later)
    keys = sorted(told["keys"] for _, told in later)
    return {
        "commits": len(later),
        "between commits p50": gaps[len(gaps) // 2],
        "between commits p99": gaps[len(gaps) * 99 // 100],
        "load, resolve and write p50": work[len(work) // 2],
        "load, resolve and write max": work[-1],
        "keys of a commit p50": keys[len(keys) // 2],
    }
