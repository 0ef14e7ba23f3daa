"""The whole sink on Spark Connect, whose server runs its tasks on a standalone cluster."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from calving.services.process import Process
from tests.cli.commands import Cli
from tests.conftest import Topic
from tests.engine.connect_server import ConnectServer
from tests.engine.standalone import Cluster, eventually

pytestmark = pytest.mark.services

ROOT = Path(__file__).parents[2]
TWO_TASKS = 120_000
"""Records that are worth two tasks."""
ONE_TASK_EACH = {
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
    # Without the second executor, the first would take both tasks.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "600s",
    "spark.python.daemon.module": "tests.engine.flaky_daemon",
}


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
    with contextlib.closing(ConnectServer(tmp_path, sys.executable, {**cluster.properties, **ONE_TASK_EACH})) as server:
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
