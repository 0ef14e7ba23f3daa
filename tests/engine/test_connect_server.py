"""Spark Connect with a server that is a process of its own and has a Python of its own."""

from __future__ import annotations

import contextlib
import sys
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark
import pytest

from calving.services.process import LOOPBACK, Process, free_port
from tests.conftest import Topic
from tests.engine.test_engine import RECORDS, Spark, filled

pytestmark = pytest.mark.services


@contextlib.contextmanager
def server(folder: Path, python: str) -> Iterator[Spark]:
    """An engine at a server whose tasks run in ``python``."""
    home, port = Path(pyspark.__file__).parent, free_port()
    settings = {
        "spark.connect.grpc.binding.address": LOOPBACK,
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    command = [str(home / "bin" / "spark-submit"), "--master", "local[2]"]
    command += [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    # The server knows nothing of this process's modules: its Python has what is installed there.
    env = {"SPARK_HOME": str(home), "PYSPARK_PYTHON": python, "PYTHONPATH": "", "SPARK_LOCAL_IP": LOOPBACK}
    process = Process(command, folder / "server.log", env)
    try:
        process.wait_for_port(port, 90)
        with contextlib.closing(Spark(folder, {"spark.remote": f"sc://{LOOPBACK}:{port}"})) as spark:
            yield spark
    finally:
        process.stop()


def test_a_batch_runs_on_a_server_elsewhere(topic: Callable[..., Topic], tmp_path: Path) -> None:
    with server(tmp_path, sys.executable) as spark:
        assert spark.run(filled(topic), tmp_path) == {"rows": RECORDS, "distinct": RECORDS, "files": 2}


def test_a_server_whose_python_lacks_calving_is_named_as_the_reason_and_stops_the_sink(
    topic: Callable[..., Topic], tmp_path: Path
) -> None:
    venv.create(tmp_path / "bare", with_pip=False)
    with server(tmp_path, str(tmp_path / "bare" / "bin" / "python")) as spark:
        error = spark.run(filled(topic), tmp_path)["error"]
    assert error.startswith("ConfigError: the Python of Spark's workers lacks the package 'calving': install calving")
