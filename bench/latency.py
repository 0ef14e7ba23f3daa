"""Paced records and commit intervals of a second and less: how long from produce to visible, and does it hold."""

from __future__ import annotations

import itertools
import json
import re
import signal
import subprocess
import sys
import time
from bisect import bisect
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen
from uuid import UUID, uuid4

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from calving.backend.interface import Cursor
from calving.model.events import StartCommit
from calving.runtime import components
from calving.services.kafka import kafka
from calving.services.process import Process, free_port
from calving.settings.load import load as loaded
from calving.source.client import client_config
from harness.locations import locations
from harness.processes import tree_cpu

TABLE = ("bench", "trickle")
_START_SECONDS = 120.0
_DRAIN_SECONDS = 60.0
_WARM_SECONDS = 2.0
"""The records of so many seconds after the first commit do not count: those before wait for Spark to start."""
INTERVALS, RATES = (1000, 500, 250), (200, 20_000)


@dataclass(frozen=True, slots=True)
class Load:
    """Small records, ``rate`` a second, evenly over the partitions of a topic of its own, ``seconds`` long once the
    sink has started.
    """

    topic: str
    partitions: int
    rate: float
    seconds: int
    interval_ms: int = 1000
    when_idle_ms: int = 0


def measure(folder: Path, console: Console) -> list[dict[str, float]]:
    """Percentiles, seconds; by commit interval and rate."""
    calving = Path(sys.executable).parent / "calving"
    folder.mkdir(parents=True)
    results: list[dict[str, float]] = []
    with kafka(folder / "kafka") as servers:
        loads = [
            Load(f"latency-{interval}-{rate}", 2, rate, 40, interval)
            for interval, rate in itertools.product(INTERVALS, RATES)
        ]
        for load in [*loads, *(Load(f"latency-sparse-{idle}", 2, 1 / 7.3, 73, 1000, idle) for idle in (0, 100))]:
            said = {
                "interval": load.interval_ms / 1000,
                "records/s": round(load.rate, 2),
                "when idle": load.when_idle_ms,
            }
            results.append({**said, **trickle(folder, servers, load, calving)})
            console.print(results[-1])
    table = Table(*results[0], title="Produce to visible, Spark; seconds, percent of a core")
    for found in results:
        table.add_row(*(str(v) for v in found.values()))
    console.print(table)
    return results


def beside_maintenance(folder: Path, console: Console, rounds: int) -> dict[str, list[dict[str, float]]]:
    """The same with and without maintenance by the sink, in turns. Every twelve files become one, at most each five
    seconds.
    """
    calving = Path(sys.executable).parent / "calving"
    folder.mkdir(parents=True)
    kinds = {"off": "false", "on": "true"}
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
    with kafka(folder / "kafka") as servers:
        for number in range(rounds):
            for kind, enabled in kinds.items():
                more = {"iceberg.maintenance.enabled": enabled, "iceberg.maintenance.pause-ms": "5000"}
                found[kind].append(trickle(folder, servers, Load(f"{kind}-{number}", 2, 200, 60), calving, more=more))
    table = Table("maintenance", "p50", "p99", title="200 records/s, commit interval 1 s; seconds, in turns")
    for kind, each in found.items():
        table.add_row(kind, *(", ".join(str(one[name]) for one in each) for name in ("p50", "p99")))
    console.print(table)
    return found


def trickle(
    folder: Path,
    servers: str,
    load: Load,
    calving: Path,
    environment: Mapping[str, str] | None = None,
    more: Mapping[str, str] | None = None,
) -> dict[str, float]:
    """The latency of a sink, with ``more`` settings; its log is left in ``bench-results``."""
    keys = {"type": "embedded", "warehouse": str(folder / f"warehouse-{load.topic}")}
    admin = AdminClient(client_config({"bootstrap.servers": servers}))
    admin.create_topics([NewTopic(load.topic, load.partitions, 1)])[load.topic].result()
    config = folder / f"{load.topic}.json"
    port = free_port()
    own: dict[str, object] = {"iceberg.http.port": port, **(more or {})}
    if load.when_idle_ms:
        own["iceberg.control.commit.when-idle-ms"] = load.when_idle_ms
    config.write_text(json.dumps({**settings(servers, load.topic, keys, load.interval_ms), **own}))
    log = Path("bench-results") / f"{load.topic}.log"
    log.parent.mkdir(exist_ok=True)
    log.write_bytes(b"")
    backend = components.backend(loaded(config))
    backend.provision()
    with closing(backend.open(str(uuid4()))) as session, closing(session.follow(replay=False)) as cursor:
        worker = Process([str(calving), "run", str(config)], log, {"CALVING_LOG_LEVEL": "INFO", **(environment or {})})
        try:
            found = _watch(servers, load, keys, worker.pid, cursor, port)
            found["idle CPU"] = _idle_share(worker.pid)
        finally:
            worker.signal(signal.SIGTERM)
            try:
                worker.wait(30)
            except subprocess.TimeoutExpired:
                worker.stop()
    return found


def settings(servers: str, topic: str, keys: dict[str, str], interval_ms: int = 1000) -> dict[str, object]:
    """Of a sink with the topic's name and one table."""
    return {
        "name": topic,
        "topics": topic,
        "iceberg.tables": ".".join(TABLE),
        "iceberg.tables.auto-create-enabled": True,
        "iceberg.control.topic": f"control-{topic}",
        "iceberg.control.commit.interval-ms": interval_ms,
        "kafka.bootstrap.servers": servers,
        **{f"iceberg.catalog.{k}": v for k, v in keys.items()},
        "spark.master": "local[2]",
        "spark.ui.showConsoleProgress": "false",
    }


@dataclass(slots=True)
class _Seen:
    """Monotonic times, and the CPU seconds of the sink's processes when the records began to count."""

    produced: list[float] = field(default_factory=list)
    visible: list[float] = field(default_factory=list)
    commits: list[float] = field(default_factory=list)
    starts: dict[UUID, float] = field(default_factory=dict)
    """Seconds since the epoch, by commit cycle."""
    counts_from: float = 0.0
    cpu: float = 0.0
    steps: dict[str, tuple[float, float]] = field(default_factory=dict)

    def listen(self, cursor: Cursor) -> None:
        for envelope in cursor.read(0):
            if isinstance(envelope.event, StartCommit) and envelope.at_us:
                self.starts.setdefault(envelope.event.commit_id, envelope.at_us / 1e6)


def _watch(servers: str, load: Load, keys: dict[str, str], pid: int, cursor: Cursor, port: int) -> dict[str, float]:
    producer = Producer(client_config({"bootstrap.servers": servers}, linger_ms=5, enable_idempotence=True))
    database = Path(keys["warehouse"]) / "catalog.db"
    seen = _Seen()
    known: dict[str, str] = {}
    started = time.monotonic()
    end = started + _START_SECONDS
    while (now := time.monotonic()) < end + _DRAIN_SECONDS and (now < end or len(seen.visible) < len(seen.produced)):
        for number in range(len(seen.produced), int((min(now, end) - started) * load.rate)):
            producer.produce(load.topic, f'{{"id": {number}}}', partition=number % load.partitions)
            seen.produced.append(time.monotonic())
        producer.poll(0)
        seen.listen(cursor)
        if (there := locations(database)) and there != known:
            known, count = there, _count(there.get(".".join(TABLE)))
            if count > len(seen.visible):
                if not seen.commits:
                    seen.counts_from = time.monotonic() + _WARM_SECONDS
                    end = seen.counts_from + load.seconds
                seen.commits.append(time.monotonic())
                seen.visible += [seen.commits[-1]] * (count - len(seen.visible))
        if seen.counts_from and not seen.cpu and now > seen.counts_from:
            seen.cpu, seen.steps = tree_cpu(pid), _steps(port)
        time.sleep(0.01)
    if len(seen.visible) < len(seen.produced):
        raise RuntimeError(
            f"{len(seen.visible)} of {len(seen.produced)} records are visible, see bench-results/{load.topic}.log"
        )
    cpu = round((tree_cpu(pid) - seen.cpu) / load.seconds * 100, 1)
    means: dict[str, float] = {}
    for step, (total, cycles) in _steps(port).items():
        before, times = seen.steps.get(step, (0.0, 0.0))
        means[step] = round((total - before) / max(1.0, cycles - times), 3)
    return {**_percentiles(seen, load), **means, "CPU": cpu}


def _percentiles(seen: _Seen, load: Load) -> dict[str, float]:
    first = bisect(seen.produced, seen.counts_from)
    waits = [v - p for p, v in list(zip(seen.produced, seen.visible, strict=False))[first:]]
    gaps = [b - a for a, b in itertools.pairwise(seen.commits) if b > seen.counts_from]
    wall = time.time() - time.monotonic()
    starts = [at for at in seen.starts.values() if seen.counts_from < at - wall < seen.counts_from + load.seconds]
    drifts = [b - a - load.interval_ms / 1000 for a, b in itertools.pairwise(starts)]
    return {
        "p50": round(_part(waits, 0.5), 2),
        "p99": round(_part(waits, 0.99), 2),
        "between commits p50": round(_part(gaps, 0.5), 2),
        "between commits max": round(max(gaps), 2),
        "drift p50": round(_part(drifts, 0.5), 3),
    }


def _part(values: Sequence[float], share: float) -> float:
    return sorted(values)[int(len(values) * share)]


def _steps(port: int) -> dict[str, tuple[float, float]]:
    """The seconds of each step of the cycles until now, and how many cycles had it."""
    with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        text = answer.read().decode()
    values: dict[str, dict[str, float]] = {}
    pattern = r"^calving_commit_cycle_step_duration_seconds_(sum|count)\{.*step=\"(\w+)\".*\} (\S+)$"
    for kind, step, value in re.findall(pattern, text, re.MULTILINE):
        values.setdefault(step, {})[kind] = float(value)
    return {step: (each["sum"], each["count"]) for step, each in values.items()}


def _idle_share(pid: int, seconds: float = 10.0) -> float:
    """Percent of a core that the whole process tree takes while nothing comes in."""
    time.sleep(3)
    before = tree_cpu(pid)
    time.sleep(seconds)
    return round((tree_cpu(pid) - before) / seconds * 100, 1)


def _count(location: str | None) -> int:
    """The records of a table, from its metadata file."""
    if location is None:
        return 0
    metadata = json.loads(Path(urlsplit(location).path).read_bytes())
    current = [s for s in metadata.get("snapshots", ()) if s["snapshot-id"] == metadata.get("current-snapshot-id")]
    return int(current[0]["summary"].get("total-records", "0")) if current else 0
