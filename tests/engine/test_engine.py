"""The same task function on classic Spark, on Spark Connect, and with a task that has to be tried again."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from calving.engine.spark import JAVA_OPTIONS
from harness.forms import forms
from harness.jvm import java_options
from harness.topic import Topic
from tests.tasks.conftest import encode

pytestmark = pytest.mark.services

RECORDS = 120_000
CONTRACT = Path(__file__).parent / "contract.py"
ALL = {"rows": RECORDS, "distinct": RECORDS, "files": 2}
CONNECT = {"spark.remote": "local[2]"}
LOCAL = {"spark.master": "local[2]", "spark.ui.showConsoleProgress": "false"}


PLAIN: Mapping[str, Any] = {"partition_by": [], "properties": {}, "scattered": False}
HASH: Mapping[str, Any] = {
    "partition_by": ["bucket(id, 40)"],
    "properties": {"write.distribution-mode": "hash"},
    "scattered": False,
}
RANGE: Mapping[str, Any] = {
    "partition_by": [],
    "properties": {"write.distribution-mode": "range"},
    "scattered": False,
    "sorted": True,
}


class Spark:
    """A process with one engine, for one batch after the other."""

    def __init__(self, folder: Path, properties: Mapping[str, str], patience: Sequence[float] = (), **env: str) -> None:
        self.log = folder / f"spark-{next(_NUMBERS)}.log"
        options = java_options()
        if properties == CONNECT:
            env["SPARK_TESTING"] = "1"  # a server on a port that is free, as others may test beside
            properties = {**CONNECT, JAVA_OPTIONS: options}
        with self.log.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.engine.batch", json.dumps(properties), *map(str, patience)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, **env},
            )

    def run(self, topic: Topic, folder: Path, table: Mapping[str, Any] = PLAIN) -> dict[str, Any]:
        return self._ask({"servers": topic.servers, "topic": topic.name, "folder": str(folder), "table": table})

    def _ask(self, job: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, self.log.read_text()[-3000:]
        return dict(json.loads(answer))

    def insist(self, topic: Topic, folder: Path) -> list[str]:
        """A batch that is tried again, as the sink does, while Spark is away. Returns the errors until it ends."""
        errors: list[str] = []
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            if (found := self.run(topic, folder / str(len(errors)))) == ALL:
                return errors
            errors.append(found["error"])
            assert errors[-1].startswith(("EngineLostError: ", "UnavailableError: ", "NoResourcesError: ")), errors
            time.sleep(0.5)
        raise AssertionError(errors)

    def kill_java(self) -> None:
        found = subprocess.run(["pgrep", "-P", str(self._process.pid), "java"], capture_output=True, check=True)
        (java,) = map(int, found.stdout.split())
        os.kill(java, signal.SIGKILL)

    def close(self) -> None:
        self._process.communicate(timeout=300)


_NUMBERS = itertools.count()
_FILLED: list[Topic] = []


@pytest.fixture(scope="module")
def classic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spark]:
    with contextlib.closing(Spark(tmp_path_factory.mktemp("spark"), LOCAL)) as spark:
        yield spark


@pytest.fixture(scope="module")
def connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spark]:
    with contextlib.closing(Spark(tmp_path_factory.mktemp("spark"), CONNECT)) as spark:
        yield spark


def filled(topic: Callable[..., Topic]) -> Topic:
    """The records, which every test of this process reads from the same topic."""
    if not _FILLED:
        _FILLED.append(fresh(topic))
    return _FILLED[0]


def fresh(topic: Callable[..., Topic]) -> Topic:
    made = topic(partitions=2)
    for partition in range(2):
        half = RECORDS // 2
        made.send(*encode(*({"id": partition * half + i} for i in range(half))), partition=partition)
    return made


def test_a_batch_runs_as_one_job_of_several_tasks(classic: Spark, topic: Callable[..., Topic], tmp_path: Path) -> None:
    found = classic.run(filled(topic), tmp_path)
    assert found == {"rows": RECORDS, "distinct": RECORDS, "files": 2}


@pytest.mark.long
def test_the_first_jvm_leaves_its_classes_to_the_next_one(topic: Callable[..., Topic], tmp_path: Path) -> None:
    made = topic()
    made.send(*encode({"id": 1}))
    cache = tmp_path / "cache"
    written = []
    for number in range(2):
        with contextlib.closing(Spark(tmp_path, LOCAL, XDG_CACHE_HOME=str(cache))) as spark:
            spark.run(made, tmp_path / str(number))
        written.append([(path.suffix, path.stat().st_mtime_ns) for path in cache.rglob("*.*")])
    assert [suffix for suffix, _ in written[0]] == [".jsa"]
    assert written[1] == written[0]


@pytest.mark.long
def test_a_jvm_that_has_run_no_task_leaves_no_classes(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with contextlib.closing(Spark(tmp_path, LOCAL, XDG_CACHE_HOME=str(cache))):
        pass
    assert not [*cache.rglob("*.*")]


def test_java_says_nothing_at_a_start_that_is_well(classic: Spark, topic: Callable[..., Topic], tmp_path: Path) -> None:
    classic.run(filled(topic), tmp_path)
    assert classic.log.read_text() == ""


def test_a_java_that_does_not_start_says_why(tmp_path: Path) -> None:
    properties = {**LOCAL, "spark.driver.extraJavaOptions": "-javaagent:/no/such.jar"}
    spark = Spark(tmp_path, properties)
    spark.close()
    said = spark.log.read_text()
    assert "/no/such.jar" in said
    assert "ConfigError: spark.*: Spark does not start" in said


def test_a_java_that_dies_is_started_again(topic: Callable[..., Topic], tmp_path: Path) -> None:
    made = filled(topic)
    with contextlib.closing(Spark(tmp_path, LOCAL)) as spark:
        assert spark.run(made, tmp_path / "first") == ALL
        spark.kill_java()
        error = spark.run(made, tmp_path / "dead")["error"]
        assert error.startswith("EngineLostError: Spark is gone, and is started again: ")
        assert spark.run(made, tmp_path / "again") == ALL


def test_a_batch_runs_on_spark_connect(connect: Spark, topic: Callable[..., Topic], tmp_path: Path) -> None:
    found = connect.run(filled(topic), tmp_path)
    assert found == {"rows": RECORDS, "distinct": RECORDS, "files": 2}


@pytest.mark.parametrize("engine", forms(["Classic", "Connect"], ["Classic"]))
def test_an_engine_keeps_the_contract(engine: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(CONTRACT), "-k", engine]
    # A server on a port that is free, as others may test beside.
    env = {**os.environ, "SPARK_TESTING": "1"} if engine == "Connect" else None
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-5000:]
    assert " passed" in done.stdout


def test_a_task_that_fails_after_writing_is_tried_again_without_duplicates(
    topic: Callable[..., Topic], tmp_path: Path
) -> None:
    marker = tmp_path / "failed-once"
    properties = {**LOCAL, "spark.master": "local[2,3]", "spark.python.daemon.module": "tests.engine.flaky_daemon"}
    with contextlib.closing(Spark(tmp_path, properties, FLAKY_MARKER=str(marker))) as spark:
        found = spark.run(filled(topic), tmp_path)
    assert marker.exists()
    assert found == {"rows": RECORDS, "distinct": RECORDS, "files": 2}


@pytest.mark.long
def test_a_job_that_never_ends_is_cancelled_and_the_next_one_runs(topic: Callable[..., Topic], tmp_path: Path) -> None:
    properties = {**LOCAL, "spark.python.daemon.module": "tests.engine.flaky_daemon"}
    env = {"FLAKY_MARKER": str(tmp_path / "hung-once"), "FLAKY_HANGS": "1"}
    made = filled(topic)
    with contextlib.closing(Spark(tmp_path, properties, (120, 60), **env)) as spark:
        assert spark.run(made, tmp_path / "a")["error"].startswith(
            "UnavailableError: the Spark job took longer than 60 s"
        )
        errors = spark.insist(made, tmp_path / "b")
        assert not any("was cancelled" in error for error in errors)


def test_a_shuffle_makes_one_file_of_each_partition(
    classic: Spark, topic: Callable[..., Topic], tmp_path: Path
) -> None:
    filled_topic = filled(topic)
    scattered = classic.run(filled_topic, tmp_path / "none", {**HASH, "properties": {}})
    gathered = classic.run(filled_topic, tmp_path / "hash", HASH)
    assert scattered == {"rows": RECORDS, "distinct": RECORDS, "files": 80}
    assert gathered == {"rows": RECORDS, "distinct": RECORDS, "files": 40}


def test_a_shuffle_runs_on_spark_connect(connect: Spark, topic: Callable[..., Topic], tmp_path: Path) -> None:
    found = connect.run(filled(topic), tmp_path, HASH)
    assert found == {"rows": RECORDS, "distinct": RECORDS, "files": 40}


@pytest.mark.parametrize("kind", ["classic", "connect"])
def test_records_replace_each_other_by_key(
    kind: str, request: pytest.FixtureRequest, topic: Callable[..., Topic], tmp_path: Path
) -> None:
    """Those of a batch meet in one task, and tasks find the rows of the batch before."""
    made, count = topic(partitions=2), 60_000
    for partition in range(2):
        made.send(*encode(*({"id": i % 500 * 2 + partition, "n": i} for i in range(count))), partition=partition)
    found = request.getfixturevalue(kind).run(made, tmp_path, {"records": count})
    assert found == {"rows": 1000, "distinct": 1000, "oldest": count - 500, "looked": 1}


def test_a_shuffle_whose_table_has_to_change_starts_over_without_duplicates(
    classic: Spark, topic: Callable[..., Topic], tmp_path: Path
) -> None:
    made = fresh(topic)
    made.send(*encode({"id": RECORDS, "late": "a new column"}), partition=1)
    found = classic.run(made, tmp_path, HASH)
    assert found == {"rows": RECORDS + 1, "distinct": RECORDS + 1, "files": 40}
    assert len(list((tmp_path / "warehouse").rglob("*.parquet"))) == 40


def interleaved(topic: Callable[..., Topic]) -> Topic:
    """Every partition, and so every task, has ids of the whole range."""
    made = topic(partitions=2)
    for partition in range(2):
        made.send(*encode(*({"id": i * 2 + partition} for i in range(RECORDS // 2))), partition=partition)
    return made


def test_ranges_of_a_sort_order_make_files_that_do_not_overlap(
    classic: Spark, topic: Callable[..., Topic], tmp_path: Path
) -> None:
    made = interleaved(topic)
    found = classic.run(made, tmp_path / "none", {**RANGE, "properties": {}})
    assert found == {"rows": RECORDS, "distinct": RECORDS, "files": 2, "overlaps": 1}
    found = classic.run(made, tmp_path / "range", RANGE)
    assert found == {"rows": RECORDS, "distinct": RECORDS, "files": 2, "overlaps": 0}


def test_ranges_are_cut_on_spark_connect(connect: Spark, topic: Callable[..., Topic], tmp_path: Path) -> None:
    found = connect.run(interleaved(topic), tmp_path, RANGE)
    assert found == {"rows": RECORDS, "distinct": RECORDS, "files": 2, "overlaps": 0}


@pytest.mark.long
def test_48_partitions_with_500_days_each_make_500_files(
    classic: Spark, topic: Callable[..., Topic], tmp_path: Path
) -> None:
    made = topic(partitions=48)
    for p in range(48):
        made.send(
            *encode(*({"id": p * 500 + day, "ts": f"{date(2020, 1, 1) + timedelta(day)}"} for day in range(500))),
            partition=p,
        )
    table = {**HASH, "partition_by": ["ts"], "scattered": True}
    assert classic.run(made, tmp_path, table) == {"rows": 24_000, "distinct": 24_000, "files": 500}
