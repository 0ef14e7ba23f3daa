"""Calls that never come back: they stop no other table, no commit of another table, and no clean stop."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from calving.iceberg.catalog import find_table, open_catalog
from calving.services.kafka import KafkaServer
from calving.services.process import Process
from calving.services.rest_catalog import RestCatalog
from calving.services.stores import RedisServer, ZooKeeperServer
from harness.heads import row_count
from harness.proxy import Proxy
from harness.run import Run, Store, settings_of
from harness.sent import TABLES
from harness.waiting import wait_for

pytestmark = pytest.mark.services

SOON = {"iceberg.control.commit.table-timeout-ms": "2000", "iceberg.stop-timeout-ms": "3000"}


@pytest.fixture
def run(servers: str, tmp_path: Path, unique: str) -> Iterator[Callable[..., Run]]:
    made: list[Run] = []

    def make(settings: Mapping[str, str | None] | None = None, tables: Sequence[str] = TABLES) -> Run:
        made.append(Run(tmp_path, servers, unique, settings=settings, tables=tables))
        return made[-1]

    yield make
    for one in made:
        one.close()


def rows_of(run: Run, table: str) -> int:
    return row_count(run.catalog, table)


def wait_for_rows(run: Run, table: str, count: int) -> None:
    wait_for(lambda: rows_of(run, table) == count)


def stops_cleanly(worker: Process, seconds: float) -> bool:
    worker.signal(signal.SIGTERM)
    try:
        return worker.wait(seconds) == 0
    except subprocess.TimeoutExpired:
        return False


def test_a_commit_that_hangs_stops_neither_the_other_tables_nor_a_clean_stop(
    run: Callable[..., Run], keys: dict[str, str]
) -> None:
    r = run(settings=SOON | keys)
    worker = r.start("table=db.even:hang:2")
    r.produce(600)
    wait_for(lambda: rows_of(r, "db.odd") == 300)
    for sent in (600, 900):
        r.produce(600)
        wait_for_rows(r, "db.odd", sent)
    assert rows_of(r, "db.even") < 900
    assert "table db.even: still committing" in worker.log.read_text()
    wait_for(lambda: "DEGRADED: table-failing: table db.even: " in worker.log.read_text())
    assert stops_cleanly(worker, 20)
    r.start()
    r.wait_until_committed()
    r.stop()
    r.assert_exactly_once()


@pytest.fixture(scope="module")
def own_rest_uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of its own: nothing that others have left in it counts, nor what is cut off here."""
    server = RestCatalog(tmp_path_factory.mktemp("own-rest"))
    yield server.uri
    server.stop()


@pytest.fixture
def silenced(run: Callable[..., Run], own_rest_uri: str, unique: str) -> Iterator[tuple[Run, Proxy]]:
    """A sink that has written to a REST catalog, and what its way to the catalog goes through."""
    proxy = Proxy(int(own_rest_uri.rpartition(":")[2].strip("/")))
    space = f"hangs{unique}"
    through = {"iceberg.catalog.type": "rest", "iceberg.catalog.uri": f"http://127.0.0.1:{proxy.port}"}
    r = run(settings={**SOON, **through, "iceberg.catalog.warehouse": None}, tables=(f"{space}.even", f"{space}.odd"))
    catalog = open_catalog("iceberg", {"type": "rest", "uri": own_rest_uri})
    worker = r.start()
    r.produce(600)
    try:
        wait_for(lambda: find_table(catalog, (space, "odd")) is not None)
    except AssertionError as error:
        raise AssertionError(f"{proxy.wires} connections; the worker: {worker.log.read_text()[-4000:]}") from error
    yield r, proxy
    proxy.close()


def test_a_catalog_that_falls_silent_does_not_hold_up_a_clean_stop(silenced: tuple[Run, Proxy]) -> None:
    r, proxy = silenced
    proxy.hush()
    r.produce(600)
    time.sleep(3)
    assert stops_cleanly(r.workers[-1], 30)


def test_a_catalog_that_is_silent_when_a_worker_starts_does_not_hold_up_its_clean_stop(
    silenced: tuple[Run, Proxy],
) -> None:
    r, proxy = silenced
    r.stop()
    proxy.hush()
    wait_for(lambda: proxy.wires == 0)
    worker = r.start()
    wait_for(lambda: proxy.wires > 0)
    assert stops_cleanly(worker, 15)


def test_a_broker_that_falls_silent_does_not_hold_up_a_clean_stop(
    own_broker: KafkaServer, tmp_path: Path, unique: str
) -> None:
    r = Run(tmp_path, own_broker.bootstrap_servers, unique, settings=SOON)
    assert_it_stops_while_silent(r, own_broker)


def test_a_store_that_falls_silent_does_not_hold_up_a_clean_stop(
    store: RedisServer | ZooKeeperServer, servers: str, tmp_path: Path, unique: str
) -> None:
    r = Run(tmp_path, servers, unique, settings=SOON | settings_of(store))
    assert_it_stops_while_silent(r, store)


def assert_it_stops_while_silent(r: Run, server: Store) -> None:
    try:
        worker = r.start()
        r.produce(600)
        r.wait_until_committed()
        assert server.process is not None
        server.process.signal(signal.SIGSTOP)
        time.sleep(2)
        assert stops_cleanly(worker, 30)
    finally:
        if server.process is not None:
            server.process.signal(signal.SIGCONT)
        r.close()


def test_a_worker_whose_batch_never_ends_says_where_it_hangs_and_ends_itself(run: Callable[..., Run]) -> None:
    """Meanwhile the leader, in the same process, says whose answers its commits lack."""
    r = run(settings={"iceberg.stalled-after-ms": "5000", "iceberg.control.commit.timeout-ms": "2000"})
    worker = r.start("batch:hang:2")
    r.produce(600)
    assert worker.wait(60) == 75
    text = worker.log.read_text()
    assert "this process ends itself: a batch has been running for" in text
    assert f"PARTIAL: no answer for {r.topic}-0, {r.topic}-1, {r.topic}-2" in text
    r.start()
    r.wait_until_committed()
    r.stop()
    r.assert_exactly_once()


def test_a_leader_without_a_full_cycle_for_too_long_says_so_and_ends_itself(run: Callable[..., Run]) -> None:
    r = run(settings=SOON | {"iceberg.control.commit.full-cycle-within-ms": "10000"})
    worker = r.start("table=db.even:hang:2")
    for _ in range(2):
        r.produce(600)
        wait_for(lambda: rows_of(r, "db.odd") == r.sent // 2)
    assert worker.wait(90) == 75
    assert "this process ends itself: no commit cycle was full for" in worker.log.read_text()
    r.start()
    r.wait_until_committed()
    r.stop()
    r.assert_exactly_once()
