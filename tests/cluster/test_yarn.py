"""What happens to a cluster of YARN: nodes that are lost or broken, executors that come and go; the whole sink there."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from calving.services.process import Process
from harness.topic import Topic
from tests.cli.commands import Cli
from tests.cluster.packing import Packed
from tests.cluster.yarn import Yarn
from tests.engine.standalone import eventually
from tests.engine.test_engine import ALL, RECORDS, Spark, filled

pytestmark = pytest.mark.services


ROOT = Path(__file__).parents[2]
MASTER, EXECUTOR = 1408, 896
"""Megabytes of an application master of 1 GiB, and of an executor, each with what Spark adds."""
ONE_TASK_EACH = {
    "spark.executor.instances": "2",
    "spark.yarn.am.memory": "1g",
    "spark.pyspark.python": sys.executable,
    # Without the second executor, the first would take both tasks.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "600s",
}
"""With a node that has room for the master and an executor, and one for an executor."""


@pytest.fixture(scope="module")
def manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yarn]:
    made = Yarn(tmp_path_factory.mktemp("yarn"))
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture
def yarn(manager: Yarn, monkeypatch: pytest.MonkeyPatch) -> Iterator[Yarn]:
    """Without nodes: each test has its own."""
    for name, value in manager.env.items():
        monkeypatch.setenv(name, value)
    yield manager
    for node in manager.nodes:
        node.stop()
    manager.nodes.clear()


@pytest.fixture
def sink(yarn: Yarn, servers: str, tmp_path: Path, unique: str) -> Cli:
    """20,000 records wait for it, and one node."""
    yarn.node()
    made = Cli(tmp_path, Topic(servers, unique, partitions=2), unique)
    made.keys |= yarn.properties | {"spark.executor.instances": "1", "iceberg.engine": "spark"}
    made.send(0, 20_000)
    return made


def test_a_batch_whose_node_is_lost_for_good_ends_on_the_other_one(
    yarn: Yarn, topic: Callable[..., Topic], tmp_path: Path
) -> None:
    hung, never = tmp_path / "hung", tmp_path / "never"
    never.touch()
    left = yarn.node(MASTER + EXECUTOR, FLAKY_MARKER=str(never))
    lost = yarn.node(EXECUTOR, FLAKY_MARKER=str(hung), FLAKY_HANGS="1")
    flaky = {"spark.executorEnv.PYTHONPATH": str(ROOT), "spark.python.daemon.module": "tests.engine.flaky_daemon"}
    properties = {**yarn.properties, **ONE_TASK_EACH, **flaky}
    with contextlib.closing(Spark(tmp_path, properties)) as spark, ThreadPoolExecutor(1) as pool:
        running = pool.submit(spark.run, filled(topic), tmp_path)
        # A task there has written its files, and waits.
        eventually(lambda: hung.exists() or running.done())
        lost.lose()
        assert running.result() == ALL
        assert left.executors()
        assert not lost.executors()


def test_a_task_that_fails_on_one_node_is_done_by_another(
    yarn: Yarn, topic: Callable[..., Topic], tmp_path: Path
) -> None:
    tried, program = tmp_path / "tried", tmp_path / "sink-python"
    program.write_text(f'#!/bin/sh\necho $NODE >> {tried}\ntest $NODE = sound && exec {sys.executable} "$@"\nexit 1\n')
    program.chmod(0o755)
    yarn.node(MASTER + EXECUTOR, NODE="sound")
    yarn.node(EXECUTOR, host="127.0.0.2", NODE="broken")
    excluding = {"spark.excludeOnFailure.enabled": "true", "spark.pyspark.python": str(program)}
    with contextlib.closing(Spark(tmp_path, {**yarn.properties, **ONE_TASK_EACH, **excluding}, NODE="sound")) as spark:
        assert spark.run(filled(topic), tmp_path / "table") == ALL
    assert set(tried.read_text().split()) == {"sound", "broken"}


def test_executors_leave_an_idle_sink_and_come_back_for_as_many_tasks_as_it_is_told(
    yarn: Yarn, topic: Callable[..., Topic], tmp_path: Path
) -> None:
    yarn.node()
    dynamic = {
        "spark.pyspark.python": sys.executable,
        "spark.calving.slots": "2",
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.maxExecutors": "2",
        "spark.dynamicAllocation.executorIdleTimeout": "1s",
        "spark.dynamicAllocation.shuffleTracking.timeout": "1s",
    }
    made = filled(topic)
    with contextlib.closing(Spark(tmp_path, {**yarn.properties, **dynamic})) as spark:
        for number in range(2):
            assert spark.run(made, tmp_path / f"{number}") == ALL
            eventually(lambda: not yarn.executors())


def test_a_batch_whose_executor_is_killed_in_the_middle_of_a_task_runs_on_another_one(
    yarn: Yarn, topic: Callable[..., Topic], tmp_path: Path
) -> None:
    hung = tmp_path / "hung"
    yarn.node(FLAKY_MARKER=str(hung), FLAKY_HANGS="1")
    flaky = {"spark.executorEnv.PYTHONPATH": str(ROOT), "spark.python.daemon.module": "tests.engine.flaky_daemon"}
    one = {"spark.executor.instances": "1", "spark.pyspark.python": sys.executable}
    with (
        contextlib.closing(Spark(tmp_path, {**yarn.properties, **one, **flaky})) as spark,
        ThreadPoolExecutor(1) as pool,
    ):
        running = pool.submit(spark.run, filled(topic), tmp_path)
        # A task has written its files, and waits.
        eventually(lambda: hung.exists() or running.done())
        before = yarn.executors()
        for executor in before:
            os.kill(executor, signal.SIGKILL)
        found = running.result()
        assert (found["rows"], found["distinct"]) == (RECORDS, RECORDS)
        assert not set(before) & set(yarn.executors())


def test_an_application_that_ends_with_its_master_is_started_again_on_another_node(
    yarn: Yarn, topic: Callable[..., Topic], tmp_path: Path
) -> None:
    lost, sent = yarn.node(), filled(topic)
    own = {"spark.pyspark.python": sys.executable, "spark.calving.slots": "2", "spark.yarn.maxAppAttempts": "1"}
    with contextlib.closing(Spark(tmp_path, {**yarn.properties, **own})) as spark:
        assert spark.insist(sent, tmp_path / "first") == []
        yarn.node(host="127.0.0.2")
        lost.lose()
        (error, *_) = spark.insist(sent, tmp_path / "again")
        assert error.startswith("EngineLostError: Spark is gone, and is started again: ")


def test_a_sink_waits_aloud_for_room_for_its_application_master(yarn: Yarn, sink: Cli) -> None:
    for node in yarn.nodes:
        node.stop()
    yarn.nodes.clear()
    sink.keys |= {"spark.pyspark.python": sys.executable, "iceberg.engine.resources-timeout-ms": "60000"}
    worker = Process(sink.command("run"), sink.folder / "sink.log")
    late = "the engine has not started for 60 s (iceberg.engine.resources-timeout-ms): is its cluster up"
    eventually(lambda: late in worker.log.read_text() or worker.returncode is not None)
    yarn.node()
    eventually(lambda: "batch: 20000 records" in worker.log.read_text() or worker.returncode is not None, 400)
    worker.stop(120)
    assert worker.returncode == 0, worker.log.read_text()[-3000:]
    sink.assert_exactly_once(20_000)


def test_a_sink_whose_containers_are_killed_is_exactly_once(yarn: Yarn, sink: Cli) -> None:
    sink.keys["spark.pyspark.python"] = sys.executable
    worker = Process(sink.command("run"), sink.folder / "sink.log")
    eventually(yarn.executors)
    before = yarn.executors()
    sink.send(20_000, 30_000)
    for executor in before:
        os.kill(executor, signal.SIGKILL)
    eventually(lambda: set(yarn.executors()) - set(before))
    worker.stop(120)
    sink.run("run", "--until-caught-up", seconds=300)
    sink.assert_exactly_once(30_000)


def test_a_sink_ships_its_environment_by_itself(sink: Cli, packed: Packed) -> None:
    sink.keys |= {"spark.yarn.dist.archives": f"{packed.archive}#env", "spark.pyspark.python": "./env/bin/python"}
    sink.run("run", "--until-caught-up", seconds=300)
    sink.assert_exactly_once(20_000)


def test_spark_submit_starts_a_sink_in_the_environment_that_it_ships(sink: Cli, packed: Packed) -> None:
    del sink.keys["spark.master"]
    packed.submit(sink, "yarn")
    sink.assert_exactly_once(20_000)
