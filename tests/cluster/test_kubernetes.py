"""The image's entrypoint, with the environment that Spark gives an executor's container."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyspark
import pytest

from calving.host import java
from calving.services.process import LOOPBACK, Process, free_port
from harness.topic import Topic
from tests.engine.standalone import Cluster, eventually
from tests.engine.test_engine import RECORDS, Spark, filled

pytestmark = pytest.mark.services

ENTRYPOINT = Path(__file__).parents[2] / "deploy" / "entrypoint.sh"
PATH = f"{Path(sys.executable).parent}:{Path(java()).parent}:{os.environ['PATH']}"


def test_an_executor_does_a_batch(topic: Callable[..., Topic], tmp_path: Path) -> None:
    """Its driver is one of a standalone cluster without nodes: there is no Kubernetes here."""
    port, home = free_port(), Path(pyspark.__file__).parent
    env = {
        "PATH": PATH,
        "SPARK_HOME": str(home),
        "SPARK_CONF_DIR": str(tmp_path),
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_DRIVER_URL": f"spark://CoarseGrainedScheduler@{LOOPBACK}:{port}",
        "SPARK_EXECUTOR_ID": "1",
        "SPARK_EXECUTOR_CORES": "2",
        "SPARK_EXECUTOR_MEMORY": "512m",
        "SPARK_APPLICATION_ID": "orders",
        "SPARK_EXECUTOR_POD_IP": LOOPBACK,
        "SPARK_EXECUTOR_POD_NAME": "orders-exec-1",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_JAVA_OPT_0": "--add-opens=java.base/java.nio=ALL-UNNAMED",
        "SPARK_JAVA_OPT_1": "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    }
    cluster = Cluster(tmp_path / "cluster")
    try:
        properties = {**cluster.properties, "spark.driver.port": str(port), "spark.pyspark.python": sys.executable}
        with contextlib.closing(Spark(tmp_path, properties)) as spark, ThreadPoolExecutor(1) as pool:
            running = pool.submit(spark.run, filled(topic), tmp_path)
            eventually(lambda: listens(port) or running.done())
            executor = Process([str(ENTRYPOINT), "executor"], tmp_path / "executor.log", env)
            assert running.result() == {"rows": RECORDS, "distinct": RECORDS, "files": 2}
            assert executor.returncode is None
        assert executor.wait(30) == 0
    finally:
        cluster.stop()


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((LOOPBACK, port)) == 0


def test_all_else_is_a_command_of_calving() -> None:
    done = subprocess.run([str(ENTRYPOINT), "version"], env={"PATH": PATH}, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("0."), done.stderr
