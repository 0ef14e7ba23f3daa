"""The whole sink on YARN."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from calving.services.process import Process
from tests.cli.commands import Cli
from tests.cluster.packing import Packed
from tests.cluster.yarn import Yarn
from tests.conftest import Topic
from tests.engine.standalone import eventually

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def yarn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yarn]:
    made = Yarn(tmp_path_factory.mktemp("yarn"))
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture
def sink(yarn: Yarn, servers: str, tmp_path: Path, unique: str, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """20,000 records wait for it."""
    for name, value in yarn.env.items():
        monkeypatch.setenv(name, value)
    made = Cli(tmp_path, Topic(servers, unique, partitions=2), unique)
    made.keys |= yarn.properties | {"iceberg.engine": "spark"}
    made.send(0, 20_000)
    return made


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
