"""What happens to a cluster: nodes that are lost or broken, executors that come and go, and the whole sink on one."""

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
from tests.engine.standalone import Cluster, eventually
from tests.engine.test_engine import HASH, RECORDS, Spark, filled

pytestmark = pytest.mark.services

ROOT = Path(__file__).parents[2]
ALL = {"rows": RECORDS, "distinct": RECORDS, "files": 2}
ONE_TASK_EACH = {
    "spark.pyspark.python": sys.executable,
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
    # Without the second executor, the first would take both tasks.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
}


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture
def cluster(master: Cluster) -> Iterator[Cluster]:
    """Without nodes: each test has its own."""
    yield master
    for worker in master.workers:
        worker.stop()
    master.workers.clear()


def test_a_batch_whose_node_is_lost_for_good_ends_on_the_other_one(
    cluster: Cluster, topic: Callable[..., Topic], tmp_path: Path
) -> None:
    hung, never = tmp_path / "hung", tmp_path / "never"
    never.touch()
    left = cluster.worker(1, FLAKY_MARKER=str(never), PYTHONPATH=str(ROOT))
    lost = cluster.worker(1, FLAKY_MARKER=str(hung), FLAKY_HANGS="1", PYTHONPATH=str(ROOT))
    properties = {**cluster.properties, **ONE_TASK_EACH, "spark.python.daemon.module": "tests.engine.flaky_daemon"}
    with contextlib.closing(Spark(tmp_path, properties)) as spark, ThreadPoolExecutor(1) as pool:
        running = pool.submit(spark.run, filled(topic), tmp_path)
        eventually(lambda: hung.exists() or running.done())
        lost.lose()
        assert running.result() == ALL
        assert (len(left.executors()), lost.executors()) == (1, [])


def test_a_task_that_fails_on_one_node_is_done_by_another(
    cluster: Cluster, topic: Callable[..., Topic], tmp_path: Path
) -> None:
    tried = tmp_path / "tried"
    for number, python in enumerate([sys.executable, cluster.bare_python]):
        program = tmp_path / f"node-{number}" / "sink-python"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\necho {number} >> {tried}\nexec {python} "$@"\n')
        program.chmod(0o755)
        cluster.worker(1, host=f"127.0.0.{number + 1}", PATH=f"{program.parent}:{os.environ['PATH']}")
    excluding = {"spark.excludeOnFailure.enabled": "true", "spark.pyspark.python": "sink-python"}
    with contextlib.closing(Spark(tmp_path, {**cluster.properties, **ONE_TASK_EACH, **excluding})) as spark:
        assert spark.run(filled(topic), tmp_path / "table") == ALL
    assert set(tried.read_text().split()) == {"0", "1"}


def test_executors_leave_an_idle_sink_and_come_back_for_as_many_tasks_as_it_is_told(
    cluster: Cluster, topic: Callable[..., Topic], tmp_path: Path
) -> None:
    cluster.worker(2)
    dynamic = {
        "spark.pyspark.python": sys.executable,
        "spark.executor.cores": "1",
        "spark.calving.slots": "3",
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.maxExecutors": "2",
        "spark.dynamicAllocation.executorIdleTimeout": "1s",
        "spark.dynamicAllocation.shuffleTracking.timeout": "1s",
    }
    made = filled(topic)
    with contextlib.closing(Spark(tmp_path, {**cluster.properties, **dynamic})) as spark:
        assert spark.run(made, tmp_path / "plain") == {**ALL, "files": 3}
        eventually(lambda: not cluster.executors())
        assert spark.run(made, tmp_path / "shuffled", HASH) == {**ALL, "files": 40}
        eventually(lambda: not cluster.executors())


@pytest.fixture
def sink(cluster: Cluster, topic: Callable[..., Topic], tmp_path: Path, unique: str) -> Cli:
    """20,000 records wait for it."""
    made = Cli(tmp_path, topic(partitions=2), unique)
    made.keys |= cluster.properties | {"iceberg.engine": "spark"}
    made.send(0, 20_000)
    return made


def test_a_sink_whose_executors_are_killed_is_exactly_once(cluster: Cluster, sink: Cli) -> None:
    cluster.worker(2)
    sink.keys["spark.pyspark.python"] = sys.executable
    worker = Process(sink.command("run"), sink.folder / "sink.log")
    for end in range(30_000, 50_000, 10_000):
        eventually(cluster.executors)
        before = cluster.executors()
        sink.send(end - 10_000, end)
        for executor in before:
            os.kill(executor, signal.SIGKILL)
        eventually(lambda: set(cluster.executors()) - set(before))  # noqa: B023 - called at once
    worker.stop(120)
    sink.run("run", "--until-caught-up", seconds=300)
    sink.assert_exactly_once(40_000)


def test_spark_submit_starts_a_sink_in_the_environment_that_it_ships(
    cluster: Cluster, sink: Cli, packed: Packed
) -> None:
    cluster.worker(2)
    del sink.keys["spark.master"]
    packed.submit(sink, cluster.url)
    sink.assert_exactly_once(20_000)


def test_a_sink_ships_its_environment_by_itself(cluster: Cluster, sink: Cli, packed: Packed) -> None:
    cluster.worker(2)
    sink.keys |= {"spark.archives": f"{packed.archive}#env", "spark.pyspark.python": "./env/bin/python"}
    sink.run("run", "--until-caught-up", seconds=300)
    sink.assert_exactly_once(20_000)
