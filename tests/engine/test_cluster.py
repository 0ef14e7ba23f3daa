"""Spark on a cluster: a standalone master and a worker, whose own Python knows nothing of calving."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pyspark
import pytest

from calving.services.process import LOOPBACK, Process, free_port
from tests.conftest import Topic
from tests.engine.test_engine import RECORDS, Spark, filled

pytestmark = pytest.mark.services


class Cluster(NamedTuple):
    properties: dict[str, str]
    bare_python: str
    """An interpreter that has nothing installed: what the workers' PATH leads to."""
    work: Path
    """The folder in which its executors run."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    venv.create(folder / "bare", with_pip=False)
    home = Path(pyspark.__file__).parent
    env = {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": LOOPBACK,
        "PATH": f"{folder / 'bare' / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": "",
    }
    launch, port = [str(home / "bin" / "spark-class")], free_port()
    main = "org.apache.spark.deploy."
    at = ["--host", LOOPBACK, "--webui-port", "0"]
    master = Process([*launch, f"{main}master.Master", *at, "--port", str(port)], folder / "master.log", env)
    worker = None
    try:
        master.wait_for_port(port, 60)
        url = f"spark://{LOOPBACK}:{port}"
        size = ["--cores", "2", "--memory", "1g", "--work-dir", str(folder / "work")]
        worker = Process([*launch, f"{main}worker.Worker", *at, *size, url], folder / "worker.log", env)
        yield Cluster(
            {
                "spark.master": url,
                "spark.driver.host": LOOPBACK,
                "spark.driver.bindAddress": LOOPBACK,
                "spark.executor.memory": "512m",
                "spark.ui.showConsoleProgress": "false",
            },
            str(folder / "bare" / "bin" / "python"),
            folder / "work",
        )
    finally:
        for service in (worker, master):
            if service is not None:
                service.stop()


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
        (killed,) = executors(cluster)
        os.kill(killed, signal.SIGKILL)
        assert running.result() == {"rows": RECORDS, "distinct": RECORDS, "files": 2}
        (other,) = executors(cluster)
    assert other != killed


def executors(cluster: Cluster) -> list[int]:
    """The processes of the cluster's executors."""
    found = subprocess.run(["pgrep", "-f", "executor.CoarseGrainedExecutorBackend"], capture_output=True, check=False)
    return [pid for pid in map(int, found.stdout.split()) if cluster.work in Path(f"/proc/{pid}/cwd").resolve().parents]


def test_an_interpreter_without_calving_is_named_as_the_reason_and_stops_the_sink(
    cluster: Cluster, topic: Callable[..., Topic], tmp_path: Path
) -> None:
    properties = {**cluster.properties, "spark.pyspark.python": cluster.bare_python}
    with contextlib.closing(Spark(tmp_path, properties)) as spark:
        error = spark.run(filled(topic), tmp_path)["error"]
    assert error.startswith("ConfigError: the Python of Spark's workers lacks the package 'calving': install calving")
    assert "spark.pyspark.python" in error


def test_a_cluster_that_gives_no_resources_stops_the_sink(
    cluster: Cluster, topic: Callable[..., Topic], tmp_path: Path
) -> None:
    properties = {**cluster.properties, "spark.executor.memory": "64g"}
    with contextlib.closing(Spark(tmp_path, properties, (3, 600))) as spark:
        error = spark.run(filled(topic), tmp_path)["error"]
    assert error.startswith("ConfigError: Spark gave the job no resources for 3 s")
