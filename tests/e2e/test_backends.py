"""The whole sink on the backends that keep its state elsewhere than in Kafka: exactly once there, too."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaPartition

from calving.services.stores import ZooKeeperServer
from calving.source.client import client_config
from harness.run import Run, Store, died, pause, settings_of

pytestmark = pytest.mark.services


@pytest.fixture
def run(store: Store, servers: str, tmp_path: Path, unique: str) -> Iterator[Run]:
    made = Run(tmp_path, servers, unique, settings=settings_of(store))
    yield made
    made.close()


@pytest.mark.parametrize("fault", ["publish:before:2", "publish:after:2", "acknowledge:after:3", "table:after:2"])
def test_a_worker_killed_around_an_effect_loses_and_doubles_nothing(run: Run, fault: str) -> None:
    victim = run.start(fault)
    assert run.produce_until_it_dies(victim), f"the fault {fault} never happened"
    run.revive()
    run.start()
    run.produce(1500)
    run.wait_until_committed()
    run.stop()
    run.assert_exactly_once()


def test_a_worker_stopped_past_its_session_comes_back_as_a_harmless_zombie(run: Run) -> None:
    zombie, _ = run.start(), run.start()
    run.produce(2000)
    producer = threading.Thread(target=run.produce, args=(4000, 600))
    producer.start()
    pause(zombie, 6)
    producer.join()
    run.wait_until_committed()
    run.stop()
    run.assert_exactly_once()


def test_two_coordinators_at_once_are_harmless(run: Run) -> None:
    run.force.touch()
    run.start(forced=True)
    run.start(forced=True)
    run.produce(4000, 500)
    run.force.unlink()
    run.wait_until_committed()
    run.stop()
    run.assert_exactly_once()


def test_a_store_killed_in_the_middle_costs_time_only(run: Run, store: Store) -> None:
    run.start()
    run.start()
    run.produce(1500)
    producer = threading.Thread(target=run.produce, args=(3000, 500))
    producer.start()
    time.sleep(2)
    store.kill()
    time.sleep(1)
    store.start()
    producer.join()
    run.wait_until_committed(60, run.revive)
    run.stop()
    run.assert_exactly_once()


def test_a_worker_that_is_started_before_its_store_waits_for_it(run: Run, store: Store) -> None:
    store.kill()
    worker = run.start()
    run.produce(600)
    time.sleep(10)
    assert worker.returncode is None, worker.log.read_text()[-2000:]
    store.start()
    run.wait_until_committed()
    run.stop()
    run.assert_exactly_once()


def test_the_positions_are_mirrored_to_the_consumer_group(run: Run) -> None:
    run.start()
    run.produce(900)
    run.wait_until_committed()
    run.stop()
    consumer: Any = Consumer(client_config({"bootstrap.servers": run.servers}, group_id=f"connect-{run.name}"))
    partitions = [KafkaPartition(run.topic, p) for p in range(run.partitions)]
    mirrored = sum(max(0, p.offset) for p in consumer.committed(partitions, 10))
    consumer.close()
    assert mirrored == 900


def test_a_run_until_caught_up_waits_until_what_a_dead_leader_has_left_is_committed(
    store: Store, servers: str, tmp_path: Path, unique: str
) -> None:
    """Its lease lives on, so nobody else leads for a while, and nothing is left to read."""
    lease = {"iceberg.control.redis.lease-ms": "15000"}
    if isinstance(store, ZooKeeperServer):
        lease = {"iceberg.control.zookeeper.session-timeout-ms": "15000"}
    run = Run(tmp_path, servers, unique, settings=settings_of(store) | lease)
    run.produce(300)
    assert died(run.start("publish:after:1"))
    assert run.committed() == 0
    command = "from calving.cli.main import main; main()"
    subprocess.run([sys.executable, "-c", command, "run", "--until-caught-up", str(run.config)], check=True, timeout=90)
    run.assert_exactly_once()
