"""Spark on a cluster: a standalone master and a worker, whose own Python knows nothing of calving."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.topic import Topic
from harness.waiting import wait_for
from tests.cli.commands import Cli
from tests.engine.standalone import Cluster, eventually, with_one_node
from tests.engine.test_engine import ALL, RECORDS, Spark, filled

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with with_one_node(tmp_path_factory.mktemp("cluster")) as made:
        yield made


def test_a_batch_runs_on_a_cluster_in_the_interpreter_that_the_settings_name(
    cluster: Cluster, topic: Callable[..., Topic], tmp_path: Path
) -> None:
    properties = {**cluster.properties, "spark.pyspark.python": sys.executable}
    with contextlib.closing(Spark(tmp_path, properties)) as spark:
        assert spark.run(filled(topic), tmp_path) == {"rows": RECORDS, "distinct": RECORDS, "files": 2}


def test_a_batch_whose_executor_is_killed_runs_again_on_another_one(
    cluster: Cluster, topic: Callable[..., Topic], tmp_path: Path
) -> None:
    properties = {**cluster.properties, "spark.pyspark.python": sys.executable}
    table = tmp_path / "table"
    with contextlib.closing(Spark(tmp_path, properties)) as spark, ThreadPoolExecutor(1) as pool:
        running = pool.submit(spark.run, filled(topic), table)
        while not list(table.rglob("*.parquet")):
            assert not running.done(), running.result()
            time.sleep(0.01)
        (killed,) = cluster.executors()
        os.kill(killed, signal.SIGKILL)
        assert running.result() == {"rows": RECORDS, "distinct": RECORDS, "files": 2}
        wait_for(lambda: {*cluster.executors()} - {killed})
        (other,) = cluster.executors()
    assert other != killed


@pytest.mark.long
def test_an_interpreter_without_calving_is_named_as_the_reason_and_stops_the_sink(
    cluster: Cluster, topic: Callable[..., Topic], tmp_path: Path
) -> None:
    properties = {**cluster.properties, "spark.pyspark.python": cluster.bare_python}
    with contextlib.closing(Spark(tmp_path, properties)) as spark:
        error = spark.run(filled(topic), tmp_path)["error"]
    assert error.startswith("ConfigError: the Python of Spark's workers lacks the package 'calving': install calving")
    assert "spark.pyspark.python" in error


@pytest.mark.long
def test_a_cluster_that_gives_no_resources_stops_the_sink(
    cluster: Cluster, topic: Callable[..., Topic], tmp_path: Path
) -> None:
    properties = {**cluster.properties, "spark.executor.memory": "64g"}
    with contextlib.closing(Spark(tmp_path, properties, (3, 600))) as spark:
        error = spark.run(filled(topic), tmp_path)["error"]
    assert error.startswith("ConfigError: Spark gave the job no resources for 3 s")


@pytest.mark.long
def test_an_application_that_the_cluster_has_ended_is_started_again(
    cluster: Cluster, topic: Callable[..., Topic], tmp_path: Path
) -> None:
    sent, properties = filled(topic), {**cluster.properties, "spark.pyspark.python": sys.executable}
    with contextlib.closing(Spark(tmp_path, properties)) as spark:
        assert spark.run(sent, tmp_path / "first") == ALL
        cluster.end_applications()
        eventually(lambda: not cluster.executors())
        errors = spark.insist(sent, tmp_path / "again")  # the first batch may still see how Spark ends
        assert any(error.startswith("EngineLostError: Spark is gone, and is started again: ") for error in errors)


@pytest.mark.long
def test_a_sink_whose_workers_lack_calving_ends_with_code_2_and_says_so_once(
    cluster: Cluster, topic: Callable[..., Topic], tmp_path: Path, unique: str
) -> None:
    sink = Cli(tmp_path, topic(), unique)
    sink.keys |= {**cluster.properties, "spark.pyspark.python": cluster.bare_python, "iceberg.engine": "spark"}
    sink.send(0, 10)
    said = sink.run("run", code=2, seconds=300)
    assert said.count("the Python of Spark's workers lacks the package 'calving': install calving") == 1
