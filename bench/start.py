"""The cost of a start until the worker is a member of its group, and the time to its first batch and first commit."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import time
from datetime import datetime
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from bench.latency import settings
from calving.errors import UnavailableError
from calving.services.kafka import kafka
from calving.services.process import Process
from calving.source.client import client_config
from calving.source.members import members
from harness.processes import tree_cpu

_PARTITIONS, _ROUNDS = 4, 5
_WAIT_SECONDS = 120.0
_LINE = r"(?m)^(\d\S+ [\d:]+,\d+) INFO \S+ "


def measure(folder: Path, calving: Path, console: Console) -> list[dict[str, float]]:
    """CPU seconds of all its processes until then, and seconds since the process was started; by start.

    The first start writes what the later ones find in the cache.
    """
    folder.mkdir(parents=True)
    results: list[dict[str, float]] = []
    with kafka(folder / "kafka") as servers:
        admin = AdminClient(client_config({"bootstrap.servers": servers}))
        admin.create_topics([NewTopic("start", _PARTITIONS, 1)])["start"].result()
        config = folder / "start.json"
        keys = {"type": "embedded", "warehouse": str(folder / "warehouse")}
        config.write_text(json.dumps(settings(servers, "start", keys)))
        for _ in range(_ROUNDS):
            results.append(_start(servers, config, calving, Path("bench-results") / "start.log"))
            console.print(results[-1])
    table = Table(*results[0], title="A start, Spark; seconds")
    for found in results:
        table.add_row(*(str(value) for value in found.values()))
    console.print(table)
    return results


def _start(servers: str, config: Path, calving: Path, log: Path) -> dict[str, float]:
    producer = Producer(client_config({"bootstrap.servers": servers}))
    for number in range(1000):
        producer.produce("start", json.dumps({"id": number}), partition=number % _PARTITIONS)
    producer.flush()
    log.parent.mkdir(exist_ok=True)
    log.write_bytes(b"")
    began, day = time.monotonic(), time.time()
    worker = Process([str(calving), "run", str(config)], log, {"CALVING_LOG_LEVEL": "INFO"})
    try:
        while not _joined(servers):
            _mind(began)
        found = {"member, CPU": tree_cpu(worker.pid), "member": time.monotonic() - began}
        while not (batch := _since(day, log, "batch: ")) or not (commit := _since(day, log, r"commit \S+: 1 table,")):
            _mind(began)
        found |= {"first batch": batch, "first commit": commit}
    finally:
        worker.signal(signal.SIGTERM)
        worker.wait(60)
    return {name: round(value, 2) for name, value in found.items()}


def _joined(servers: str) -> bool:
    with contextlib.suppress(UnavailableError):
        return bool(members({"bootstrap.servers": servers}, "connect-start"))
    return False


def _mind(began: float) -> None:
    if time.monotonic() - began > _WAIT_SECONDS:
        raise TimeoutError("the sink does not start, see bench-results/start.log")
    time.sleep(0.02)


def _since(day: float, log: Path, text: str) -> float:
    """Seconds until such a line was logged; 0 if there is none."""
    found = re.search(_LINE + text, log.read_text())
    return datetime.strptime(found.group(1), "%Y-%m-%d %H:%M:%S,%f").timestamp() - day if found else 0.0
