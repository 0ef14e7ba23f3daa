"""Latency of backends: from a publication until it is read, and from a leader's death until the next commit."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import redis
from kazoo.client import KazooClient
from rich.console import Console
from rich.table import Table

from calving.model.events import DataComplete
from calving.services.kafka import KafkaServer
from calving.services.process import LOOPBACK, Process, free_port
from calving.services.stores import RedisServer, ZooKeeperServer
from calving.testing.contract import Store
from calving.testing.harness import Harness
from harness.backends import KafkaHarness, RedisHarness, ZooKeeperHarness
from harness.locations import locations
from harness.producing import Producing
from harness.proxy import Proxy
from harness.run import Run

_IDLE_SECONDS = 30
_PUBLICATIONS = 500
_TIGHTER = {"kafka.session.timeout.ms": "3000", "kafka.heartbeat.interval.ms": "500"}
_TIGHTER_STORE = {
    "redis": {"iceberg.control.redis.lease-ms": "2000"},
    "zookeeper": {"iceberg.control.zookeeper.session-timeout-ms": "2000"},
}


class Commits(threading.Thread):
    """When tables changed, as their catalog tells."""

    def __init__(self, database: Path) -> None:
        super().__init__(daemon=True)
        self._database = database
        self._end = threading.Event()
        self.times: list[float] = []

    def run(self) -> None:
        known: dict[str, str] = {}
        while not self._end.wait(0.2):
            now = locations(self._database)
            if now and now != known:
                known = now
                self.times.append(time.monotonic())

    def stop(self) -> None:
        self._end.set()
        self.join()

    def after(self, moment: float) -> float | None:
        return next((t - moment for t in self.times if t > moment), None)


def measure(folder: Path, console: Console) -> list[dict[str, object]]:
    """Milliseconds and seconds, on loopback and one local disk."""
    listener, advertised = free_port(), free_port()
    broker = KafkaServer(folder / "kafka", aside=(listener, advertised))
    requests = _KafkaRequests()
    proxy = Proxy(listener, advertised, requests.overhear)
    keeper = ZooKeeperServer(folder / "zookeeper")
    server = RedisServer(folder / "redis")
    for service in (broker, keeper, server):
        service.start()
    harnesses: dict[str, Callable[[], Harness]] = {
        "kafka": lambda: KafkaHarness(broker, "bench"),
        "redis, appendfsync always": lambda: RedisHarness(folder / "always", {"appendfsync": "always"}),
        "redis, appendfsync everysec": lambda: RedisHarness(folder / "everysec", {"appendfsync": "everysec"}),
        "zookeeper": lambda: ZooKeeperHarness(keeper, "bench"),
    }
    stores = {
        "kafka": {},
        "redis": {"iceberg.control.redis.url": server.url},
        "zookeeper": {"iceberg.control.zookeeper.hosts": keeper.hosts},
    }
    results: list[dict[str, object]] = []
    try:
        for name, make in harnesses.items():
            results.append({"backend": name, **_publications(make())})
        for number, (name, keys) in enumerate(stores.items()):
            settings = {"iceberg.control.backend": name, **keys}
            for tighter in (False, True):
                more = _TIGHTER | _TIGHTER_STORE.get(name, {}) if tighter else {}
                seconds = _failover(
                    folder / f"failover-{number}-{tighter}", broker, f"f{number}{tighter}".lower(), settings | more
                )
                results.append({"backend": name, "tighter": tighter, "failover_seconds": round(seconds, 1)})
        counts = {
            "broker": lambda: requests.count,
            "redis": lambda: _redis_commands(server),
            "zookeeper": lambda: _zookeeper_packets(keeper),
        }
        for name, keys in stores.items():
            settings = {"iceberg.control.backend": name, "iceberg.control.commit.interval-ms": "300000", **keys}
            asked = {what: count for what, count in counts.items() if what in ("broker", name)}
            load = _idle_load(folder / f"idle-{name}", f"{LOOPBACK}:{advertised}", f"idle-{name}", settings, asked)
            results.append({"backend": name, "idle_requests_per_second": load})
    finally:
        proxy.close()
        for service in (broker, keeper, server):
            service.stop()
    _show(results, console)
    return results


def _publications(harness: Harness) -> dict[str, object]:
    """One publisher after the other's answer; the coordinator reads beside it."""
    store = Store(harness)
    session, cursor, claim = store.session(), store.cursor(replay=True), harness.claim()
    slow = isinstance(harness, RedisHarness) and harness.syncs_every_second
    count = _PUBLICATIONS // 25 if slow else _PUBLICATIONS
    began: list[float] = []
    answered: list[float] = []
    heard: list[float] = []

    def listen() -> None:
        while len(heard) < count:
            found = cursor.read(0.5)
            heard.extend(time.monotonic() for entry in found if isinstance(entry.event, DataComplete))

    with ThreadPoolExecutor(1) as pool:
        listening = pool.submit(listen)
        for i in range(count):
            began.append(time.monotonic())
            session.publish(store.publication({0: (i or None, i + 1)}), claim)
            answered.append(time.monotonic())
        listening.result(60)
    taken = [b - a for a, b in zip(began, answered, strict=True)]
    read = [b - a for a, b in zip(began, heard, strict=True)]
    store.close()
    harness.close()
    return {
        "publications_per_second": round(count / sum(taken)),
        "publish_ms": _percentiles(taken),
        "until_read_ms": _percentiles(read),
    }


def _percentiles(seconds: list[float]) -> tuple[float, float]:
    """p50 and p99, milliseconds."""
    ordered = sorted(seconds)
    return round(statistics.median(ordered) * 1000, 1), round(ordered[int(len(ordered) * 0.99)] * 1000, 1)


def _failover(folder: Path, broker: KafkaServer, name: str, settings: dict[str, str]) -> float:
    """Seconds from SIGKILL of the worker that leads to the next commit."""
    folder.mkdir()
    defaults = {"kafka.session.timeout.ms": "10000", "kafka.heartbeat.interval.ms": "3000"}
    run = Run(folder, broker.bootstrap_servers, name, settings=defaults | settings)
    commits = Commits(folder / "warehouse" / "catalog.db")
    producing = Producing(run)
    try:
        workers = [run.start(), run.start()]
        run.produce(500)
        run.wait_until_committed(60)
        producing.start()
        commits.start()
        time.sleep(3)
        leader = max(workers, key=_led)
        leader.kill()
        killed = time.monotonic()
        while (after := commits.after(killed + 0.3)) is None and time.monotonic() - killed < 90:
            time.sleep(0.1)
        return 90.0 if after is None else after + 0.3
    finally:
        producing.stop()
        commits.stop()
        run.stop()


class _KafkaRequests:
    """Counts the requests in what clients send: each begins with its length."""

    def __init__(self) -> None:
        self.count = 0
        self._rest: dict[int, bytes] = {}

    def overhear(self, wire: int, data: bytes) -> None:
        data = self._rest.pop(wire, b"") + data
        while len(data) >= 4 and len(data) >= (size := 4 + int.from_bytes(data[:4], "big")):
            self.count, data = self.count + 1, data[size:]
        self._rest[wire] = data


def _redis_commands(server: RedisServer) -> int:
    with redis.Redis(port=server.port) as client:
        return int(client.info("stats")["total_commands_processed"])


def _zookeeper_packets(server: ZooKeeperServer) -> int:
    client = KazooClient(server.hosts)
    client.start()
    try:
        lines = client.command(b"mntr").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("zk_packets_received"))
    finally:
        client.stop()
        client.close()


def _idle_load(
    folder: Path, servers: str, name: str, settings: dict[str, str], asked: Mapping[str, Callable[[], int]]
) -> dict[str, float]:
    """Requests per second of two workers that have nothing to do, between two commits."""
    folder.mkdir()
    run = Run(folder, servers, name, settings=settings)
    try:
        run.produce(100)
        workers = [run.start(), run.start()]
        run.wait_until_committed(60)
        time.sleep(10)
        if any(worker.returncode is not None for worker in workers):
            raise RuntimeError(f"a worker ended, see {folder}")
        before = {what: count() for what, count in asked.items()}
        time.sleep(_IDLE_SECONDS)
        return {what: round((count() - before[what]) / _IDLE_SECONDS, 1) for what, count in asked.items()}
    finally:
        run.stop()


def _led(worker: Process) -> int:
    """Where its log says last that it leads; -1 if never."""
    return worker.log.read_text().rfind("coordinating group")


_COLUMNS = {
    "publications_per_second": "publications/s",
    "publish_ms": "publish ms p50, p99",
    "until_read_ms": "until read ms p50, p99",
    "failover_seconds": "failover s",
    "idle_requests_per_second": "idle requests/s, 2 workers",
}


def _show(results: list[dict[str, object]], console: Console) -> None:
    table = Table(title="Backends, on loopback")
    for column in ("backend", *_COLUMNS.values()):
        table.add_column(column)
    for r in results:
        name = f"{r['backend']}{', tighter' if r.get('tighter') else ''}"
        table.add_row(name, *(str(r.get(key, "")) for key in _COLUMNS))
    console.print(table)
