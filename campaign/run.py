"""``make campaign``: a sink with real parts, a seeded schedule of faults, and a checker beside it that trusts nobody.

Prints and saves how many faults of each kind there were, how many rows were verified, how many were lost or doubled,
how often an invariant did not hold, and how long it took until the next commit after a fault.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from calving.services.kafka import KafkaServer
from calving.services.process import LOOPBACK, free_port, interruptible
from calving.services.redis import RedisServer
from calving.services.zookeeper import ZooKeeperServer
from campaign.audit import INVARIANTS
from campaign.checker import Checker
from campaign.faults import FAULTS, Field, all_workers_killed, faults_of
from campaign.proxy import Proxy
from tests.e2e.harness import Run, Store, settings_of

BACKENDS = ("kafka", "redis", "zookeeper")
_SETTLE_SECONDS = 180.0
_RECORDS_PER_SECOND = 300
_QUIET_RECORDS = 1000
_VERDICT = ("lost", "doubled", "wrong", "invariants")


class Producing(threading.Thread):
    """Records, as long as the campaign lasts."""

    def __init__(self, run: Run) -> None:
        super().__init__(daemon=True)
        self._run, self._end = run, threading.Event()

    def run(self) -> None:
        while not self._end.is_set():
            self._run.produce(100, _RECORDS_PER_SECOND)

    def stop(self) -> None:
        self._end.set()
        self.join()


def campaign(folder: Path, backend: str, tables: int, seconds: float, seed: int) -> dict[str, Any]:
    """One sink on one backend for ``seconds``, then the verdict."""
    listener = free_port()
    proxy = Proxy(listener)
    broker = KafkaServer(folder / "kafka", aside=(listener, proxy.port))
    broker.start()
    store = _store(folder, backend, broker)
    if not isinstance(store, KafkaServer):
        proxy.target = store.port
    names = [f"db.t{i}" for i in range(tables)]
    # Batches that are large enough to catch up with what comes after an outage.
    settings = {
        "iceberg.control.commit.timeout-ms": "4000",
        "iceberg.batch.max-records": "4000",
        **settings_of(store),
    }
    if backend == "kafka":
        settings["iceberg.control.topic.partitions"] = "2"
    run = Run(folder, broker.bootstrap_servers, "campaign", settings=settings, tables=names)
    run.put_aside(through(store, proxy.port))
    field = Field(run, broker, store, proxy, folder, random.Random(seed), 3)
    checker = Checker(run)
    producing = Producing(run)
    happened: list[tuple[str, float]] = []
    """Which faults, and when they were over."""
    try:
        field.revive()
        run.produce(600)
        run.wait_until_committed(60)
        producing.start()
        end = time.monotonic() + seconds
        kinds = faults_of(store)
        weights = [FAULTS[kind][1] for kind in kinds]
        while time.monotonic() < end:
            (kind,) = field.rng.choices(kinds, weights)
            FAULTS[kind][0](field)
            happened.append((kind, time.monotonic()))
            field.revive()
            time.sleep(field.rng.uniform(0.1, 0.8))
        producing.stop()
        settled = _settle(field)
        checker.watch_the_end(run.sent + _QUIET_RECORDS)
        run.produce(_QUIET_RECORDS, _RECORDS_PER_SECOND)
        checked = checker.report()
    finally:
        producing.stop()
        run.stop()
        checker.stop()
        proxy.close()
        store.stop()
        broker.stop()
    changes = checked["changes"]
    recovery = sorted(next(t - done for t in changes if t > done) for _, done in happened if changes[-1] > done)
    return {
        "backend": backend,
        "tables": tables,
        "seed": seed,
        "seconds": round(seconds),
        "faults": dict(Counter(kind for kind, _ in happened)),
        "faults_total": len(happened),
        "armed": field.armed,
        "rows": run.sent,
        "settle_seconds": round(settled, 1),
        **_totals(checked["report"]),
        "checked": checked["report"],
        "recovery_p50_seconds": round(statistics.median(recovery), 2) if recovery else None,
        "recovery_p99_seconds": round(recovery[int(len(recovery) * 0.99)], 2) if recovery else None,
    }


def _totals(report: Mapping[str, Any]) -> dict[str, int]:
    return {
        "lost": sum(report["GAP"]),
        "doubled": sum(report["DUPLICATE"]),
        "wrong": sum(report["MISMATCH"]) + report["unknown"],
        "invariants": sum(report[name] for name in INVARIANTS),
    }


def _settle(field: Field) -> float:
    """Seconds until everything that was sent is committed, with new workers that carry no faults."""
    all_workers_killed(field)
    started = time.monotonic()
    while time.monotonic() - started < _SETTLE_SECONDS:
        while len(field.living()) < field.workers:
            field.run.start()
        if field.run.committed() >= field.run.sent:
            break
        time.sleep(1)
    return time.monotonic() - started


def _store(folder: Path, backend: str, broker: KafkaServer) -> Store:
    if backend == "kafka":
        return broker
    found: Store = RedisServer(folder / "redis") if backend == "redis" else ZooKeeperServer(folder / "zookeeper")
    found.start()
    return found


def through(store: Store, port: int) -> dict[str, str]:
    """The keys of a worker whose way to the store leads through the proxy."""
    match store:
        case RedisServer():
            return {"iceberg.control.redis.url": f"redis://{LOOPBACK}:{port}/0"}
        case ZooKeeperServer():
            return {"iceberg.control.zookeeper.hosts": f"{LOOPBACK}:{port}"}
    return {"kafka.bootstrap.servers": f"{LOOPBACK}:{port}"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=BACKENDS, action="append")
    parser.add_argument("--tables", type=int, action="append")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("campaign-results"))
    args = parser.parse_args()
    console = Console()
    logging.getLogger("calving.librdkafka").setLevel(logging.CRITICAL)
    args.out.mkdir(parents=True, exist_ok=True)
    bad = False
    shown = Table(title="Fault campaign")
    for column in ("backend", "tables", "faults", "rows", *_VERDICT, "recovery p50, p99 s"):
        shown.add_column(column)
    with interruptible():
        for backend in args.backend or BACKENDS:
            for tables in args.tables or (1, 20):
                with tempfile.TemporaryDirectory(prefix="calving-campaign-", ignore_cleanup_errors=True) as name:
                    result = campaign(Path(name), backend, tables, args.seconds, args.seed)
                path = args.out / f"{time.strftime('%Y%m%d-%H%M%S')}-{backend}-{tables}.json"
                path.write_text(json.dumps(result, indent=1))
                console.print_json(json.dumps(result))
                keys = ("backend", "tables", "faults_total", "rows", *_VERDICT)
                recovery = f"{result['recovery_p50_seconds']}, {result['recovery_p99_seconds']}"
                shown.add_row(*(str(result[k]) for k in keys), recovery)
                bad |= any(result[key] for key in _VERDICT)
    console.print(shown)
    sys.exit(bad)


if __name__ == "__main__":
    main()
