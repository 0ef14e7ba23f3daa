"""Exactly once with real parts: processes are killed, stopped and lied to; the checker finds nothing lost, nothing twice."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from calving.services.kafka import KafkaServer
from calving.services.process import Process
from harness.forms import forms
from harness.processes import PARENT, arguments, descendants
from harness.run import Run, died, pause
from harness.sent import TABLES

pytestmark = pytest.mark.services

KILLED_AT = [
    "batch:before:2",
    "batch:after:2",
    "publish:before:2",
    "publish:after:2",
    "acknowledge:before:3",
    "acknowledge:after:3",
    "table:before:2",
    "table:after:2",
    "table:after:3",
]
SHORT = ("publish:before:2", "publish:after:2", "acknowledge:after:3", "table:before:2", "table:after:2")


ON_SPARK = {"iceberg.engine": "spark", "spark.master": "local[2]", "spark.ui.showConsoleProgress": "false"}


def tasks_of(worker: Process) -> list[int]:
    """The processes in which Spark runs the worker's tasks: children of a daemon that descends from the worker."""
    found = descendants(worker.pid)
    daemons = {pid for pid in found if "calving.engine.daemon" in arguments(pid)}
    return [pid for pid in daemons if int(found[pid][PARENT]) in daemons]


@pytest.fixture
def run(servers: str, tmp_path: Path, unique: str) -> Iterator[Callable[..., Run]]:
    made: list[Run] = []

    def make(settings: Mapping[str, str | None] | None = None, tables: Sequence[str] = TABLES) -> Run:
        made.append(Run(tmp_path, servers, unique, settings=settings, tables=tables))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize("fault", forms(KILLED_AT, SHORT))
def test_a_worker_killed_before_or_after_any_effect_loses_and_doubles_nothing(
    run: Callable[..., Run], fault: str
) -> None:
    """The first worker coordinates and reads; the third commit of two tables lies between table commits."""
    r = run(settings={"iceberg.control.topic.partitions": "3"})
    victim = r.start(fault)
    assert r.produce_until_it_dies(victim), f"the fault {fault} never happened"
    r.revive()
    r.start()
    r.produce(1500)
    r.wait_until_committed()
    r.stop()
    r.assert_exactly_once()


@pytest.mark.parametrize("fault", forms(["batch:after:2", "publish:after:2"], ["publish:after:2"]))
def test_a_worker_on_spark_killed_before_or_after_it_publishes_loses_and_doubles_nothing(
    run: Callable[..., Run], fault: str
) -> None:
    r = run(settings=ON_SPARK)
    victim = r.start(fault)
    r.produce(3000, 300)
    assert died(victim, 60)
    r.revive()
    r.produce(1000)
    r.wait_until_committed(90)
    r.stop()
    r.assert_exactly_once()


def test_tasks_of_spark_that_are_killed_in_the_middle_of_a_batch_lose_and_double_nothing(
    run: Callable[..., Run],
) -> None:
    r = run(settings=ON_SPARK)
    worker = r.start()
    r.produce(500)
    r.wait_until_committed(90)
    assert r.committed() == r.sent, "Spark did not even begin"
    producer = threading.Thread(target=r.produce, args=(3000, 300))
    producer.start()
    killed = 0
    while producer.is_alive():
        for task in tasks_of(worker):
            os.kill(task, signal.SIGKILL)
            killed += 1
        time.sleep(0.7)
    producer.join()
    assert killed
    r.wait_until_committed(90, r.revive)
    r.stop()
    r.assert_exactly_once()


@pytest.mark.parametrize("lie", ["lost-request", "lost-answer", "false-conflict"])
def test_a_commit_whose_outcome_is_reported_wrongly_is_neither_lost_nor_repeated(
    run: Callable[..., Run], lie: str
) -> None:
    r = run()
    r.start(f"table:{lie}:2")
    r.produce(2000)
    r.wait_until_committed()
    r.stop()
    r.assert_exactly_once()


def test_a_worker_stopped_past_its_session_comes_back_as_a_harmless_zombie(run: Callable[..., Run]) -> None:
    """The first worker also coordinates, so both kinds of zombie are in it."""
    r = run()
    zombie, _ = r.start(), r.start()
    r.produce(2000)
    producer = threading.Thread(target=r.produce, args=(4000, 600))
    producer.start()
    pause(zombie, 6)
    producer.join()
    r.wait_until_committed()
    r.stop()
    r.assert_exactly_once()


def test_workers_that_join_and_leave_hand_over_without_loss(run: Callable[..., Run]) -> None:
    r = run()
    r.start()
    producer = threading.Thread(target=r.produce, args=(6000, 500))
    producer.start()
    time.sleep(3)
    second = r.start()
    time.sleep(5)
    second.stop()
    r.start()
    producer.join()
    r.wait_until_committed()
    r.stop()
    r.assert_exactly_once()


def test_two_coordinators_at_once_are_harmless(run: Callable[..., Run]) -> None:
    r = run()
    r.force.touch()
    r.start(forced=True)
    r.start(forced=True)
    r.produce(6000, 500)
    r.force.unlink()
    r.wait_until_committed()
    r.stop()
    r.assert_exactly_once()


def test_a_broker_killed_in_the_middle_costs_time_only(own_broker: KafkaServer, tmp_path: Path, unique: str) -> None:
    r = Run(tmp_path, own_broker.bootstrap_servers, unique)
    try:
        r.start()
        r.start()
        r.produce(2000)
        producer = threading.Thread(target=r.produce, args=(3000, 500))
        producer.start()
        time.sleep(2)
        own_broker.kill()
        own_broker.start()
        producer.join()
        r.wait_until_committed(90, r.revive)
        r.stop()
        r.assert_exactly_once()
    finally:
        r.stop()


def test_everything_read_is_committed_within_two_cycles_of_the_last_record(run: Callable[..., Run]) -> None:
    """I6, with the time that a cycle takes here: an interval of one second."""
    r = run()
    r.start()
    r.start()
    r.produce(3000)
    r.wait_until_committed()
    r.produce(500)
    started = time.monotonic()
    r.wait_until_committed(20)
    assert time.monotonic() - started < 6
    r.stop()
    r.assert_exactly_once()
