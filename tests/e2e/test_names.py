"""A sink that is given another name, group or control topic: never a first start, and never a silent loss."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as KafkaPartition

from calving.cli.recover import recover
from calving.errors import ConfigError, DataLossError
from calving.settings.load import load
from calving.source.client import client_config
from harness.topic import Topic
from tests.cli.commands import Cli
from tests.e2e.test_rollback import table_of

pytestmark = pytest.mark.services


@pytest.fixture
def sink(tmp_path: Path, topic: Callable[..., Topic], unique: str, keys: dict[str, str]) -> Cli:
    """300 records, all of them committed."""
    made = Cli(tmp_path, topic(), unique)
    made.keys |= keys | {"iceberg.catalog.warehouse": str(tmp_path / "warehouse")}
    made.send(0, 300)
    made.run_here()
    return made


@pytest.mark.parametrize("key", ["name", "iceberg.connect.group-id", "iceberg.control.topic"])
def test_a_renamed_sink_is_refused_and_recovered_from_its_former_name(sink: Cli, key: str) -> None:
    sink.send(300, 600)
    sink.publish_without_commit()
    former = f"{sink.keys['iceberg.control.topic']}.connect-{sink.name}"
    sink.keys[key] = f"renamed-{sink.name}"
    sink.refused("--from")
    with pytest.raises(ConfigError, match=f"--from {former}"):
        sink.recover_here()
    sink.recover_here(former)
    sink.send(600, 650)
    sink.run_here()
    sink.assert_exactly_once(650)
    sink.send(650, 700)
    sink.run_here()
    sink.assert_exactly_once(700)


def test_a_sink_that_gets_its_former_control_topic_back_goes_on(sink: Cli) -> None:
    sink.send(300, 600)
    sink.publish_without_commit()
    sink.keys["iceberg.control.topic"] = f"renamed-{sink.name}"
    sink.refused("change the key back")
    sink.keys["iceberg.control.topic"] = f"control-{sink.name}"
    sink.run_here()
    sink.assert_exactly_once(600)


def test_another_sink_may_write_the_same_records_where_it_says_so(sink: Cli) -> None:
    former = f"{sink.keys['iceberg.control.topic']}.connect-{sink.name}"
    sink.keys |= {"name": f"beside-{sink.name}", "iceberg.control.topic": f"control-beside-{sink.name}"}
    sink.refused(f"iceberg.control.other-sinks = {former}")
    sink.keys["iceberg.control.other-sinks"] = former
    sink.run_here()
    assert sink.rows() == 600


@pytest.mark.parametrize("keys", ["kafka"], indirect=True)
def test_a_branch_that_comes_with_the_new_name_has_what_main_has(sink: Cli) -> None:
    former = f"{sink.keys['iceberg.control.topic']}.connect-{sink.name}"
    sink.keys |= {"name": f"renamed-{sink.name}", "iceberg.tables.default-commit-branch": "audit"}
    dry_run = list(recover(load(sink.config), (), former, dry_run=True))
    assert dry_run == [f"{sink.topic.name}-0: 300 (stored: nothing)"]
    assert sink.recover_here(former)[:-1] == dry_run
    sink.send(300, 400)
    sink.run_here()
    assert sorted(table_of(sink).scan().use_ref("audit").to_arrow()["id"].to_pylist()) == [*range(400)]


@pytest.mark.parametrize("keys", ["kafka"], indirect=True)
def test_lost_positions_are_noticed_although_the_sink_gets_a_new_branch(sink: Cli) -> None:
    group = f"connect-{sink.name}"
    sink.topic.admin.delete_consumer_groups([group])[group].result()
    sink.keys["iceberg.tables.default-commit-branch"] = "audit"
    sink.refused("has no stored positions, but table db.t holds records")


def test_a_name_that_the_sink_has_left_is_neither_started_nor_recovered(sink: Cli) -> None:
    """Also right after the rename: the two would read on from the same offset."""
    first, control = sink.keys["name"], sink.keys["iceberg.control.topic"]
    sink.keys["name"] = f"renamed-{sink.name}"
    sink.recover_here(f"{control}.connect-{first}")
    sink.keys["name"] = first
    way_back = f"run `calving recover FILE --from {control}.connect-renamed-{first}`"
    sink.refused(way_back)
    with pytest.raises(DataLossError, match=re.escape(way_back)):
        sink.recover_here()
    sink.keys["name"] = f"third-{sink.name}"
    with pytest.raises(DataLossError, match=re.escape(way_back)):
        sink.recover_here(f"{control}.connect-{first}")
    sink.keys["name"] = first
    sink.recover_here(f"{control}.connect-renamed-{first}")
    sink.send(300, 400)
    sink.run_here()
    sink.assert_exactly_once(400)


def test_two_sinks_of_other_topics_do_not_become_one(sink: Cli, topic: Callable[..., Topic]) -> None:
    former, orders, payments = f"{sink.keys['iceberg.control.topic']}.connect-{sink.name}", sink.topic, topic()
    sink.keys |= {"name": f"beside-{sink.name}", "topics": payments.name}
    sink.topic = payments
    sink.send(300, 400)
    sink.run_here()
    sink.keys["topics"] = f"{orders.name},{payments.name}"
    with pytest.raises(ConfigError, match=f"holds records of {orders.name} from there, and other records that"):
        sink.recover_here(former)
    assert sorted(sink.ids()) == [*range(400)]


@pytest.mark.parametrize("keys", ["kafka"], indirect=True)
def test_a_control_topic_that_was_recreated_before_the_first_commit_is_noticed(
    tmp_path: Path, topic: Callable[..., Topic], unique: str, keys: dict[str, str]
) -> None:
    sink = Cli(tmp_path, topic(), unique)
    sink.send(0, 300)
    sink.publish_without_commit()
    control = f"control-{unique}"
    sink.topic.admin.delete_topics([control])[control].result()
    sink.refused("another control log")
    sink.recover_here()
    sink.run_here()
    sink.assert_exactly_once(300)


@pytest.mark.parametrize("keys", ["kafka"], indirect=True)
def test_positions_that_an_older_version_has_stored_name_no_control_log_and_are_continued(sink: Cli) -> None:
    forget_the_log(sink)
    sink.send(300, 400)
    sink.run_here()
    sink.assert_exactly_once(400)


@pytest.mark.parametrize("keys", ["kafka"], indirect=True)
def test_another_control_topic_is_noticed_also_where_an_older_version_has_stored_the_positions(sink: Cli) -> None:
    forget_the_log(sink)
    sink.keys["iceberg.control.topic"] = f"renamed-{sink.name}"
    sink.refused(f"--from control-{sink.name}.connect-{sink.name}")


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
