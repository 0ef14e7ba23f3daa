"""Declarative Pipelines: ``create_sink(..., "calving", ...)``, of which each flow is a query with a ledger of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from calving.services.process import LOOPBACK, Process
from harness.jvm import spark
from harness.waiting import wait_for
from tests.spark import faulty
from tests.spark.lake import SparkLake
from tests.spark.sessions import python_of_spark

pytestmark = [pytest.mark.services, pytest.mark.usefixtures("no_session")]

ROOT = Path(__file__).parents[2]
SECONDS = 1200
NORTH, SOUTH = 0, 100
"""The first numbers of two flows."""
MODULE = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()
dp.create_sink("numbers", "calving", {options!r} | {{"table": "lake.t"}})
dp.create_sink(
    "stock",
    "calving",
    {options!r}
    | {{"table": "lake.stock", "keys": "id", "sequence_by": "value", "apply_as_deletes": "op = 'D'"}},
)


def files(name):
    return spark.readStream.schema("value LONG").option("maxFilesPerTrigger", 1).json("{folder}/" + name)


@dp.append_flow(target="numbers", name="north")
def north():
    return files("north")


@dp.append_flow(target="numbers", name="south")
def south():
    return files("south")


@dp.append_flow(target="stock", name="changes")
def changes():
    return files("north").selectExpr("value % 3 AS id", "value", "IF(value % 4 = 0, 'D', 'U') AS op")
"""


@dataclass
class Pipeline:
    """A pipeline with two sinks: numbers of two flows, and the changes of rows by one of these."""

    folder: Path
    lake: SparkLake
    options: dict[str, str]
    count: int = field(default=0)
    """The files that each flow has been given, with one number in each."""

    def __post_init__(self) -> None:
        configuration = {**spark(), "spark.ui.enabled": "false"}
        spec = {
            "name": "numbers",
            "storage": f"file://{self.folder}/storage",
            "libraries": [{"glob": {"include": "transformations/**"}}],
            "configuration": {"spark.sql.shuffle.partitions": "2"},
        }
        self.command = [str(Path(sys.executable).parent / "spark-pipelines")]
        self.settings = [part for key, text in configuration.items() for part in ("--conf", f"{key}={text}")]
        (self.folder / "spark-pipeline.yml").write_text(json.dumps(spec))  # YAML has JSON within
        (self.folder / "transformations").mkdir()
        text = MODULE.format(options=self.options, folder=self.folder)
        (self.folder / "transformations" / "numbers.py").write_text(text)
        self.add(1)

    def add(self, count: int) -> None:
        """So many files for each flow. Spark reads them in the order of their times: a row that comes after its delete is
        there again, whatever its number.
        """
        for _ in range(count):
            self.count += 1
            for name, start in (("north", NORTH), ("south", SOUTH)):
                path = self.folder / name / f"{self.count}.json"
                path.parent.mkdir(exist_ok=True)
                path.write_text(f'{{"value": {start + self.count}}}\n')
                os.utime(path, (self.count, self.count))

    @property
    def env(self) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        alone = {"SPARK_TESTING": "1", "SPARK_LOCAL_IP": LOOPBACK}  # a server on a port that is free
        return {"PATH": path, "PYSPARK_PYTHON": python_of_spark(), "PYTHONPATH": str(ROOT), **alone}

    def run(self, *command: str) -> str:
        """What it says; it ends by itself."""
        done = subprocess.run(
            [*self.command, *command, *self.settings],
            cwd=self.folder,
            env={**os.environ, **self.env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        return f"{done.returncode}: {done.stdout}"

    def kill_after(self, rows: int) -> None:
        """Run, and kill it once the first table has so many rows, and not all."""
        killed = Process([*self.command, "run", *self.settings], self.folder / "killed.log", self.env)
        try:
            wait_for(lambda: len(self.lake.values("lake.t")) >= rows, SECONDS)
        finally:
            killed.kill()
        assert len(self.lake.values("lake.t")) < 2 * self.count, "it was killed too late"

    def forget(self) -> None:
        """Each checkpoint loses that its last batch is done."""
        lost = [
            max(found, key=lambda path: int(path.name))
            for folder in (self.folder / "storage").rglob("commits")
            if (found := [path for path in folder.iterdir() if path.name.isdecimal()])
        ]
        assert lost
        for path in lost:
            path.unlink()

    def assert_each_once(self) -> None:
        """Each row of each flow is there once, and of the changes the last one of each key, if it does not delete."""
        given = range(1, self.count + 1)
        assert self.lake.values("lake.t") == sorted([*(NORTH + n for n in given), *(SOUTH + n for n in given)])
        last = {value % 3: value for value in given}
        assert self.lake.values("lake.stock") == sorted(value for value in last.values() if value % 4)

    @property
    def batches(self) -> dict[str, int]:
        """The last batch of each flow, as the tables have it."""
        prefix = "calving.spark-batch."
        return {
            name.removeprefix(prefix): json.loads(text)["batch"]
            for table in ("lake.t", "lake.stock")
            for name, text in self.lake.table(table).properties.items()
            if name.startswith(prefix)
        }


@pytest.fixture
def pipeline(lake: SparkLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    monkeypatch.chdir(tmp_path)
    return Pipeline(tmp_path, lake, lake.faulty)


def test_a_dry_run_creates_no_table(pipeline: Pipeline) -> None:
    assert pipeline.run("dry-run").startswith("0: ")
    assert not pipeline.lake.catalog.table_exists("lake.t")


@pytest.mark.long
def test_each_flow_has_its_rows_once_whatever_ended_a_run_and_a_full_refresh_is_refused(pipeline: Pipeline) -> None:
    """One test, because a run takes half a minute. The first is killed, and its checkpoints lose a batch each. In each
    of the next two a flow fails after its commit, and Spark starts it again. The last is a full refresh, which is refused.
    """
    pipeline.add(5)
    pipeline.kill_after(3)
    pipeline.forget()
    whens: tuple[faulty.When, ...] = "raises after", "dies after"
    for when in whens:
        faulty.plan(pipeline.lake.folder, "commit_table", 2, when)
        said = pipeline.run("run")
        assert said.startswith("0: "), said
        assert faulty.has_failed(pipeline.lake.folder)
        pipeline.assert_each_once()
        pipeline.add(2)
    # Where Spark was killed between a source's log and its own, a batch has two files.
    assert pipeline.batches.keys() == {"north", "south", "changes"}
    assert all(3 < batch <= pipeline.count - 3 for batch in pipeline.batches.values())
    before = pipeline.lake.values("lake.t"), pipeline.lake.values("lake.stock")
    said = pipeline.run("run", "--full-refresh-all", "--conf", "spark.sql.pipelines.maxFlowRetryAttempts=0")
    assert not said.startswith("0: ")
    assert any(f"sink {flow} was written by query" in said for flow in ("north", "south", "changes")), said
    assert (pipeline.lake.values("lake.t"), pipeline.lake.values("lake.stock")) == before
