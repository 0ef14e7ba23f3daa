"""``make campaign``: a sink with real parts, a seeded schedule of faults, and a checker beside it that trusts nobody.

Prints and saves how many faults of each kind there were, how many rows were verified, how many were lost or doubled,
how often an invariant did not hold, whether workers were stuck at the end, and how long it took from a fault to the
next full commit.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

from rich.console import Console
from rich.table import Table

from calving.services.kafka import KafkaServer
from calving.services.process import free_port, interruptible
from calving.services.stores import RedisServer, ZooKeeperServer
from campaign import changes, maintained, records
from campaign.audit import harm
from campaign.books import Books
from campaign.changes import Warehouse, Workload
from campaign.checker import LETTERS, Checker
from campaign.faults import FAULTS, OF_MAINTENANCE, OF_VERSIONS, faults_of
from campaign.field import Field, armory
from campaign.lake import Lake, S3Lake, on_disk
from campaign.latency import recovered, summary
from campaign.second_judge import findings
from campaign.sink import NO_HISTORY, Sink, former_version
from harness.producing import Producing
from harness.proxy import Proxy
from harness.run import Store, settings_of, through

BACKENDS = ("kafka", "redis", "zookeeper")
_RECORDS_PER_SECOND = 300
_QUIET_RECORDS = 1000
_START_SECONDS = 300
_AFTERWARDS_SECONDS = 3.0
"""Records go on for so long, that the last fault has its full commit."""
_VERDICT = (
    "lost",
    "doubled",
    "resurrected",
    "wrong",
    "invariants",
    "stuck",
    "unbalanced",
    "miscounted",
    "missing",
    "orphans",
    "findings",
)
_SESSION_MS = 20_000
_MORE_OFTEN = 4
_OTHER_SETTINGS = {"iceberg.limits.nesting": "31"}
"""Workers with and without this setting disagree, and commit the same."""


@dataclass(frozen=True)
class Plan:
    """The choices of one campaign.

    ``warehouse``: the tables are on local disk, in the embedded catalog or behind a REST catalog (``rest``); or in S3,
    behind a REST catalog. ``workload``: whether records are appended, replace each other by key, are change events with
    deletes, or are of the first two kinds, by table. ``timeout_ms``: of a commit.
    ``kinds``: of faults; if None, all that harm this backend. ``arms``: the faults that workers carry; if None, every
    one, or none where ``kinds`` are named. ``sabotage``: see ``campaign/worker.py``. ``settle_seconds``: how long
    those that are there at the end may take until everything is committed. ``maintained``: whether the leader maintains
    the tables, most of which have partitions and land their rows; then no worker is of a former version.
    """

    backend: str
    tables: int = 20
    warehouse: Warehouse = "local"
    workload: Workload = "append"
    seconds: float = 600
    seed: int = 1
    protocol: str = "classic"
    kinds: tuple[str, ...] | None = None
    arms: tuple[str, ...] | None = None
    sabotage: str | None = None
    settle_seconds: float = 180
    timeout_ms: int = 4000
    maintained: bool = False


@contextlib.contextmanager
def broker_and_proxy(folder: Path) -> Iterator[tuple[KafkaServer, Proxy]]:
    """A broker, with a proxy before its second listener."""
    listener = free_port()
    proxy = Proxy(listener)
    broker = KafkaServer(folder / "kafka", aside=(listener, proxy.port))
    try:
        broker.start()
        yield broker, proxy
    finally:
        proxy.close()
        broker.stop()


def campaign(folder: Path, plan: Plan, former: Path | None = None) -> dict[str, Any]:
    """One sink on one backend, with a broker of its own, then the verdict. ``former``: a tree of a former version,
    which some workers have, if that is among the faults.
    """
    with broker_and_proxy(folder) as (broker, proxy):
        return on_broker(folder, plan, broker, proxy, "campaign", former)


def on_broker(
    folder: Path, plan: Plan, broker: KafkaServer, proxy: Proxy, name: str, former: Path | None = None
) -> dict[str, Any]:
    """One sink on one backend, then the verdict. ``broker`` runs already. No other sink there has this ``name``."""
    with store_of(folder, plan.backend, broker) as store:
        if not isinstance(store, KafkaServer):
            proxy.target = store.port
        lake = _lake(folder, plan)
        run = sink_of(folder, broker, store, plan, lake, name)
        run.workload = plan.workload
        run.module = "campaign.worker"
        run.put_aside({**through(store, proxy.port), **_long_session(store), **_OTHER_SETTINGS})
        database = lake.database if lake is not None else folder / "warehouse" / "catalog.db"
        checker = Checker(run, database, lake.s3 if lake is not None else None, plan.workload, plan.warehouse)
        producing = Producing(run, _RECORDS_PER_SECOND)
        rng = random.Random(plan.seed)
        arms = plan.arms if plan.arms is not None else armory(plan.workload) if plan.kinds is None else ()
        parts = run, broker, store, proxy, folder, rng, 3, checker, producing.quiet, database, lake
        field = Field(*parts, armory=arms, sabotage=plan.sabotage, former=former)
        run.environment["HANG"] = str(field.hang)
        try:
            field.revive()
            run.produce(600)
            # Workers carry faults from the start on, so all of the first ones may end before their first commit.
            if field.wait(_START_SECONDS, field.revive) is None:
                raise RuntimeError(f"the sink has not committed its first records within {_START_SECONDS} s")
            run.mix_formats()
            producing.start()
            books = Books()
            happened = _harm(field, plan, books)
            time.sleep(_AFTERWARDS_SECONDS)
            producing.stop()
            settled = _settle(field, plan.settle_seconds)
            checker.watch_the_end(run.sent + _QUIET_RECORDS, plan.settle_seconds)
            before, first = books.look(run), run.sent
            run.produce(_QUIET_RECORDS, _RECORDS_PER_SECOND)
            checked = checker.report()
            books.close(before, books.look(run), Counter(outcome(n, run) for n in range(first, run.sent)))
            led_by = run.led_by()
            storage = _storage(run, database) if plan.maintained else {"missing": 0, "orphans": 0}
            audited = findings(run.config, field.dropped)
        finally:
            producing.stop()
            run.stop()
            checker.stop()
            if lake is not None:
                lake.stop()
    return {
        **_result(plan, field, happened, settled, checked),
        **asdict(books),
        **storage,
        "led_by": led_by,
        "findings": len(audited),
        "audited": audited,
    }


def _storage(run: Sink, database: Path) -> dict[str, Any]:
    """What maintenance has done, and what it leaves on the storage once no worker runs."""
    quiet = time.time()
    maintained.go_on(run, database)
    run.stop()
    return {"maintenance": maintained.done(run), **maintained.end(run, database, quiet, maintained.control_log(run))}


def _lake(folder: Path, plan: Plan) -> Lake | None:
    match plan.warehouse:
        case "local":
            return None
        case "rest":
            return on_disk(folder)
        case "s3":
            return S3Lake(folder, random.Random(plan.seed))


def sink_of(folder: Path, broker: KafkaServer, store: Store, plan: Plan, lake: Lake | None, name: str) -> Sink:
    names = [f"db.t{i}" for i in range(plan.tables)]
    keys = lake.keys if lake is not None else None
    settings = _settings(store, plan, names, name)
    return Sink(folder, broker.bootstrap_servers, name, settings=settings, tables=names, catalog=keys)


def outcome(number: int, run: Sink) -> str:
    """What becomes of a record, as ``campaign.books`` calls it."""
    place, _ = changes.place(number, run.tables, run.workload)
    return {records.BAD: "dead_lettered", records.FILTERED: "filtered"}.get(place, "kept")


def _harm(field: Field, plan: Plan, books: Books) -> list[tuple[str, float]]:
    """Which faults there were, and when they were over, seconds since the epoch."""
    happened: list[tuple[str, float]] = []
    kinds = (
        list(plan.kinds)
        if plan.kinds is not None
        else faults_of(field.store, plan.workload, plan.warehouse, maintained=plan.maintained)
    )
    if field.former is None:
        kinds = [kind for kind in kinds if kind != OF_VERSIONS]
    often = OF_MAINTENANCE if plan.maintained else ()
    weights = [FAULTS[kind][1] * (_MORE_OFTEN if kind in often else 1) for kind in kinds]
    end = time.monotonic() + plan.seconds
    while time.monotonic() < end:
        if kinds:
            (kind,) = field.rng.choices(kinds, weights)
            books.look(field.run)
            print(f"{datetime.now(UTC):%H:%M:%S} {kind}", file=sys.stderr, flush=True)
            FAULTS[kind][0](field)
            happened.append((kind, time.time()))
        field.revive()
        time.sleep(field.rng.uniform(0.1, 0.8))
    return happened


def _result(
    plan: Plan, field: Field, happened: list[tuple[str, float]], settled: float | None, checked: dict[str, Any]
) -> dict[str, Any]:
    taken: dict[str, list[float]] = {}
    unanswered = 0
    for kind, fault in happened:
        if (seconds := recovered(checked["commits"], fault)) is None:
            unanswered += 1
        else:
            taken.setdefault(kind, []).append(seconds)
    report = checked["report"]
    counts = harm(report)
    return {
        **asdict(plan),
        "faults": dict(Counter(kind for kind, _ in happened)),
        "faults_total": len(happened),
        "armed": field.armed,
        "recovered_by_operators": field.recovered,
        "rows": field.run.sent,
        "settle_seconds": None if settled is None else round(settled, 1),
        **counts,
        "doubled": counts["doubled"] + (report["dead letters more than once"] if _is_exact(plan, field) else 0),
        "stuck": int(settled is None),
        "checked": report,
        "seconds_to_full_commit": summary(taken | {"all": [s for found in taken.values() for s in found]}),
        "faults_at_the_end_of_the_run": unanswered,
    }


def _is_exact(plan: Plan, field: Field) -> bool:
    """Whether each dead letter is there once: only Kafka has them in the transaction, and operators read again."""
    return plan.backend == "kafka" and not field.recovered


def _settings(store: Store, plan: Plan, names: Sequence[str], sink: str) -> dict[str, str | None]:
    found: dict[str, str | None] = {
        # Batches that are large enough to catch up with what comes after an outage.
        "iceberg.control.commit.timeout-ms": str(plan.timeout_ms),
        "iceberg.batch.max-records": "4000",
        "iceberg.source.on-data-loss": "skip",  # for a topic that is recreated; what is skipped wrongly is lost
        "errors.tolerance": "all",
        "errors.max-share": "1",
        "iceberg.http.port": "0",  # whose metrics have to add up
        "errors.deadletterqueue.topic.name": LETTERS.format(name=sink),
        "errors.deadletterqueue.context.headers.enable": "true",
        **settings_of(store),
        **changes.settings(plan.workload, plan.warehouse, names),
    }
    if plan.maintained:
        found |= maintained.settings(plan.workload, names)
    if isinstance(store, KafkaServer):
        found["iceberg.control.topic.partitions"] = "2"
    if plan.protocol == "consumer":
        found |= {
            "kafka.group.protocol": "consumer",
            "kafka.session.timeout.ms": None,
            "kafka.heartbeat.interval.ms": None,
        }
    return found


def _settle(field: Field, seconds: float) -> float | None:
    """With the workers that have survived; only those that have ended are replaced, by some without faults."""
    return field.wait(seconds, lambda: field.revive(armed=False))


@contextlib.contextmanager
def store_of(folder: Path, backend: str, broker: KafkaServer) -> Iterator[Store]:
    """The broker, which serves on afterwards, or a store of the sink's own."""
    if backend == "kafka":
        yield broker
        return
    longest = {"maxSessionTimeout": str(_SESSION_MS)}
    store = RedisServer(folder / "redis") if backend == "redis" else ZooKeeperServer(folder / "zookeeper", longest)
    try:
        store.start()
        yield store
    finally:
        store.stop()


def _long_session(store: Store) -> dict[str, str]:
    """The keys of a worker whose session in the store outlasts its membership of the group, and every ``pause``."""
    is_zookeeper = isinstance(store, ZooKeeperServer)
    return {"iceberg.control.zookeeper.session-timeout-ms": str(_SESSION_MS)} if is_zookeeper else {}


def _shown(results: Iterable[Mapping[str, Any]]) -> Iterator[Table]:
    shown = Table(title="Fault campaign")
    columns = ("backend", "protocol", "warehouse", "workload", "tables", "faults", "rows", *_VERDICT)
    for column in (*columns, "led by"):
        shown.add_column(column)
    slow = Table(title="Seconds from a fault to the next full commit of every partition: p50, p99, maximum")
    slow.add_column("fault")
    kinds: dict[str, list[str]] = {}
    for i, result in enumerate(results):
        keys = ("backend", "protocol", "warehouse", "workload", "tables", "faults_total", "rows", *_VERDICT)
        led = ", ".join(f"{version}: {times}" for version, times in sorted(result["led_by"].items()))
        shown.add_row(*(str(result[key]) for key in keys), led)
        slow.add_column(f"{result['backend']}, {result['tables']}")
        for kind, found in result["seconds_to_full_commit"].items():
            cells = kinds.setdefault(kind, [])
            cells += [""] * (i - len(cells)) + [f"{found['p50']}, {found['p99']}, {found['max']}"]
    for kind, cells in sorted(kinds.items()):
        slow.add_row(kind, *cells)
    yield shown
    yield slow


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=BACKENDS, action="append")
    parser.add_argument("--tables", type=int, action="append")
    parser.add_argument("--warehouse", choices=get_args(Warehouse), default="local")
    parser.add_argument("--workload", choices=get_args(Workload), default="append")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--protocol", choices=("classic", "consumer"), default="classic", help="of the consumer group")
    parser.add_argument("--maintained", action="store_true", help="the leader maintains tables, and rows land")
    parser.add_argument("--only", choices=FAULTS, action="append", help="kinds of faults")
    parser.add_argument("--out", type=Path, default=Path("campaign-results"))
    args = parser.parse_args()
    console = Console()
    logging.getLogger("calving.librdkafka").setLevel(logging.CRITICAL)
    args.out.mkdir(parents=True, exist_ok=True)
    results: list[dict[str, Any]] = []
    with interruptible(), tempfile.TemporaryDirectory(prefix="calving-former-") as kept:
        is_for_all = not args.maintained and args.workload not in changes.OF_THIS_VERSION
        former = former_version(Path(kept)) if is_for_all else None
        if former is None and is_for_all:
            console.print(f"no worker of another version takes part: {NO_HISTORY}")
        for backend in args.backend or BACKENDS:
            for tables in args.tables or (1, 20):
                plan = Plan(
                    backend=backend,
                    tables=tables,
                    warehouse=args.warehouse,
                    workload=args.workload,
                    seconds=args.seconds,
                    seed=args.seed,
                    protocol=args.protocol,
                    kinds=args.only,
                    maintained=args.maintained,
                )
                folder = Path(tempfile.mkdtemp(prefix="calving-campaign-"))
                try:
                    results.append(campaign(folder, plan, former))
                except Exception:
                    console.print(f"broken off; the logs of its processes are in {folder}")
                    raise
                shutil.rmtree(folder, ignore_errors=True)
                path = args.out / f"{time.strftime('%Y%m%d-%H%M%S')}-{backend}-{tables}-{args.workload}.json"
                path.write_text(json.dumps(results[-1], indent=1))
                console.print_json(json.dumps(results[-1]))
    for shown in _shown(results):
        console.print(shown)
    sys.exit(any(result[key] for result in results for key in _VERDICT) or not all(r["scrapes"] for r in results))


if __name__ == "__main__":
    main()
