"""The faults, by name. Each does its harm, undoes what has to be undone, and returns."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pyiceberg.exceptions import CommitFailedException

from calving.iceberg.catalog import find_table
from calving.services.kafka import LocalKafka
from calving.services.process import Process
from tests.e2e.harness import Run, Store

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


@dataclass
class Field:
    """What there is to break."""

    run: Run
    broker: LocalKafka
    store: Store
    rng: random.Random
    workers: int
    armed: dict[str, int] = field(default_factory=dict)
    """Faults that workers were started with; not all live long enough to commit theirs."""

    def living(self) -> list[Process]:
        return [w for w in self.run.workers if w.returncode is None]

    def victim(self) -> Process | None:
        living = self.living()
        return self.rng.choice(living) if living else None

    def revive(self) -> None:
        """As many workers as there should be; every other one carries a fault of its own."""
        while len(self.living()) < self.workers:
            fault = self.rng.choice(ARMED) if self.rng.random() < 0.5 else None
            if fault is not None:
                self.armed[fault.rpartition(":")[0]] = self.armed.get(fault.rpartition(":")[0], 0) + 1
            self.run.start(fault, forced=True)


def worker_killed(f: Field) -> None:
    if (victim := f.victim()) is not None:
        victim.kill()


def worker_stopped(f: Field) -> None:
    """Past its session, or not."""
    if (victim := f.victim()) is not None:
        _paused(victim.pid, f.rng.uniform(0.5, 6))


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
        _paused(f.store.process.pid, f.rng.uniform(0.5, 4))


def broker_killed(f: Field) -> None:
    f.broker.kill()
    time.sleep(f.rng.uniform(0, 1))
    f.broker.start()


def two_leaders(f: Field) -> None:
    """Every worker believes that it leads."""
    f.run.force.touch()
    time.sleep(f.rng.uniform(2, 8))
    f.run.force.unlink()


def catalog_away(f: Field) -> None:
    with sqlite3.connect(_database(f), timeout=30, isolation_level=None) as connection:
        connection.execute("begin exclusive")
        time.sleep(f.rng.uniform(0.5, 4))
        connection.execute("rollback")


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
    "table broken": (table_broken, 2),
    "foreign commit": (foreign_commit, 4),
    "foreign expiry": (foreign_expiry, 2),
}
"""With how often each comes, relative to the others."""


def _paused(pid: int, seconds: float) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(pid, signal.SIGCONT)


def _database(f: Field) -> Path:
    return Path(f.run.catalog_keys["warehouse"]) / "catalog.db"
