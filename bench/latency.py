"""A trickle of records and a commit interval of one second: how long from produce to visible, and does it hold."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import time
from bisect import bisect
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyiceberg.catalog import Catalog
from rich.console import Console
from rich.table import Table

from calving.iceberg.catalog import find_table, open_catalog
from calving.services.kafka import kafka
from calving.services.process import Process
from calving.source.client import client_config
from harness.locations import locations
from harness.processes import tree_cpu

TABLE = ("bench", "trickle")
_START_SECONDS = 120.0
_DRAIN_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Load:
    """Small records, ``rate`` a second, evenly over the partitions of a topic of its own, ``seconds`` long once the
    sink has started.
    """

    topic: str
    partitions: int
    rate: int
    seconds: int


def measure(folder: Path, console: Console) -> dict[str, float]:
    """Percentiles, seconds."""
    load = Load("trickle", 2, 200, 40)
    calving = Path(sys.executable).parent / "calving"
    folder.mkdir(parents=True)
    with kafka(folder / "kafka") as servers:
        found = trickle(folder, servers, load, calving)
    table = Table(*found, title=f"{load.rate} records/s, commit interval 1 s, Spark; seconds")
    table.add_row(*(str(v) for v in found.values()))
    console.print(table)
    return found


def trickle(folder: Path, servers: str, load: Load, calving: Path) -> dict[str, float]:
    """The latency of a sink with a commit interval of one second; its log is left in ``bench-results``."""
    keys = {"type": "embedded", "warehouse": str(folder / f"warehouse-{load.topic}")}
    admin = AdminClient(client_config({"bootstrap.servers": servers}))
    admin.create_topics([NewTopic(load.topic, load.partitions, 1)])[load.topic].result()
    config = folder / f"{load.topic}.json"
    config.write_text(json.dumps(settings(servers, load.topic, keys)))
    log = Path("bench-results") / f"{load.topic}.log"
    log.parent.mkdir(exist_ok=True)
    log.write_bytes(b"")
    worker = Process([str(calving), "run", str(config)], log, {"CALVING_LOG_LEVEL": "INFO"})
    try:
        found = _watch(servers, load, keys)
        found["idle_core_percent"] = _idle_share(worker.pid)
    finally:
        worker.signal(signal.SIGTERM)
        try:
            worker.wait(30)
        except subprocess.TimeoutExpired:
            worker.stop()
    return found


def settings(servers: str, topic: str, keys: dict[str, str]) -> dict[str, object]:
    """Of a sink with the topic's name, one table and a commit interval of one second."""
    return {
        "name": topic,
        "topics": topic,
        "iceberg.tables": ".".join(TABLE),
        "iceberg.tables.auto-create-enabled": True,
        "iceberg.control.topic": f"control-{topic}",
        "iceberg.control.commit.interval-ms": 1000,
        "kafka.bootstrap.servers": servers,
        **{f"iceberg.catalog.{k}": v for k, v in keys.items()},
        "spark.master": "local[2]",
        "spark.ui.showConsoleProgress": "false",
    }


def _watch(servers: str, load: Load, keys: dict[str, str]) -> dict[str, float]:
    """Over the records from two seconds after the first commit; those before wait for Spark to start."""
    producer = Producer(client_config({"bootstrap.servers": servers}, linger_ms=5, enable_idempotence=True))
    catalog = open_catalog("iceberg", keys)
    database = Path(keys["warehouse"]) / "catalog.db"
    produced: list[float] = []
    visible: list[float] = []
    commits: list[float] = []
    known: dict[str, str] = {}
    started = time.monotonic()
    end = started + _START_SECONDS
    while (now := time.monotonic()) < end + _DRAIN_SECONDS and (now < end or len(visible) < len(produced)):
        for number in range(len(produced), int((min(now, end) - started) * load.rate)):
            producer.produce(load.topic, json.dumps({"id": number}), partition=number % load.partitions)
            produced.append(time.monotonic())
        producer.poll(0)
        if (there := locations(database)) and there != known:
            known, count = there, _count(catalog)
            if count > len(visible):
                if not commits:
                    end = time.monotonic() + 2 + load.seconds
                commits.append(time.monotonic())
                visible += [commits[-1]] * (count - len(visible))
        time.sleep(0.03)
    if len(visible) < len(produced):
        raise RuntimeError(f"{len(visible)} of {len(produced)} records are visible, see bench-results/{load.topic}.log")
    first = bisect(produced, commits[0] + 2)
    waits = sorted(v - p for p, v in list(zip(produced, visible, strict=False))[first:])
    gaps = sorted(b - a for a, b in itertools.pairwise(commits) if b > produced[first])
    return {
        "p50": round(waits[len(waits) // 2], 2),
        "p99": round(waits[len(waits) * 99 // 100], 2),
        "between commits p50": round(gaps[len(gaps) // 2], 2),
        "between commits max": round(gaps[-1], 2),
    }


def _idle_share(pid: int, seconds: float = 10.0) -> float:
    """Percent of a core that the whole process tree takes while nothing comes in."""
    time.sleep(3)
    before = tree_cpu(pid)
    time.sleep(seconds)
    return round((tree_cpu(pid) - before) / seconds * 100, 1)


def _count(catalog: Catalog) -> int:
    table = find_table(catalog, TABLE)
    snapshot = table.current_snapshot() if table is not None else None
    if snapshot is None or snapshot.summary is None:
        return 0
    return int(snapshot.summary.additional_properties.get("total-records", "0"))
