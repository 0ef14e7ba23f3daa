"""Spark is lost, or its workers are not as the driver wants them: a standalone cluster, and servers of Spark Connect."""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import calving.version
from calving.version import __version__
from harness.pythons import another_python
from harness.topic import Topic
from tests.engine.connect_server import ConnectServer
from tests.engine.standalone import Cluster, eventually, with_one_node
from tests.engine.test_engine import ALL, Spark, filled

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with with_one_node(tmp_path_factory.mktemp("cluster")) as made:
        yield made


def test_a_master_that_starts_again_and_knows_nobody_gets_a_new_application(
    topic: Callable[..., Topic], tmp_path: Path
) -> None:
    cluster, sent = Cluster(tmp_path / "cluster"), filled(topic)
    properties = {**cluster.properties, "spark.pyspark.python": sys.executable}
    try:
        cluster.worker(2)
        with contextlib.closing(Spark(tmp_path, properties, (45, 600))) as spark:
            assert spark.run(sent, tmp_path / "first") == ALL
            cluster.lose()
            cluster.start()
            eventually(lambda: not cluster.executors())  # nobody knows what they are for
            (error, *_) = spark.insist(sent, tmp_path / "again")
            assert error.startswith(("NoResourcesError: Spark gave the job no resources", "EngineLostError: "))
    finally:
        cluster.stop()


def test_a_python_of_another_minor_version_is_named(
    cluster: Cluster, topic: Callable[..., Topic], tmp_path: Path
) -> None:
    """It needs no package: Spark compares the versions first."""
    other = another_python()
    properties = {"spark.pyspark.python": other, "spark.python.daemon.module": "pyspark.daemon"}
    with contextlib.closing(Spark(tmp_path, {**cluster.properties, **properties})) as spark:
        error = spark.run(filled(topic), tmp_path)["error"]
    assert error.startswith("ConfigError: Spark's workers run Python 3.")
    assert f"the driver 3.{sys.version_info.minor}: they must be of the same minor version" in error


def test_executors_with_another_version_of_calving_are_named(
    cluster: Cluster, topic: Callable[..., Topic], tmp_path: Path
) -> None:
    other = tmp_path / "other" / "calving"
    shutil.copytree(Path(calving.version.__file__).parent, other)
    version = other / "version.py"
    version.write_text(version.read_text().replace(__version__, "0.0.9"))
    properties = {"spark.pyspark.python": sys.executable, "spark.executorEnv.PYTHONPATH": str(other.parent)}
    with contextlib.closing(Spark(tmp_path, {**cluster.properties, **properties})) as spark:
        error = spark.run(filled(topic), tmp_path)["error"]
    assert error.startswith(
        f"ConfigError: calving 0.0.9 is installed for Spark's workers, calving {__version__} for the driver"
    )


def test_a_server_that_starts_again_gets_a_new_session(topic: Callable[..., Topic], tmp_path: Path) -> None:
    made, sent = ConnectServer(tmp_path, sys.executable, {"spark.master": "local[2]"}), filled(topic)
    with contextlib.closing(made), contextlib.closing(Spark(tmp_path, made.properties)) as spark:
        assert spark.run(sent, tmp_path / "first") == ALL
        made.close()
        error = spark.run(sent, tmp_path / "away")["error"]
        assert error.startswith("EngineLostError: Spark is gone, and is started again: ")
        made.start()
        spark.insist(sent, tmp_path / "again")


def test_a_server_that_is_not_up_yet_is_waited_for(topic: Callable[..., Topic], tmp_path: Path) -> None:
    made = ConnectServer(tmp_path, sys.executable, {"spark.master": "local[2]"})
    made.close()
    spark, sent = Spark(tmp_path, made.properties), filled(topic)
    with contextlib.closing(made), contextlib.closing(spark):
        time.sleep(5)
        made.start()
        assert spark.run(sent, tmp_path / "first") == ALL


def test_a_server_whose_cluster_has_no_room_says_so(topic: Callable[..., Topic], tmp_path: Path) -> None:
    """A cluster without nodes."""
    cluster = Cluster(tmp_path / "cluster")
    try:
        made = ConnectServer(tmp_path, sys.executable, cluster.properties)
        with contextlib.closing(made), contextlib.closing(Spark(tmp_path, made.properties, (8, 600))) as spark:
            error = spark.run(filled(topic), tmp_path)["error"]
    finally:
        cluster.stop()
    assert error.startswith("ConfigError: Spark gave the job no resources for 8 s")
