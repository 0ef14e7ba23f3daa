"""A sink that is given another name, group or control topic: never a first start, and never a silent loss."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as KafkaPartition

from calving.cli.recover import recover
from calving.engine.local import LocalEngine
from calving.errors import ConfigError, DataLossError
from calving.iceberg.catalog import open_catalog
from calving.model.offsets import TopicPartition
from calving.runtime.app import App
from calving.services.redis import RedisServer
from calving.services.zookeeper import ZooKeeperServer
from calving.settings.load import load
from calving.source.client import client_config
from calving.source.kafka import members
from tests.cli.commands import Cli
from tests.conftest import Topic
from tests.data.conftest import encode
from tests.e2e.harness import settings_of

OTHERS = {"redis": RedisServer, "zookeeper": ZooKeeperServer}


@pytest.fixture(scope="module", params=["kafka", "redis", "zookeeper"])
def keys(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The settings of a backend whose store is there for the whole module."""
    if request.param == "kafka":
        yield {}
        return
    server = OTHERS[request.param](tmp_path_factory.mktemp(request.param))
    server.start()
    yield settings_of(server)
    server.stop()


@pytest.fixture
def sink(tmp_path: Path, topic: Callable[..., Topic], unique: str, keys: dict[str, str]) -> Cli:
    """300 records, all of them committed."""
    made = Cli(tmp_path, topic(), unique)
    made.keys |= keys | {"iceberg.catalog.warehouse": str(tmp_path / "warehouse")}
    send(made, 0, 300)
    run_here(made)
    return made


def send(sink: Cli, first: int, end: int) -> None:
    sink.topic.send(*encode(*({"id": i} for i in range(first, end))))


def run_here(sink: Cli) -> None:
    """``calving run --until-caught-up``, without the time that a process takes to start."""
    App(load(sink.config), LocalEngine()).run(until_caught_up=True)


def refused(sink: Cli, why: str) -> None:
    with pytest.raises(DataLossError, match=re.escape(why)):
        run_here(sink)


def recover_here(sink: Cli, former: str | None = None) -> None:
    list(recover(load(sink.config), (), former, dry_run=False))


def publish_without_commit(sink: Cli) -> None:
    """A worker that is killed right after its publication."""
    env = {**os.environ, "FAULT": "publish:after:1", "BACKEND": str(sink.keys.get("iceberg.control.backend", "kafka"))}
    command = [sys.executable, "-m", "tests.e2e.worker", str(sink.config)]
    done = subprocess.run(command, env=env, timeout=60, check=False, capture_output=True)
    assert done.returncode == -9, done.stderr
    wait_until_forgotten(sink)


def wait_until_forgotten(sink: Cli, seconds: float = 30) -> None:
    """Neither its group nor its store knows of the worker that was killed."""
    made = load(sink.config)
    every = [TopicPartition(sink.topic.name, 0)]
    session = made.backend(made.identity, made.backend_settings).open("waiting")
    deadline = time.monotonic() + seconds
    while members(made.kafka, made.group) or not session.lead(every, every):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    session.close()


def assert_exactly_once(sink: Cli, end: int) -> None:
    ids = open_catalog("iceberg", sink.catalog_keys).load_table("db.t").scan().to_arrow()["id"].to_pylist()
    assert Counter(ids) == Counter(range(end))


@pytest.mark.parametrize("key", ["name", "iceberg.control.topic"])
def test_a_renamed_sink_is_refused_and_recovered_from_its_former_name(sink: Cli, key: str) -> None:
    send(sink, 300, 600)
    publish_without_commit(sink)
    former = f"{sink.keys['iceberg.control.topic']}.connect-{sink.name}"
    sink.keys[key] = f"renamed-{sink.name}"
    refused(sink, "--from")
    with pytest.raises(ConfigError, match=f"--from {former}"):
        recover_here(sink)
    recover_here(sink, former)
    send(sink, 600, 650)
    run_here(sink)
    assert_exactly_once(sink, 650)
    send(sink, 650, 700)
    run_here(sink)
    assert_exactly_once(sink, 700)


def test_a_sink_that_gets_its_former_control_topic_back_goes_on(sink: Cli) -> None:
    send(sink, 300, 600)
    publish_without_commit(sink)
    sink.keys["iceberg.control.topic"] = f"renamed-{sink.name}"
    refused(sink, "change the key back")
    sink.keys["iceberg.control.topic"] = f"control-{sink.name}"
    run_here(sink)
    assert_exactly_once(sink, 600)


def test_another_sink_may_write_the_same_records_where_it_says_so(sink: Cli) -> None:
    former = f"{sink.keys['iceberg.control.topic']}.connect-{sink.name}"
    sink.keys |= {"name": f"beside-{sink.name}", "iceberg.control.topic": f"control-beside-{sink.name}"}
    refused(sink, f"iceberg.control.other-sinks = {former}")
    sink.keys["iceberg.control.other-sinks"] = former
    run_here(sink)
    assert sink.rows() == 600


@pytest.mark.parametrize("keys", ["kafka"], indirect=True)
def test_a_control_topic_that_was_made_anew_before_the_first_commit_is_noticed(
    tmp_path: Path, topic: Callable[..., Topic], unique: str, keys: dict[str, str]
) -> None:
    sink = Cli(tmp_path, topic(), unique)
    send(sink, 0, 300)
    publish_without_commit(sink)
    control = f"control-{unique}"
    sink.topic.admin.delete_topics([control])[control].result()
    refused(sink, "another control log")
    recover_here(sink)
    run_here(sink)
    assert_exactly_once(sink, 300)


@pytest.mark.parametrize("keys", ["kafka"], indirect=True)
def test_positions_that_an_older_version_has_stored_name_no_control_log_and_are_continued(sink: Cli) -> None:
    forget_the_log(sink)
    send(sink, 300, 400)
    run_here(sink)
    assert_exactly_once(sink, 400)


@pytest.mark.parametrize("keys", ["kafka"], indirect=True)
def test_another_control_topic_is_noticed_also_where_an_older_version_has_stored_the_positions(sink: Cli) -> None:
    forget_the_log(sink)
    sink.keys["iceberg.control.topic"] = f"renamed-{sink.name}"
    refused(sink, f"--from control-{sink.name}.connect-{sink.name}")


def forget_the_log(sink: Cli) -> None:
    """The notes beside the positions become those of version 0.1.0: the topic's identity and no more."""
    group = f"connect-{sink.name}"
    asked = ConsumerGroupTopicPartitions(group, [KafkaPartition(sink.topic.name, 0)])
    (stored,) = sink.topic.admin.list_consumer_group_offsets([asked])[group].result().topic_partitions
    first, identity = stored.metadata.split(" ")[:2]
    consumer = Consumer(client_config({"bootstrap.servers": sink.topic.servers, "group.id": group}))
    before = KafkaPartition(sink.topic.name, 0, stored.offset, f"{first} {identity}")
    consumer.commit(offsets=[before], asynchronous=False)
    consumer.close()
