"""A trickle of records and a commit interval of one second: how long from produce to visible, and does it hold."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import time
from bisect import bisect
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from calving.iceberg.catalog import find_table, open_catalog
from calving.services.kafka import kafka
from calving.services.process import Process
from calving.source.client import client_config

RATE, SECONDS, TOPIC, NAME = 200, 40, "trickle", ("bench", "trickle")


def measure(folder: Path, console: Console) -> dict[str, float]:
    """Percentiles over the records from two seconds after the first commit; those before wait for Spark to start."""
    folder.mkdir(parents=True)
    keys = {"type": "embedded", "warehouse": str(folder / "warehouse")}
    with kafka(folder / "kafka") as servers:
        admin = AdminClient(client_config({"bootstrap.servers": servers}))
        admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result()
        config = folder / "sink.json"
        config.write_text(json.dumps(_settings(servers, keys)))
        command = [str(Path(sys.executable).parent / "calving"), "run", str(config)]
        worker = Process(command, Path("bench-results") / "trickle.log")
        try:
            found = _watch(servers, keys)
            idle = _idle_share(worker.pid)
        finally:
            worker.signal(signal.SIGTERM)
            try:
                worker.wait(30)
            except subprocess.TimeoutExpired:
                worker.stop()
    found["idle_core_percent"] = idle
    table = Table(*found, title=f"{RATE} records/s, commit interval 1 s, Spark; seconds")
    table.add_row(*(str(v) for v in found.values()))
    console.print(table)
    return found


def _settings(servers: str, keys: dict[str, str]) -> dict[str, object]:
    return {
        "name": "trickle",
        "topics": TOPIC,
        "iceberg.tables": ".".join(NAME),
        "iceberg.tables.auto-create-enabled": True,
        "iceberg.control.commit.interval-ms": 1000,
        "kafka.bootstrap.servers": servers,
        **{f"iceberg.catalog.{k}": v for k, v in keys.items()},
        "spark.master": "local[2]",
        "spark.ui.showConsoleProgress": "false",
    }


def _watch(servers: str, keys: dict[str, str]) -> dict[str, float]:
    producer = Producer(client_config({"bootstrap.servers": servers}, linger_ms=0))
    catalog = open_catalog("iceberg", keys)
    produced: list[float] = []
    visible: list[float] = []
    commits: list[float] = []
    started = time.monotonic()
    while len(visible) < RATE * SECONDS and time.monotonic() < started + SECONDS + 60:
        now = time.monotonic()
        due = min(RATE * SECONDS, int((now - started) * RATE))
        for number in range(len(produced), due):
            producer.produce(TOPIC, json.dumps({"id": number}), partition=number % 2)
            produced.append(time.monotonic())
        producer.poll(0)
        count = _count(catalog)
        if count > len(visible):
            commits.append(time.monotonic())
            visible += [commits[-1]] * (count - len(visible))
        time.sleep(0.03)
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
    before = _session_cpu(pid)
    time.sleep(seconds)
    return round((_session_cpu(pid) - before) / seconds * 100, 1)


def _session_cpu(session: int) -> float:
    total = 0.0
    for entry in Path("/proc").iterdir():
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split() if entry.name.isdigit() else []
        except OSError:
            continue
        if fields and int(fields[3]) == session:
            total += (int(fields[11]) + int(fields[12])) / 100
    return total


def _count(catalog: object) -> int:
    table = find_table(catalog, NAME)  # type: ignore[arg-type]
    snapshot = table.current_snapshot() if table is not None else None
    if snapshot is None or snapshot.summary is None:
        return 0
    return int(snapshot.summary.additional_properties.get("total-records", "0"))
