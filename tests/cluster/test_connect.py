"""Spark Connect, whose server runs its tasks on a standalone cluster: the whole sink, nodes that are lost or broken, and
executors that come and go.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from calving.services.process import Process
from harness.topic import Topic
from tests.cli.commands import Cli
from tests.engine.connect_server import ConnectServer
from tests.engine.standalone import Cluster, eventually
from tests.engine.test_engine import RECORDS, Spark, filled

pytestmark = pytest.mark.services

ROOT = Path(__file__).parents[2]
TWO_TASKS = 120_000
"""Records that are worth two tasks."""
ALL = {"rows": RECORDS, "distinct": RECORDS, "files": 2}
TWO_EXECUTORS = {
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
    # Without the second executor, the first would take both tasks.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "600s",
}
FLAKY = {**TWO_EXECUTORS, "spark.python.daemon.module": "tests.engine.flaky_daemon"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "cluster")
    yield made
    made.stop()


def test_a_sink_that_loses_an_executor_and_a_node_within_one_batch_is_exactly_once(
    cluster: Cluster, topic: Callable[..., Topic], tmp_path: Path, unique: str
) -> None:
    writing = [tmp_path / "on-the-first", tmp_path / "on-the-second"]
    first, second = (
        cluster.worker(1, FLAKY_MARKER=str(path), FLAKY_HANGS="1", PYTHONPATH=str(ROOT)) for path in writing
    )
    sink = Cli(tmp_path, topic(), unique)
    sink.send(0, TWO_TASKS)
    with contextlib.closing(ConnectServer(tmp_path, sys.executable, {**cluster.properties, **FLAKY})) as server:
        sink.keys |= {**server.properties, "spark.calving.slots": "2", "iceberg.engine": "spark"}
        worker = Process(sink.command("run"), tmp_path / "sink.log")
        # Each of the two tasks has written its files, and waits.
        eventually(lambda: all(path.exists() for path in writing) or worker.returncode is not None)
        (killed,) = first.executors()
        os.kill(killed, signal.SIGKILL)
        second.lose()
        # The same batch ends on what is left.
        ended = f"batch: {TWO_TASKS} records"
        eventually(lambda: ended in worker.log.read_text() or worker.returncode is not None)
        sink.send(TWO_TASKS, TWO_TASKS + 10_000)
        worker.stop(120)
        assert worker.returncode == 0, worker.log.read_text()[-3000:]
        sink.run("run", "--until-caught-up", seconds=300)
    sink.assert_exactly_once(TWO_TASKS + 10_000)


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
    settings = {**cluster.properties, **TWO_EXECUTORS, "spark.excludeOnFailure.enabled": "true"}
    with (
        contextlib.closing(ConnectServer(tmp_path, "sink-python", settings)) as server,
        contextlib.closing(Spark(tmp_path, {**server.properties, "spark.calving.slots": "2"})) as spark,
    ):
        assert spark.run(filled(topic), tmp_path / "table") == ALL
    assert set(tried.read_text().split()) == {"0", "1"}


def test_executors_leave_an_idle_sink_and_come_back_for_as_many_tasks_as_it_is_told(
    cluster: Cluster, topic: Callable[..., Topic], tmp_path: Path
) -> None:
    cluster.worker(2)
    dynamic = {
        "spark.executor.cores": "1",
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.maxExecutors": "2",
        "spark.dynamicAllocation.executorIdleTimeout": "1s",
        "spark.dynamicAllocation.shuffleTracking.timeout": "1s",
    }
    made = filled(topic)
    with (
        contextlib.closing(ConnectServer(tmp_path, sys.executable, {**cluster.properties, **dynamic})) as server,
        contextlib.closing(Spark(tmp_path, {**server.properties, "spark.calving.slots": "3"})) as spark,
    ):
        for number in range(2):
            assert spark.run(made, tmp_path / f"{number}") == {**ALL, "files": 3}
            eventually(lambda: not cluster.executors())
