"""A standalone cluster of two hosts: executors are killed, and two attempts of a task run at once.

``CALVING_KILLS=20`` kills as many executors.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession

from harness.waiting import wait_for
from tests.engine.standalone import Cluster
from tests.spark.lake import SparkLake
from tests.spark.sessions import Sessions, session_on
from tests.spark.test_batch_writes import append
from tests.spark.test_streams import SECONDS, Stream

pytestmark = [pytest.mark.services, pytest.mark.long]

ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("CALVING_KILLS", "4"))
HOSTS = "127.0.0.1", "127.0.0.2"
"""Spark starts a second attempt of a task on another host."""
ASLEEP = 120
"""Seconds."""
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.efficiency.enabled": "false",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "1s",
    "spark.speculation.multiplier": "1",
    "spark.speculation.quantile": "0.5",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster") / "cluster")
    try:
        for host in HOSTS:
            made.worker(1, host, PYTHONPATH=str(ROOT))
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def session(cluster: Cluster, sessions: Sessions) -> Iterator[SparkSession]:
    sessions.close()  # a process has one Spark
    with session_on({**cluster.properties, **SPECULATION}) as made:
        yield made


def first_attempt_sleeps(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """That of the first task, after it has handed its rows over."""
    context = TaskContext.get()
    yield from batches
    if context is not None and (context.partitionId(), context.attemptNumber()) == (0, 0):
        time.sleep(ASLEEP)


def test_rows_of_two_attempts_of_a_task_are_there_once(session: SparkSession, lake: SparkLake) -> None:
    started = time.monotonic()
    append(session.range(0, 100, 1, 2).mapInArrow(first_attempt_sleeps, "id long"), lake).save()
    assert time.monotonic() - started < ASLEEP, "there was no second attempt"
    assert lake.values("lake.t", "id") == [*range(100)]


def test_every_row_is_there_once_whatever_executor_is_killed(
    session: SparkSession, cluster: Cluster, lake: SparkLake, tmp_path: Path
) -> None:
    stream, chance = Stream(session, lake, tmp_path), random.Random(0)
    for _ in range(KILLS):
        stream.go_on()
        wait_for(cluster.executors, SECONDS)
        time.sleep(chance.uniform(0, 1))
        with suppress(ProcessLookupError):
            os.kill(chance.choice(cluster.executors()), signal.SIGKILL)
    stream.go_on()
    stream.assert_each_once()
