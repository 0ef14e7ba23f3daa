"""The faults, by name. Each does its harm, undoes what has to be undone, and returns."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import redis
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, NotEmptyError
from pyiceberg.exceptions import CommitFailedException, RESTError, ValidationException
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import write_file
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionFieldValue, PartitionKey
from pyiceberg.table import Table, Transaction, WriteTask
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import LongType

from calving.errors import CalvingError
from calving.iceberg.catalog import find_table
from calving.services.kafka import KafkaServer
from calving.services.stores import RedisServer, ZooKeeperServer
from calving.source.client import client_config
from campaign import records
from campaign.changes import Warehouse, Workload
from campaign.field import Field
from campaign.lake import S3Lake
from campaign.rows import FOREIGN
from harness.run import Store, pause
from harness.waiting import happens_within

_IN_VAIN = (CommitFailedException, ValidationException, RESTError, OSError)
"""Others give up, too."""
_MEMBERS_SECONDS = 240
"""So long a group may have members that were killed, on a machine that is busy."""


_NOTICED_SECONDS = 60
"""So long after a rollback a table may say nothing of it: a few commits, on a machine that is busy."""
_REREAD_SECONDS = 120


def worker_killed(f: Field) -> None:
    if (victim := f.victim()) is not None:
        victim.kill()


def worker_killed_inside(f: Field) -> None:
    """A transaction stays open: whoever is the first to begin one, worker or leader, dies in it."""
    trigger = f.folder / f.rng.choice(("offsets-after", "transaction-before"))
    trigger.touch()
    end = time.monotonic() + 10
    while trigger.exists() and time.monotonic() < end:
        time.sleep(0.05)
    trigger.unlink(missing_ok=True)


def worker_stopped(f: Field) -> None:
    """Past its session, or not."""
    if (victim := f.victim()) is not None:
        pause(victim, f.rng.uniform(0.5, 6))


def worker_left(f: Field) -> None:
    if (victim := f.victim()) is not None:
        victim.signal(signal.SIGTERM)


def versions_changed(f: Field) -> None:
    """Workers go, and some of the other version take their places, as in a rolling upgrade or on the way back. Before
    the first one of the former version comes, all records are read at which it would stop.
    """
    if f.has_former:
        f.change_versions()
        return
    with f.quiet():
        if _all_is_read(f):
            f.run.poisoned = False
            f.change_versions()


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
    with sqlite3.connect(f.database, timeout=30, isolation_level=None) as connection:
        connection.execute("begin exclusive")
        time.sleep(f.rng.uniform(0.5, 4))
        connection.execute("rollback")


def catalog_silent(f: Field) -> None:
    """It neither answers nor refuses."""
    seconds = f.rng.uniform(3, 15)
    if f.lake is not None and f.lake.catalog.process is not None:
        pause(f.lake.catalog.process, seconds)
        return
    f.hang.touch()
    time.sleep(seconds)
    f.hang.unlink()


def catalog_killed(f: Field) -> None:
    assert f.lake is not None
    f.lake.catalog.kill()
    time.sleep(f.rng.uniform(0, 4))
    f.lake.catalog.start()


def objects_killed(f: Field) -> None:
    assert isinstance(f.lake, S3Lake)
    f.lake.restart_store(f.rng.uniform(0, 4))


def objects_slow(f: Field) -> None:
    assert isinstance(f.lake, S3Lake)
    if f.lake.store.process is not None:
        pause(f.lake.store.process, f.rng.uniform(0.5, 8))


def objects_busy(f: Field) -> None:
    """The store refuses some requests, or all."""
    assert isinstance(f.lake, S3Lake)
    with f.lake.trouble({"busy": f.rng.choice((0.2, 0.5, 1.0))}):
        time.sleep(f.rng.uniform(1, 10))


def objects_reset(f: Field) -> None:
    """Connections to the store break, before a request and after it; or none comes through."""
    assert isinstance(f.lake, S3Lake)
    share = f.rng.choice((0.1, 0.25, 0.5))
    with f.lake.trouble({"reset": share, "answer lost": share}):
        time.sleep(f.rng.uniform(1, 10))


def catalog_restored(f: Field) -> None:
    """From a backup some seconds old; an operator has stopped the workers for it, and recovers the sink."""
    copy = f.folder / "catalog-copy.db"
    with sqlite3.connect(f.database, timeout=30) as connection, sqlite3.connect(copy) as backup:
        connection.backup(backup)
    time.sleep(f.rng.uniform(2, 8))
    all_workers_killed(f)
    f.checker.tell("look away")
    with sqlite3.connect(copy) as backup, sqlite3.connect(f.database, timeout=30) as connection:
        backup.backup(connection)
    f.checker.tell("back")
    f.recovered += 1
    f.run.recover(_MEMBERS_SECONDS)


def table_broken(f: Field) -> None:
    """One table cannot be loaded for a while."""
    name = f.rng.choice(f.run.tables).split(".")[1]
    with sqlite3.connect(f.database, timeout=30) as connection:
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
    with sqlite3.connect(f.database, timeout=30) as connection:
        connection.execute(
            "update iceberg_tables set metadata_location = ? where table_name = ? and metadata_location = ?",
            (row[0], name, f"{row[0]}.broken"),
        )


def table_dropped(f: Field) -> None:
    """The sink creates it again; an operator discards what was written for the former one."""
    name = f.rng.choice(f.run.tables)
    with sqlite3.connect(f.database, timeout=30, isolation_level=None) as connection:
        connection.execute("begin exclusive")
        row = connection.execute(
            "delete from iceberg_tables where table_name = ? returning metadata_location", (name.split(".")[1],)
        ).fetchone()
        if row is not None:
            f.checker.tell("dropped", name, row[0])
        connection.execute("commit")
    if row is None:
        return
    f.dropped.add(name)
    time.sleep(f.rng.uniform(0, 4))
    if f.rng.random() < 0.5:
        all_workers_killed(f)
    else:
        f.revive(armed=False)
    _let_go(f, name)


def _let_go(f: Field, name: str) -> None:
    """Until workers that still had the former table have published, at most."""
    end, idle = time.monotonic() + 20, 0
    while time.monotonic() < end and idle < 3:
        out = f.folder / f"released-{time.monotonic_ns()}.json"
        # A table's ledger may pass over what was discarded as soon as that is done.
        f.checker.tell("look away")
        tables = json.loads(out.read_text())["tables"] if f.run.release(name, out) else []
        f.checker.tell("released", [path for table in tables for path in table["files"]])
        if not tables:
            idle += 1
            time.sleep(1)


def topic_recreated(f: Field) -> None:
    """Once everything in it is committed; the sink goes on with the new one, as it was told to."""
    with f.quiet():
        if _all_is_read(f):
            f.checker.tell("recreating")
            f.checker.tell("recreated", f.run.recreate_topic())


def _all_is_read(f: Field) -> bool:
    """Whether the sink soon has read and committed all that was sent. Nobody sends more meanwhile."""
    # What is in a table has been read, and all before it: the last record of each partition has to get there.
    while not records.end_in_tables(f.run.sent, f.run.partitions):
        f.run.produce(1)
    return f.wait(60, lambda: f.revive(armed=False)) is not None


def foreign_commit(f: Field) -> None:
    """Somebody else changes a table: the sink's own commit meets a conflict."""
    table = _some_table(f)
    if table is not None:
        with contextlib.suppress(*_IN_VAIN), table.transaction() as change:
            change.set_properties({"touched": str(f.rng.random())})


def foreign_expiry(f: Field) -> None:
    """Somebody else expires snapshots, those with the sink's ledger among them."""
    table = _some_table(f)
    if table is None or len(table.metadata.snapshots) < 3:
        return
    oldest = sorted(table.metadata.snapshots, key=lambda s: s.sequence_number or 0)[:2]
    with contextlib.suppress(*_IN_VAIN, ValueError):
        expire = table.maintenance.expire_snapshots()
        for snapshot in oldest:
            expire = expire.by_id(snapshot.snapshot_id)
        expire.commit()


def compaction(f: Field) -> None:
    """Somebody else makes one file of many."""
    table = _some_table(f)
    if table is not None and _is_parquet(table):
        with contextlib.suppress(*_IN_VAIN):
            _compact(table)


def _compact(table: Table) -> None:
    head = table.current_snapshot()
    if head is None or head.summary is None or int(head.summary.get("total-equality-deletes", "0")):
        return  # keys would have to be looked up
    # The rows of a file with position deletes are not all there.
    files = [task.file for task in table.scan(row_filter=AlwaysTrue()).plan_files() if not task.delete_files]
    parquet = [file for file in files if file.file_path.endswith(".parquet")]
    in_partitions = [file for file in parquet if file.spec_id == table.spec().spec_id]
    small = [file for file in in_partitions if file.partition == in_partitions[0].partition][:12]
    if len(small) < 4:
        return
    schema = table.schema().as_arrow()
    rows = pa.concat_tables(pq.read_table(table.io.new_input(f.file_path).open()).cast(schema) for f in small)
    with table.transaction() as change:
        # What pyiceberg would do by itself after a conflict is to rebase, which is not what is tested here.
        change.set_properties({"commit.retry.num-retries": "0"})
        with change.update_snapshot().overwrite() as overwrite:
            for file in small:
                overwrite.delete_data_file(file)
            overwrite.append_data_file(_written(change, table, rows, _values(small[0])))


def _is_parquet(table: Table) -> bool:
    """pyiceberg writes no other data files."""
    return table.properties.get("write.format.default", "parquet") == "parquet"


def _written(change: Transaction, table: Table, rows: pa.Table, partition: list[Any]) -> DataFile:
    """A data file with these rows. ``partition``: its values, one for each partition field."""
    schema, spec = table.schema(), table.spec()
    values = [PartitionFieldValue(field, value) for field, value in zip(spec.fields, partition, strict=True)]
    key = PartitionKey(values, spec, schema) if values else None
    task = WriteTask(uuid.uuid4(), 0, schema, rows.to_batches(), partition_key=key)
    (file,) = write_file(table.io, change.table_metadata, iter([task]))
    return file


def _values(file: DataFile) -> list[Any]:
    return [file.partition[at] for at in range(len(file.partition))]


def foreign_append(f: Field) -> None:
    """Somebody else adds a row, with a key that no record has."""
    table = _some_table(f)
    if table is None or not _is_parquet(table):
        return
    name, key = ".".join(table.name()), -1 - f.appended
    f.appended += 1
    f.checker.tell("appended", name, key, False)
    row = pa.Table.from_pylist([{"id": key, "route": name, "proof": FOREIGN}], table.schema().as_arrow())
    buckets = [field.transform.transform(LongType())(key) for field in table.spec().fields]
    with contextlib.suppress(*_IN_VAIN):
        with table.transaction() as change:
            change.set_properties({"commit.retry.num-retries": "0"})
            with change.update_snapshot().fast_append() as append:
                append.append_data_file(_written(change, table, row, buckets))
        f.checker.tell("appended", name, key, True)


def rolled_back(f: Field) -> None:
    """Somebody else moves a table's head back while the sink runs. Once the table says what is gone, an operator stops
    the workers, and has the removed records read again. If it does not say so in time, nobody does, and they are lost.
    """
    table = _some_table(f)
    if table is None or (target := before_a_commit(table, f.rng.randrange(3))) is None:
        return
    name, sent = ".".join(table.name()), f.run.sent
    f.checker.tell("look away")
    try:
        table.manage_snapshots().rollback_to_snapshot(target.snapshot_id).commit()
    except _IN_VAIN:
        f.checker.tell("back")
        return
    if happens_within(_NOTICED_SECONDS, lambda: _says_what_is_gone(f, name)):
        all_workers_killed(f)
        f.recovered += 1
        f.run.recover(_MEMBERS_SECONDS, name)
        f.revive(armed=False)
        # Until then other tables' ledgers call the removed records settled. Later records may come before them.
        happens_within(_REREAD_SECONDS, lambda: f.checker.is_complete(sent))
    f.checker.tell("back")


def before_a_commit(table: Table, more: int) -> Snapshot | None:
    """An ancestor of the head below a commit of the sink that added rows, and ``more`` snapshots below that."""
    own = False
    snapshot = table.current_snapshot()
    while snapshot is not None and snapshot.parent_snapshot_id is not None:
        said = snapshot.summary.additional_properties if snapshot.summary is not None else {}
        own = own or ("kafka.connect.commit-id" in said and said.get("added-records", "0") != "0")
        snapshot = table.metadata.snapshot_by_id(snapshot.parent_snapshot_id)
        if own and snapshot is not None and (more := more - 1) < 0:
            return snapshot
    return None


def _says_what_is_gone(f: Field, name: str) -> bool:
    properties = f.run.catalog.load_table(name).properties
    return any(value != "{}" for key, value in properties.items() if key.startswith("calving.gone-offsets."))


def maintained(f: Field) -> None:
    """An operator maintains the tables beside the sink, also those that its leader maintains."""
    f.run.maintain("--anyway")


def tagged(f: Field) -> None:
    """Somebody tags the head of a table, so no expiry may delete its files."""
    table = _some_table(f)
    if table is not None and (head := table.current_snapshot()) is not None:
        with contextlib.suppress(*_IN_VAIN):
            table.manage_snapshots().create_tag(head.snapshot_id, f"kept-{head.snapshot_id}").commit()


def _some_table(f: Field) -> Table | None:
    """One that is there, and can be loaded now."""
    try:
        return find_table(f.run.catalog, tuple(f.rng.choice(f.run.tables).split(".")))
    except CalvingError:
        return None


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
            with _zookeeper(hosts) as nodes:
                for path in _states(nodes):
                    raw, stat = nodes.get(path)
                    state = json.loads(raw)
                    with contextlib.suppress(BadVersionError):
                        nodes.set(path, json.dumps(state | {"next": state["next"] + ahead}).encode(), stat.version)


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
    f.run.recover(_MEMBERS_SECONDS)


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


OF_VERSIONS = "workers of another version"
"""This one needs a former version beside this one."""
FAULTS: dict[str, tuple[Callable[[Field], None], int]] = {
    "worker killed": (worker_killed, 10),
    "worker killed inside a transaction": (worker_killed_inside, 4),
    "worker stopped": (worker_stopped, 4),
    "worker left": (worker_left, 3),
    OF_VERSIONS: (versions_changed, 4),
    "all workers killed": (all_workers_killed, 1),
    "store killed": (store_killed, 3),
    "store slow": (store_slow, 2),
    "broker killed": (broker_killed, 1),
    "two leaders": (two_leaders, 2),
    "catalog away": (catalog_away, 2),
    "catalog silent": (catalog_silent, 2),
    "catalog restored": (catalog_restored, 1),
    "table broken": (table_broken, 2),
    "table dropped": (table_dropped, 1),
    "topic recreated": (topic_recreated, 1),
    "foreign commit": (foreign_commit, 4),
    "foreign expiry": (foreign_expiry, 2),
    "foreign append": (foreign_append, 4),
    "rolled back": (rolled_back, 1),
    "compaction": (compaction, 2),
    "maintained": (maintained, 1),
    "tagged": (tagged, 1),
    "network cut": (network_cut, 3),
    "network silent": (network_silent, 2),
    "clock jumped": (clock_jumped, 1),
    "store wiped": (store_wiped, 1),
    "store went back": (store_went_back, 1),
    "catalog killed": (catalog_killed, 3),
    "object store killed": (objects_killed, 4),
    "object store slow": (objects_slow, 4),
    "object store busy": (objects_busy, 6),
    "object store resets": (objects_reset, 6),
}
"""With how often each comes, relative to the others."""
OF_MAINTENANCE = {"compaction", "foreign expiry", "maintained", "tagged"}
"""These come more often where the sink maintains its tables."""
OF_S3 = {kind for kind in FAULTS if kind.startswith("object store")}


def faults_of(
    store: Store, workload: Workload = "append", warehouse: Warehouse = "local", *, maintained: bool = False
) -> list[str]:
    """The faults for a sink with this store: Kafka's offsets need no clock, and only Kafka has transactions.

    A mutation table is not dropped: the checker could not tell which changes of a key the dropped table held. Nor is it
    rolled back under a sink that runs, because changes are not put beneath later ones (I7). Tables of
    format version 3 are not changed by others here, because pyiceberg cannot write their manifests.
    """
    others = {"clock jumped" if isinstance(store, KafkaServer) else "worker killed inside a transaction"}
    others |= OF_S3 if warehouse != "s3" else set()
    others |= {"catalog killed"} if warehouse == "local" else set()
    if workload == "append":
        others |= {"foreign append", "maintained"}
    else:
        others |= {"table dropped", "rolled back"}
        others |= {"foreign append", "compaction", "maintained"} if warehouse != "local" else set()
    others = others - {"maintained"} if maintained else others | {"tagged"}
    return [kind for kind in FAULTS if kind not in others]
