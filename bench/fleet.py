"""What several sinks on one machine cost: memory and CPU of their drivers, idle and busy."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from calving.iceberg.catalog import find_table, open_catalog
from calving.services.kafka import kafka
from calving.services.process import Process
from calving.source.client import client_config
from harness.processes import descendants, tree_cpu
from harness.waiting import wait_for

CASES, SECONDS, RATE = (("spark", 1), ("spark", 4), ("local", 4)), 40, 200
"""Engines and numbers of sinks; how long each state is measured; records a second for each busy sink."""
_TABLE, _START_SECONDS = ("bench", "t"), 600


def measure(folder: Path, calving: Path, console: Console) -> list[dict[str, object]]:
    """For each number of sinks: the memory of all their processes, and their CPU, idle and busy."""
    folder.mkdir(parents=True)
    found: list[dict[str, object]] = []
    with kafka(folder / "kafka") as servers:
        for engine, count in CASES:
            found += _fleet(folder / f"{engine}-{count}", servers, calving, engine, count)
    table = Table(*found[0], title=f"Sinks on one machine, commit interval 10 s; busy: {RATE} records/s for each")
    for row in found:
        table.add_row(*map(str, row.values()))
    console.print(table)
    return found


def _fleet(folder: Path, servers: str, calving: Path, engine: str, count: int) -> Iterator[dict[str, object]]:
    topics = [f"{folder.name}-{n}" for n in range(count)]
    with contextlib.ExitStack() as running:
        sinks = [running.enter_context(_sink(folder / t, servers, calving, engine, t)) for t in topics]
        # Until they are idle, after the import of all that a first batch and a first commit need.
        time.sleep(SECONDS / 2)
        yield {"engine": engine, "sinks": count, "state": "idle", **_usage(sinks)}
        with _sending(servers, topics):
            time.sleep(SECONDS / 2)
            yield {"engine": engine, "sinks": count, "state": "busy", **_usage(sinks)}


@contextlib.contextmanager
def _sink(folder: Path, servers: str, calving: Path, engine: str, topic: str) -> Iterator[Process]:
    """A sink that runs, and has committed its first record."""
    folder.mkdir(parents=True)
    admin = AdminClient(client_config({"bootstrap.servers": servers}))
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result()
    producer = Producer(client_config({"bootstrap.servers": servers}))
    producer.produce(topic, json.dumps({"id": 0, "text": "first"}))
    producer.flush()
    keys = {"type": "embedded", "warehouse": str(folder / "warehouse")}
    config = folder / "sink.json"
    config.write_text(
        json.dumps(
            {
                "name": topic,
                "topics": topic,
                "iceberg.tables": ".".join(_TABLE),
                "iceberg.tables.auto-create-enabled": True,
                "iceberg.engine": engine,
                "iceberg.control.topic": f"control-{topic}",
                "iceberg.control.commit.interval-ms": 10_000,
                "iceberg.http.port": 0,
                "value.converter": "json",
                "kafka.bootstrap.servers": servers,
                "spark.master": "local[2]",
                **{f"iceberg.catalog.{name}": text for name, text in keys.items()},
            }
        )
    )
    catalog = open_catalog("iceberg", keys)
    process = Process([str(calving), "run", str(config)], folder / "sink.log", {})
    try:
        wait_for(lambda: (table := find_table(catalog, _TABLE)) and table.current_snapshot(), _START_SECONDS)
        yield process
    finally:
        process.stop()


@contextlib.contextmanager
def _sending(servers: str, topics: Sequence[str]) -> Iterator[None]:
    end = threading.Event()
    thread = threading.Thread(target=_send, args=(servers, topics, end))
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


def _send(servers: str, topics: Sequence[str], end: threading.Event) -> None:
    producer = Producer(client_config({"bootstrap.servers": servers}, linger_ms=20))
    sent, started = 0, time.monotonic()
    while not end.wait(0.05):
        while sent < (time.monotonic() - started) * RATE:
            for topic in topics:
                producer.produce(topic, json.dumps({"id": sent, "text": f"record {sent}"}))
            sent += 1
        producer.poll(0)
    producer.flush(10)


def _usage(sinks: Sequence[Process]) -> dict[str, object]:
    """Over ``SECONDS``: per sink, MiB (shared pages are divided among those that share them), and CPU of a core."""
    cpu, started = sum(tree_cpu(sink.pid) for sink in sinks), time.monotonic()
    time.sleep(SECONDS)
    used, wall = sum(tree_cpu(sink.pid) for sink in sinks) - cpu, time.monotonic() - started
    memory = sum(_pss(pid) for sink in sinks for pid in descendants(sink.pid))
    return {
        "MiB of a sink": round(memory / 2**20 / len(sinks)),
        "processes of a sink": round(sum(len(descendants(sink.pid)) for sink in sinks) / len(sinks), 1),
        "% of a core of a sink": round(100 * used / wall / len(sinks), 1),
    }


def _pss(pid: int) -> int:
    """Bytes; 0 if the process has ended."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0
