"""The faults, by name. Each does its harm, undoes what has to be undone, and returns."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import redis
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, NotEmptyError
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import _dataframe_to_data_files

from calving.iceberg.catalog import find_table
from calving.services.kafka import KafkaServer
from calving.services.process import Process
from calving.services.redis import RedisServer
from calving.services.zookeeper import ZooKeeperServer
from calving.source.client import client_config
from campaign.checker import Checker
from campaign.proxy import Proxy
from tests.e2e.harness import Run, Store, pause

ARMED = [
    f"{place}:{when}:{count}"
    for place, whens in (
        ("publish", ("before", "after")),
        ("acknowledge", ("before", "after")),
        ("table", ("before", "after", "lost-request", "lost-answer", "false-conflict")),
        ("batch", ("before", "after")),
    )
    for when in whens
    for count in (1, 2, 3)
]
"""What a worker that is started may have been told to do to itself."""
OF_ONE = ("deaf cursor", "stuck worker")
"""Sabotage that one worker in three is enough for; the rest is in what a leader does, whoever that is."""


@dataclass
class Field:
    """What there is to break."""

    run: Run
    broker: KafkaServer
    store: Store
    proxy: Proxy
    folder: Path
    rng: random.Random
    workers: int
    checker: Checker
    sabotage: str | None = None
    """Of every worker, or of one in three: see ``OF_ONE``."""
    recovered: int = 0
    """How often an operator has."""
    armed: dict[str, int] = field(default_factory=dict)
    """Faults that workers were started with; not all live long enough to commit theirs."""

    @property
    def hang(self) -> Path:
        """While this exists, the catalog hangs."""
        return self.folder / "hang"

    def living(self) -> list[Process]:
        return [w for w in self.run.workers if w.returncode is None]

    def victim(self) -> Process | None:
        living = self.living()
        return self.rng.choice(living) if living else None

    def revive(self, *, armed: bool = True) -> None:
        """As many workers as there should be; every other one carries a fault of its own, if they are ``armed``."""
        while len(self.living()) < self.workers:
            fault = self.rng.choice(ARMED) if armed and self.rng.random() < 0.5 else None
            self.run.environment.pop("SABOTAGE", None)
            if self.sabotage is not None and (self.sabotage not in OF_ONE or len(self.run.workers) % 3 == 1):
                self.run.environment["SABOTAGE"] = self.sabotage
            if fault is not None:
                self.armed[fault.rpartition(":")[0]] = self.armed.get(fault.rpartition(":")[0], 0) + 1
            self.run.start(fault, forced=True)


def worker_killed(f: Field) -> None:
    if (victim := f.victim()) is not None:
        victim.kill()


def worker_stopped(f: Field) -> None:
    """Past its session, or not."""
    if (victim := f.victim()) is not None:
        pause(victim, f.rng.uniform(0.5, 6))


def worker_left(f: Field) -> None:
    if (victim := f.victim()) is not None:
        victim.signal(signal.SIGTERM)


def all_workers_killed(f: Field) -> None:
    for worker in f.living():
        worker.kill()


def store_killed(f: Field) -> None:
    f.store.kill()
    time.sleep(f.rng.uniform(0, 2))
    f.store.start()


def store_slow(f: Field) -> None:
    if f.store.process is not None:
        pause(f.store.process, f.rng.uniform(0.5, 4))


def broker_killed(f: Field) -> None:
    f.broker.kill()
    time.sleep(f.rng.uniform(0, 1))
    f.broker.start()


def two_leaders(f: Field) -> None:
    """Every worker believes that it leads, for a moment or for a minute."""
    f.run.force.touch()
    end = time.monotonic() + f.rng.choice((3, 8, 60))
    while time.monotonic() < end:
        f.revive()  # those that have killed themselves
        time.sleep(0.5)
    f.run.force.unlink()


def catalog_away(f: Field) -> None:
    with sqlite3.connect(_database(f), timeout=30, isolation_level=None) as connection:
        connection.execute("begin exclusive")
        time.sleep(f.rng.uniform(0.5, 4))
        connection.execute("rollback")


def catalog_silent(f: Field) -> None:
    """It neither answers nor refuses."""
    f.hang.touch()
    time.sleep(f.rng.uniform(3, 15))
    f.hang.unlink()


def catalog_restored(f: Field) -> None:
    """From a backup some seconds old; an operator has stopped the workers for it, and recovers the sink."""
    copy = f.folder / "catalog-copy.db"
    with sqlite3.connect(_database(f), timeout=30) as connection, sqlite3.connect(copy) as backup:
        connection.backup(backup)
    time.sleep(f.rng.uniform(2, 8))
    all_workers_killed(f)
    with sqlite3.connect(copy) as backup, sqlite3.connect(_database(f), timeout=30) as connection:
        backup.backup(connection)
    f.checker.tables_went_back()
    f.recovered += 1
    f.run.recover(60)


def table_broken(f: Field) -> None:
    """One table cannot be loaded for a while."""
    name = f.rng.choice(f.run.tables).split(".")[1]
    with sqlite3.connect(_database(f), timeout=30) as connection:
        row = connection.execute(
            "select metadata_location from iceberg_tables where table_name = ?", (name,)
        ).fetchone()
        if row is None:
            return
        connection.execute(
            "update iceberg_tables set metadata_location = ? where table_name = ? and metadata_location = ?",
            (f"{row[0]}.broken", name, row[0]),
        )
    time.sleep(f.rng.uniform(0.5, 4))
    with sqlite3.connect(_database(f), timeout=30) as connection:
        connection.execute(
            "update iceberg_tables set metadata_location = ? where table_name = ? and metadata_location = ?",
            (row[0], name, f"{row[0]}.broken"),
        )


def foreign_commit(f: Field) -> None:
    """Somebody else changes a table: the sink's own commit meets a conflict."""
    table = find_table(f.run.catalog, tuple(f.rng.choice(f.run.tables).split(".")))
    if table is not None:
        with contextlib.suppress(CommitFailedException), table.transaction() as change:
            change.set_properties({"touched": str(f.rng.random())})


def foreign_expiry(f: Field) -> None:
    """Somebody else expires snapshots, those with the sink's ledger among them."""
    table = find_table(f.run.catalog, tuple(f.rng.choice(f.run.tables).split(".")))
    if table is None or len(table.metadata.snapshots) < 3:
        return
    oldest = sorted(table.metadata.snapshots, key=lambda s: s.sequence_number or 0)[:2]
    with contextlib.suppress(CommitFailedException, ValueError):
        expire = table.maintenance.expire_snapshots()
        for snapshot in oldest:
            expire = expire.by_id(snapshot.snapshot_id)
        expire.commit()


def compaction(f: Field) -> None:
    """Somebody else makes one file of many."""
    table = find_table(f.run.catalog, tuple(f.rng.choice(f.run.tables).split(".")))
    if table is None:
        return
    files = [task.file for task in table.scan(row_filter=AlwaysTrue()).plan_files()]
    small = [file for file in files if file.file_path.endswith(".parquet")][:12]
    if len(small) < 4:
        return
    schema = table.schema().as_arrow()
    rows = pa.concat_tables(pq.read_table(file.file_path.removeprefix("file://")).cast(schema) for file in small)
    with contextlib.suppress(CommitFailedException, ValidationException), table.transaction() as change:
        # What pyiceberg would do by itself after a conflict is to rebase, which is not what is tested here.
        change.set_properties({"commit.retry.num-retries": "0"})
        with change.update_snapshot().overwrite() as files:
            for file in small:
                files.delete_data_file(file)
            for file in _dataframe_to_data_files(change.table_metadata, rows, table.io):
                files.append_data_file(file)


def network_cut(f: Field) -> None:
    """Between the store and the workers whose way leads through the proxy."""
    f.proxy.cut()
    time.sleep(f.rng.uniform(0.5, 6))
    f.proxy.mend()


def network_silent(f: Field) -> None:
    f.proxy.hush()
    time.sleep(f.rng.uniform(0.5, 6))
    f.proxy.mend()


def clock_jumped(f: Field) -> None:
    """The clock that control offsets come from was an hour ahead for a moment."""
    ahead = 3_600_000_000
    match f.store:
        case RedisServer(port=port):
            client = redis.Redis(port=port)
            for key in client.keys("*state*"):
                client.hincrby(key, "last", ahead)
        case ZooKeeperServer(hosts=hosts):
            with _zookeeper(hosts) as client:
                for path in _states(client):
                    raw, stat = client.get(path)
                    state = json.loads(raw)
                    with contextlib.suppress(BadVersionError):
                        client.set(path, json.dumps(state | {"next": state["next"] + ahead}).encode(), stat.version)


def store_wiped(f: Field) -> None:
    """Under workers that run; an operator stops them a little later, and recovers the sink."""
    match f.store:
        case RedisServer(port=port):
            redis.Redis(port=port).flushall()
        case ZooKeeperServer(hosts=hosts):
            with _zookeeper(hosts) as client:
                while client.exists("/calving"):
                    with contextlib.suppress(NotEmptyError):  # workers go on writing
                        client.delete("/calving", recursive=True)
        case KafkaServer(bootstrap_servers=servers):
            admin = AdminClient(client_config({"bootstrap.servers": servers}))
            admin.delete_topics([f"control-{f.run.name}"])[f"control-{f.run.name}"].result()
    _operator(f)


def store_went_back(f: Field) -> None:
    """It comes back from a copy some seconds old, as after a failover; of a broker nobody makes such copies."""
    if isinstance(f.store, KafkaServer):
        return store_wiped(f)
    data, copy = f.store.folder, f.folder / "copy"
    f.store.kill()
    shutil.copytree(data, copy)
    f.store.start()
    time.sleep(f.rng.uniform(2, 8))
    f.store.kill()
    shutil.rmtree(data)
    copy.rename(data)
    f.store.start()
    return _operator(f)


def _operator(f: Field) -> None:
    time.sleep(f.rng.uniform(0, 6))
    all_workers_killed(f)
    f.recovered += 1
    f.run.recover(60)


@contextlib.contextmanager
def _zookeeper(hosts: str) -> Iterator[KazooClient]:
    client = KazooClient(hosts)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


def _states(client: KazooClient, path: str = "/calving") -> list[str]:
    found = [f"{path}/{child}" for child in client.get_children(path)]
    return [p for p in found if p.endswith("/state")] or [s for p in found for s in _states(client, p)]


FAULTS: dict[str, tuple[Callable[[Field], None], int]] = {
    "worker killed": (worker_killed, 10),
    "worker stopped": (worker_stopped, 4),
    "worker left": (worker_left, 3),
    "all workers killed": (all_workers_killed, 1),
    "store killed": (store_killed, 3),
    "store slow": (store_slow, 2),
    "broker killed": (broker_killed, 1),
    "two leaders": (two_leaders, 2),
    "catalog away": (catalog_away, 2),
    "catalog silent": (catalog_silent, 2),
    "catalog restored": (catalog_restored, 1),
    "table broken": (table_broken, 2),
    "foreign commit": (foreign_commit, 4),
    "foreign expiry": (foreign_expiry, 2),
    "compaction": (compaction, 2),
    "network cut": (network_cut, 3),
    "network silent": (network_silent, 2),
    "clock jumped": (clock_jumped, 1),
    "store wiped": (store_wiped, 1),
    "store went back": (store_went_back, 1),
}
"""With how often each comes, relative to the others."""


def faults_of(store: Store) -> list[str]:
    """Those that harm a sink with this store: no clock gives Kafka its offsets."""
    return [kind for kind in FAULTS if not (isinstance(store, KafkaServer) and kind == "clock jumped")]


def _database(f: Field) -> Path:
    return Path(f.run.catalog_keys["warehouse"]) / "catalog.db"
