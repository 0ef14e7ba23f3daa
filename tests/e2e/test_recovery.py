"""A lost control log or lost positions: detected at the next start, and recovered by an operator."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from confluent_kafka import OFFSET_END
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient

from calving.services.stores import RedisServer, ZooKeeperServer
from calving.source.client import client_config
from harness.run import Run, died, settings_of
from harness.sent import TABLES
from harness.topic import Topic
from tests.cli.commands import Cli

pytestmark = pytest.mark.services

STATIC = {
    "iceberg.tables.dynamic-enabled": "false",
    "iceberg.tables": ",".join(TABLES),
    **{f"iceberg.table.{name}.route-regex": name for name in TABLES},
}
Stored = RedisServer | ZooKeeperServer


@pytest.fixture
def run(servers: str, tmp_path: Path, unique: str) -> Iterator[Callable[[dict[str, str]], Run]]:
    made: list[Run] = []

    def start(settings: dict[str, str]) -> Run:
        made.append(Run(tmp_path, servers, unique, settings=settings))
        return made[0]

    yield start
    for found in made:
        found.close()


def until_something_is_published_and_not_committed(run: Run) -> None:
    """Some of it is committed, too, and no worker is left."""
    run.start()
    run.produce(900)
    run.wait_until_committed()
    run.stop()
    victim = run.start("publish:after:1")
    run.produce(1200)
    assert died(victim)
    assert run.committed() < run.sent


def refused(run: Run) -> str:
    worker = run.start()
    assert worker.wait(120) != 0
    text = worker.log.read_text()
    assert "calving recover FILE" in text
    run.replaced.add(worker)
    return text


def goes_on(run: Run) -> None:
    run.start()
    run.start()
    run.produce(600)
    run.wait_until_committed()
    run.stop()
    run.assert_exactly_once()


@pytest.mark.parametrize(
    ("store", "settings"),
    [("redis", STATIC), ("zookeeper", {})],
    ids=["redis", "zookeeper, routed freely"],
    indirect=["store"],
)
def test_a_store_that_was_wiped_is_no_first_start_and_can_be_recovered(
    store: Stored, run: Callable[[dict[str, str]], Run], settings: dict[str, str]
) -> None:
    sink = run(settings_of(store) | settings)
    until_something_is_published_and_not_committed(sink)
    wipe(store)
    assert "no stored positions, but table" in refused(sink)
    sink.recover()
    goes_on(sink)


@pytest.mark.parametrize(
    ("store", "settings"),
    [("redis", {}), ("zookeeper", STATIC)],
    ids=["redis, routed freely", "zookeeper"],
    indirect=["store"],
)
def test_a_store_that_came_back_from_an_older_copy_of_itself_can_be_recovered(
    store: Stored, run: Callable[[dict[str, str]], Run], settings: dict[str, str], tmp_path: Path
) -> None:
    sink = run(settings_of(store) | settings)
    sink.start()
    sink.produce(300)
    sink.wait_until_committed()
    sink.stop()
    store.kill()
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    store.start()
    until_something_is_published_and_not_committed(sink)
    store.kill()
    shutil.rmtree(tmp_path / "store")
    shutil.copytree(tmp_path / "copy", tmp_path / "store")
    store.start()
    assert "the store of positions has gone back" in refused(sink)
    sink.recover()
    goes_on(sink)


def test_a_control_topic_that_was_recreated_is_noticed_and_the_recovery_can_be_repeated(
    run: Callable[[dict[str, str]], Run], servers: str
) -> None:
    sink = run(STATIC)
    until_something_is_published_and_not_committed(sink)
    admin = AdminClient(client_config({"bootstrap.servers": servers}))
    admin.delete_topics([f"control-{sink.name}"])[f"control-{sink.name}"].result()
    assert "was recreated since table" in refused(sink)
    first = sink.recover()
    victim = sink.start("publish:after:1")
    assert died(victim)
    assert [line.split(" (")[0] for line in sink.recover().splitlines()] == [
        line.split(" (")[0] for line in first.splitlines()
    ]
    goes_on(sink)


@pytest.mark.parametrize("store", ["redis"], indirect=True)
def test_a_store_that_was_wiped_after_the_source_topic_was_recreated_can_be_recovered(
    store: Stored, run: Callable[[dict[str, str]], Run]
) -> None:
    """The tables hold nothing of the new topic yet, but they belong to the lost control log."""
    sink = run(settings_of(store) | STATIC | {"iceberg.source.on-data-loss": "skip"})
    sink.start()
    sink.produce(300)
    sink.wait_until_committed()
    sink.stop()
    sink.recreate_topic()
    wipe(store)
    assert "was recreated" in refused(sink)
    sink.recover()
    goes_on(sink)


def test_a_control_topic_that_forgot_what_is_committed_keeps_nobody_from_starting(
    topic: Callable[..., Topic], tmp_path: Path, unique: str
) -> None:
    """As one that keeps entries for a week only, after a longer pause."""
    sink = Cli(tmp_path, topic(), unique)
    sink.send(0, 300)
    sink.run_here()
    forget(sink)
    sink.send(300, 600)
    sink.run_here()
    sink.assert_exactly_once(600)


def test_a_control_topic_that_forgot_what_is_not_committed_is_refused_and_recovered(
    topic: Callable[..., Topic], tmp_path: Path, unique: str
) -> None:
    sink = Cli(tmp_path, topic(), unique)
    sink.send(0, 300)
    sink.run_here()
    sink.send(300, 600)
    sink.publish_without_commit()
    forget(sink)
    sink.refused("files published there and not yet committed may be missing from the tables")
    sink.recover_here()
    sink.run_here()
    sink.assert_exactly_once(600)


def forget(sink: Cli) -> None:
    """The control topic loses all its entries, and goes on behind them."""
    control = KafkaPartition(f"control-{sink.name}", 0, OFFSET_END)
    sink.topic.admin.delete_records([control])[control].result()


def wipe(store: Stored) -> None:
    if isinstance(store, RedisServer):
        redis.Redis(port=store.port).flushall()
        return
    client = KazooClient(store.hosts)
    client.start()
    client.delete("/calving", recursive=True)
    client.stop()
    client.close()
