"""Real workers over a real broker, a stream of known records, and an independent checker."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import duckdb
import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Producer, TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysTrue

from calving.iceberg.catalog import find_table, open_catalog
from calving.services.kafka import KafkaServer
from calving.services.process import LOOPBACK, Process, Service
from calving.services.stores import RedisServer, ZooKeeperServer
from calving.source.client import client_config
from harness.heads import row_count
from harness.nursery import Forked
from harness.sent import TABLES, value

Store = KafkaServer | RedisServer | ZooKeeperServer
_LINGER_MS = 50
"""Few requests: brokers and readers take CPU for each."""
_ANY_TIME = {"message.timestamp.after.max.ms": str(2**63 - 1)}
"""The source topic takes records with any timestamp, as topics of older brokers do."""


def settings_of(store: Store) -> dict[str, str]:
    """The keys that make a sink keep its state there."""
    match store:
        case RedisServer():
            return {
                "iceberg.control.backend": "redis",
                "iceberg.control.redis.url": store.url,
                "iceberg.control.redis.lease-ms": "3000",
            }
        case ZooKeeperServer():
            return {
                "iceberg.control.backend": "zookeeper",
                "iceberg.control.zookeeper.hosts": store.hosts,
                "iceberg.control.zookeeper.session-timeout-ms": "3000",
            }
    return {}


def through(store: Store, port: int) -> dict[str, str]:
    """The keys of a worker whose way to the store leads through the proxy."""
    match store:
        case RedisServer():
            return {"iceberg.control.redis.url": f"redis://{LOOPBACK}:{port}/0"}
        case ZooKeeperServer():
            return {"iceberg.control.zookeeper.hosts": f"{LOOPBACK}:{port}"}
    return {"kafka.bootstrap.servers": f"{LOOPBACK}:{port}"}


class Run:
    """One sink with its workers, in one folder."""

    def __init__(
        self,
        folder: Path,
        servers: str,
        name: str,
        *,
        partitions: int = 3,
        settings: Mapping[str, str | None] | None = None,
        tables: Sequence[str] = TABLES,
        catalog: Mapping[str, str] | None = None,
    ) -> None:
        """``catalog``: the keys of one that is there already."""
        self.folder, self.servers, self.name, self.partitions = folder, servers, name, partitions
        self.tables = tables
        self.topic = f"source-{name}"
        admin = AdminClient(client_config({"bootstrap.servers": servers}))
        admin.create_topics([NewTopic(self.topic, partitions, 1, config=_ANY_TIME)])[self.topic].result()
        self._producer = Producer(
            client_config({"bootstrap.servers": servers}, linger_ms=_LINGER_MS, enable_idempotence=True)
        )
        self.sent = 0
        self.force = folder / "force-lead"
        self.catalog_keys = dict(catalog or {"type": "embedded", "warehouse": str(folder / "warehouse")})
        self.config = folder / "sink.json"
        found = {k: v for k, v in (self._settings() | dict(settings or {})).items() if v is not None}
        self._backend = found.get("iceberg.control.backend", "kafka")
        self.config.write_text(json.dumps(found))
        self.aside: Path | None = None
        """The settings of every third worker, where they are others."""
        self.workers: list[Process] = []
        self.replaced: set[Process] = set()
        """Of those that have ended: nobody has to start another one for them."""
        self.module, self.environment = "harness.worker", dict[str, str]()
        """The command of a worker, and the variables that are added to its environment."""

    def _settings(self) -> dict[str, str]:
        return {
            "name": self.name,
            "topics": self.topic,
            "iceberg.tables.dynamic-enabled": "true",
            "iceberg.tables.route-field": "route",
            "iceberg.tables.auto-create-enabled": "true",
            "iceberg.control.topic": f"control-{self.name}",
            "iceberg.control.commit.interval-ms": "1000",
            "iceberg.control.commit.timeout-ms": "6000",
            "iceberg.engine": "local",
            "iceberg.batch.max-records": "400",
            "kafka.bootstrap.servers": self.servers,
            "kafka.session.timeout.ms": "3000",
            "kafka.heartbeat.interval.ms": "500",
            **{f"iceberg.catalog.{k}": v for k, v in self.catalog_keys.items()},
        }

    def put_aside(self, changed: Mapping[str, str]) -> None:
        """Every third worker has these settings from now on."""
        self.aside = self.folder / "aside.json"
        self.aside.write_text(json.dumps(json.loads(self.config.read_text()) | dict(changed)))

    # Workers

    def start(
        self,
        fault: str | None = None,
        *,
        forced: bool = False,
        aside: bool | None = None,
        former: Path | None = None,
    ) -> Process:
        """``aside``: with those settings or without; by default every third worker has them. ``former``: a tree of
        another version, which is run instead of this one.
        """
        env = {"CALVING_LOG_LEVEL": "INFO", "BACKEND": self._backend, **({"FAULT": fault} if fault else {})}
        env |= self.environment
        if forced:
            env["FORCE_LEAD"] = str(self.force)
        log = self.folder / f"worker-{len(self.workers)}.log"
        if aside is None:
            aside = len(self.workers) % 3 == 0
        config = self.aside if self.aside is not None and aside else self.config
        worker = Forked(self.module, [str(config)], log, env, former)
        self.workers.append(worker)
        return worker

    def stop(self) -> None:
        """A clean stop of all workers that live; kill what does not obey, after it has said where it is."""
        for worker in self.workers:
            worker.signal(signal.SIGCONT)
            worker.signal(signal.SIGTERM)
        deadline = time.monotonic() + 15
        while any(w.returncode is None for w in self.workers) and time.monotonic() < deadline:
            time.sleep(0.1)
        for worker in self.workers:
            if worker.returncode is None:
                worker.signal(signal.SIGUSR1)
                time.sleep(0.5)
        for worker in self.workers:
            worker.stop(5)

    def close(self) -> None:
        """``stop``; the ends of all logs are in the report of a test that has failed."""
        self.stop()
        for worker in self.workers:
            lines = worker.log.read_text(errors="replace").splitlines()[-15:]
            print(f"--- {worker.log.name}", *lines, sep="\n")

    def recover(self, seconds: float = 120, *rolled_back: str) -> str:
        """``calving recover``, as soon as the group has forgotten the workers that were killed."""
        tables = [option for name in rolled_back for option in ("--table", name)]
        deadline = time.monotonic() + seconds
        while True:
            done = self._command("recover", *tables)
            if "members: stop all workers" not in done.stdout + done.stderr or time.monotonic() > deadline:
                assert done.returncode == 0, done.stdout + done.stderr
                return done.stdout
            time.sleep(0.5)

    def release(self, table: str, out: Path) -> bool:
        """``calving release``; whether anything was discarded, or may have been, which then stands in ``out``."""
        self._command("release", "--table", table, "--record", str(out))
        return out.exists()

    def maintain(self, *options: str, alone: bool = False) -> str:
        """What ``calving maintain`` says. It may lose every race with the sink's commits; ``alone``: there are none."""
        done = self._command("maintain", *options)
        text = done.stdout + done.stderr
        assert done.returncode == 0 or ("run it again" in text and not alone), text
        return text

    def command(self, name: str, *options: str) -> list[str]:
        """The words that run a command of ``calving`` with the sink's settings."""
        return [sys.executable, "-c", "from calving.cli.main import main; main()", name, str(self.config), *options]

    def _command(self, name: str, *options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.command(name, *options), capture_output=True, text=True, timeout=240, check=False)

    # Records

    def recreate_topic(self) -> str:
        """Delete the source topic and create it again; the id of the new one."""
        admin = AdminClient(client_config({"bootstrap.servers": self.servers}))
        admin.delete_topics([self.topic])[self.topic].result()
        deadline = time.monotonic() + 120
        created = False
        while True:
            try:
                if not created:
                    admin.create_topics([NewTopic(self.topic, self.partitions, 1, config=_ANY_TIME)])[
                        self.topic
                    ].result()
                    created = True
                return str(admin.describe_topics(TopicCollection([self.topic]))[self.topic].result().topic_id)
            except KafkaException as error:  # brokers take a moment for both
                passing = (KafkaError.TOPIC_ALREADY_EXISTS, KafkaError.UNKNOWN_TOPIC_OR_PART)
                if error.args[0].code() not in passing or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def payload(self, number: int) -> bytes | None:
        return value(number, self.tables)

    def produce(self, count: int, per_second: int = 1000) -> None:
        for _ in range(count):
            self.send(self.sent, self.sent * 7 % self.partitions)
            self.sent += 1
            if self.sent % 50 == 0:
                self._producer.poll(0)
                time.sleep(50 / per_second)
        assert self._producer.flush(60) == 0

    def send(self, number: int, partition: int) -> None:
        """Send the record of this number, soon."""
        self._producer.produce(self.topic, self.payload(number), str(number), partition=partition)

    def produce_until_it_dies(self, worker: Process, seconds: float = 180) -> bool:
        """Records go on, so that each cycle has something to commit; whether the worker has killed itself by then."""
        deadline = time.monotonic() + seconds
        while worker.returncode is None and time.monotonic() < deadline:
            self.produce(50, 250)
        return died(worker, 0)

    # The checker

    @property
    def catalog(self) -> Catalog:
        return open_catalog("iceberg", self.catalog_keys)

    def rows(self) -> pa.Table:
        """All tables, read by DuckDB from the files that pyiceberg lists as live."""
        paths = self._files()
        if not paths:
            return pa.table({"id": pa.array([], pa.int64()), "route": [], "proof": []})
        # A file that is listed twice is read twice: that is a duplicate, too.
        return duckdb.sql(f"select id, route, proof from read_parquet({paths})").to_arrow_table()

    def committed(self) -> int:
        """Rows that the tables say they have."""
        catalog = self.catalog
        return sum(row_count(catalog, name) for name in self.tables)

    def _files(self) -> list[str]:
        found = []
        for name in self.tables:
            table = find_table(self.catalog, tuple(name.split(".")))
            if table is not None:
                files = [task.file for task in table.scan(row_filter=AlwaysTrue()).plan_files()]
                found += [file.file_path.removeprefix("file://") for file in files]
        return found

    def verdict(self) -> dict[str, int]:
        """GAP, DUPLICATE and MISMATCH counts; all zero is exactly once."""
        rows = self.rows()
        seen = Counter(rows["id"].to_pylist())
        wrong = 0
        for number, route, proof in zip(*(rows[c].to_pylist() for c in ("id", "route", "proof")), strict=True):
            expected = json.loads(value(number, self.tables))
            wrong += (route, proof) != (expected["route"], expected["proof"])
        return {
            "GAP": sum(1 for number in range(self.sent) if number not in seen),
            "DUPLICATE": sum(count - 1 for count in seen.values()),
            "MISMATCH": wrong,
        }

    def wait_until_committed(self, seconds: float = 180, while_waiting: Callable[[], None] | None = None) -> None:
        deadline = time.monotonic() + seconds
        while self.committed() < self.sent and time.monotonic() < deadline:
            if while_waiting is not None:
                while_waiting()
            time.sleep(0.5)

    def revive(self) -> None:
        """Start a new worker for each that died."""
        for worker in list(self.workers):
            if worker.returncode is not None and worker not in self.replaced:
                self.replaced.add(worker)
                self.start()

    def assert_exactly_once(self) -> None:
        verdict = self.verdict()
        assert verdict == {"GAP": 0, "DUPLICATE": 0, "MISMATCH": 0}, f"{verdict}; logs in {self.folder}"
        self.assert_ledgers_never_go_back()

    def assert_ledgers_never_go_back(self) -> None:
        key = f"kafka.connect.offsets.control-{self.name}.connect-{self.name}"
        for name in self.tables:
            table = find_table(self.catalog, tuple(name.split(".")))
            last: dict[str, dict[str, int]] = {}
            log_id = ""
            for snapshot in sorted(table.metadata.snapshots, key=lambda s: s.sequence_number or 0) if table else ():
                summary = snapshot.summary.additional_properties if snapshot.summary else {}
                if key in summary:
                    now = json.loads(summary[key])
                    log_id = summary.get("calving.control-log-id", log_id)  # the Java sink writes none
                    before = last.get(log_id, {})
                    assert all(now.get(p, 0) >= o for p, o in before.items()), f"I3: {before} then {now}"
                    last[log_id] = now


def died(worker: Process, seconds: float = 180) -> bool:
    """Whether it has killed itself, which is what its fault was for."""
    deadline = time.monotonic() + seconds
    while worker.returncode is None and time.monotonic() < deadline:
        time.sleep(0.1)
    return worker.returncode == -signal.SIGKILL


def pause(service: Service, seconds: float) -> None:
    service.signal(signal.SIGSTOP)
    time.sleep(seconds)
    service.signal(signal.SIGCONT)
