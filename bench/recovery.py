"""How long a sink of three workers takes from a fault to the next full commit: one that brings every partition on.

Each fault is done to a sink that is well. What counts are the sink's own commits, as its ledger in the table tells. The
clock starts when a worker is killed or its wire is cut, and when a broker or a store that crashed listens again.
"""

from __future__ import annotations

import contextlib
import json
import random
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, Message, Producer
from rich.console import Console
from rich.table import Table

from calving.errors import UnavailableError
from calving.model.offsets import decode_coverage
from calving.protocol.ledger import decode_source
from calving.protocol.ledger_key import MISSING_OFFSETS, SOURCE_OFFSETS
from calving.services.kafka import KafkaServer
from calving.services.process import Process, free_port
from calving.services.stores import RedisServer, ZooKeeperServer
from calving.source.client import client_config
from calving.source.members import members
from harness.locations import locations
from harness.proxy import Proxy
from harness.run import Run, Store, through
from harness.sent import value

STORES = ("kafka", "redis", "zookeeper")
PARTITIONS, WORKERS, RATE, TABLE = 6, 3, 200, "db.events"
_LIMIT_SECONDS = 120.0
_DOWN_SECONDS = 2.0
_CUT_SECONDS = 15.0
"""Longer than a session: the others have to take over."""
_DEFAULTS: dict[str, str | None] = {
    "iceberg.control.commit.interval-ms": "1000",
    "iceberg.control.commit.timeout-ms": None,
    "iceberg.batch.max-records": None,
    "kafka.session.timeout.ms": None,
    "kafka.heartbeat.interval.ms": None,
}
"""The defaults instead of the tests' settings, except the interval: five minutes could not be measured."""
TIGHTER: Mapping[str, Mapping[str, str | None]] = {
    "kafka": {"kafka.session.timeout.ms": "2000", "kafka.heartbeat.interval.ms": "500"},
    "redis": {"iceberg.control.redis.lease-ms": "2000", "iceberg.control.redis.timeout-ms": "2000"},
    "zookeeper": {
        "iceberg.control.zookeeper.session-timeout-ms": "2000",
        "iceberg.control.zookeeper.timeout-ms": "2000",
    },
}
"""The tighter settings of docs/reference/backends.md; those of Kafka go with each store."""
_INSIDE = ["offsets:before", "transaction:before"]
STEPS = [
    "batch:before",
    "batch:after",
    "publish:before",
    "publish:after",
    "acknowledge:before",
    "acknowledge:after",
    "table:before",
    "table:after",
]
"""Where a worker or the leader kills itself; ``_INSIDE`` stands for the middle of a transaction."""


@dataclass
class Field:
    """A sink that is well, and what there is to break."""

    run: Run
    broker: KafkaServer
    store: Store
    proxy: Proxy
    triggers: Path
    rng: random.Random
    behind: Process | None = None
    """The worker whose way leads through the proxy."""
    mending: threading.Timer | None = None
    """Ends the last fault of the network."""

    def mend(self) -> None:
        if self.mending is not None:
            self.mending.cancel()
        self.proxy.mend()

    def living(self) -> list[Process]:
        return [w for w in self.run.workers if w.returncode is None]

    def leader(self) -> Process:
        return max(self.living(), key=_led)


def _led(worker: Process) -> str:
    """When it began to lead for the last time, as its log says."""
    return max(re.findall(r"(?m)^(\S+ \S+) \w+ \S+ coordinating group", worker.log.read_text()), default="")


def _killed(choose: Callable[[Field], Process]) -> Callable[[Field], float]:
    def fault(f: Field) -> float:
        choose(f).kill()
        return time.monotonic()

    return fault


def _killed_at(step: str) -> Callable[[Field], float]:
    def fault(f: Field) -> float:
        before = f.living()
        trigger = f.triggers / step.replace(":", "-")
        trigger.touch()
        deadline = time.monotonic() + 30
        while all(w.returncode is None for w in before):
            if time.monotonic() > deadline:
                raise TimeoutError(f"no worker came to {step}, see {f.run.folder}")
            time.sleep(0.01)
        return time.monotonic()

    return fault


def _crashed(choose: Callable[[Field], Store]) -> Callable[[Field], float]:
    def fault(f: Field) -> float:
        service = choose(f)
        service.kill()
        time.sleep(_DOWN_SECONDS)
        service.start()
        return time.monotonic()

    return fault


def _network(act: Callable[[Proxy], None], seconds: float) -> Callable[[Field], float]:
    """A worker is behind the proxy, maybe the leader. What comes after ``seconds`` is the sink's to bear as well."""

    def fault(f: Field) -> float:
        act(f.proxy)
        began = time.monotonic()
        f.mending = threading.Timer(seconds, f.proxy.mend)
        f.mending.start()
        return began

    return fault


def faults_of(store: Store) -> dict[str, Callable[[Field], float]]:
    steps = STEPS + (_INSIDE if isinstance(store, KafkaServer) else [])
    found: dict[str, Callable[[Field], float]] = {
        "broker crash": _crashed(lambda f: f.broker),
        "worker killed": _killed(lambda f: f.rng.choice([w for w in f.living() if w is not f.leader()])),
        "leader killed": _killed(Field.leader),
        **{f"killed {step}": _killed_at(step) for step in steps},
        "network cut": _network(Proxy.cut, _CUT_SECONDS),
        "network silent": _network(Proxy.hush, _CUT_SECONDS),
        "network silent for 3 s": _network(Proxy.hush, 3),
    }
    if not isinstance(store, KafkaServer):
        found["store crash"] = _crashed(lambda f: f.store)
    return found


class Producing(threading.Thread):
    """Records for all partitions in turn; knows which of them the broker has."""

    def __init__(self, run: Run) -> None:
        super().__init__(daemon=True)
        self._topic, self._end = run.topic, threading.Event()
        self._producer = Producer(
            client_config({"bootstrap.servers": run.servers}, linger_ms=0, reconnect_backoff_max_ms=200)
        )
        self.ends = dict.fromkeys(range(PARTITIONS), 0)

    def run(self) -> None:
        number = 0
        while not self._end.wait(1 / RATE):
            record = value(number, (TABLE,))
            self._producer.produce(self._topic, record, partition=number % PARTITIONS, on_delivery=self._delivered)
            self._producer.poll(0)
            number += 1

    def stop(self) -> None:
        self._end.set()
        self.join()

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        partition, offset = message.partition(), message.offset()
        if error is None and partition is not None and offset is not None:
            self.ends[partition] = offset + 1


class Ledger:
    """The sink's source offsets in its table."""

    def __init__(self, run: Run) -> None:
        self._database = Path(run.catalog_keys["warehouse"]) / "catalog.db"
        self._owner = f"control-{run.name}.connect-{run.name}"
        self._location, self._beyond = "", dict.fromkeys(range(PARTITIONS), 0)

    def reached(self) -> dict[int, int]:
        """By partition: the table holds all records below."""
        location = locations(self._database).get(TABLE, "")
        if location and location != self._location:
            properties = json.loads(Path(location.removeprefix("file://")).read_text()).get("properties", {})
            source = decode_source(properties.get(f"{SOURCE_OFFSETS}.{self._owner}", "{}"))
            missing = decode_coverage(properties.get(f"{MISSING_OFFSETS}.{self._owner}", "{}"))
            for tp, end in source.items():
                self._beyond[tp.partition] = min([end, *(span.start for span in missing.get(tp, ()))])
            self._location = location
        return self._beyond


def measure(
    folder: Path, console: Console, stores: tuple[str, ...] = STORES, rounds: int = 1, kinds: str = "", *, tighter: bool
) -> list[dict[str, object]]:
    """Seconds, by store and fault. ``kinds``: only faults in whose name this regular expression is found."""
    results: list[dict[str, object]] = []
    for store in stores:
        for kind, taken in _measured(folder / f"{store}-{tighter}", store, rounds, kinds, tighter, console).items():
            results.append({"store": store, "tighter": tighter, "fault": kind, "seconds": [round(t, 1) for t in taken]})
    _show(results, console)
    return results


def _measured(
    folder: Path, name: str, rounds: int, kinds: str, tighter: bool, console: Console
) -> dict[str, list[float]]:
    folder.mkdir(parents=True)
    listener = free_port()
    proxy = Proxy(listener)
    broker = KafkaServer(folder / "kafka", aside=(listener, proxy.port))
    broker.start()
    store: Store = broker
    if name != "kafka":
        store = RedisServer(folder / "redis") if name == "redis" else ZooKeeperServer(folder / "zookeeper")
        store.start()
        proxy.target = store.port
    run = Run(
        folder,
        broker.bootstrap_servers,
        "sink",
        partitions=PARTITIONS,
        settings=_settings(store, tighter),
        tables=(TABLE,),
    )
    run.put_aside(through(store, proxy.port))
    triggers = folder / "triggers"
    triggers.mkdir()
    field = Field(run, broker, store, proxy, triggers, random.Random(1))
    producing, ledger = Producing(run), Ledger(run)
    producing.start()
    taken: dict[str, list[float]] = {}
    try:
        for _ in range(rounds):
            for kind, fault in faults_of(store).items():
                if re.search(kinds, kind):
                    _until_well(field, producing, ledger)
                    seconds = _recovered(fault, field, producing, ledger)
                    taken.setdefault(kind, []).append(seconds)
                    console.print(f"{name}, {kind}: {seconds:.1f} s")
    finally:
        producing.stop()
        run.stop()
        proxy.close()
        store.stop()
        broker.stop()
    return taken


def _settings(store: Store, tighter: bool) -> dict[str, str | None]:
    name = {KafkaServer: "kafka", RedisServer: "redis", ZooKeeperServer: "zookeeper"}[type(store)]
    found: dict[str, str | None] = {**_DEFAULTS, "iceberg.control.backend": name}
    if isinstance(store, RedisServer):
        found["iceberg.control.redis.url"] = store.url
    if isinstance(store, ZooKeeperServer):
        found["iceberg.control.zookeeper.hosts"] = store.hosts
    return {**found, **TIGHTER["kafka"], **TIGHTER[name]} if tighter else found


def _until_well(f: Field, producing: Producing, ledger: Ledger) -> None:
    """As many workers as there should be, all members of the group, and commits of all partitions."""
    f.mend()
    for trigger in f.triggers.iterdir():
        trigger.unlink()
    deadline = time.monotonic() + _LIMIT_SECONDS
    while time.monotonic() < deadline:
        while len(f.living()) < WORKERS:
            faults = ",".join(f"{step}:@{f.triggers}" for step in STEPS + _INSIDE)
            if f.behind is None or f.behind.returncode is not None:
                f.behind = f.run.start(faults, aside=True)
            else:
                f.run.start(faults, aside=False)
        with contextlib.suppress(UnavailableError):  # the first member makes the broker set up what it needs
            if len(members({"bootstrap.servers": f.run.servers}, f"connect-{f.run.name}")) == WORKERS:
                break
        time.sleep(0.5)
    for _ in range(3):
        _wait(producing, ledger)
    time.sleep(f.rng.uniform(0, 1))


def _recovered(fault: Callable[[Field], float], f: Field, producing: Producing, ledger: Ledger) -> float:
    """Seconds until all partitions hold a record that came after the fault."""
    began = fault(f)
    return _wait(producing, ledger) - began


def _wait(producing: Producing, ledger: Ledger) -> float:
    mark = dict(producing.ends)
    deadline = time.monotonic() + _LIMIT_SECONDS
    while time.monotonic() < deadline:
        reached = ledger.reached()
        if all(reached[p] > end for p, end in mark.items()):
            break
        time.sleep(0.05)
    return time.monotonic()


def _show(results: Sequence[Mapping[str, Any]], console: Console) -> None:
    table = Table(title="From a fault to the next commit of every partition, seconds")
    for column in ("store", "fault", "times", "p50", "p99", "max"):
        table.add_column(column)
    everything: dict[str, list[float]] = {}
    for r in results:
        seconds: list[float] = r["seconds"]
        store = f"{r['store']}{', tighter' if r['tighter'] else ''}"
        everything.setdefault(store, []).extend(seconds)
        table.add_row(store, str(r["fault"]), *_row(seconds))
    for store, seconds in everything.items():
        table.add_row(store, "all", *_row(seconds))
    console.print(table)


def _row(seconds: list[float]) -> list[str]:
    ordered = sorted(seconds)
    p50, p99 = (ordered[min(len(ordered) - 1, int(len(ordered) * share))] for share in (0.5, 0.99))
    return [str(len(ordered)), f"{p50:.1f}", f"{p99:.1f}", f"{ordered[-1]:.1f}"]
