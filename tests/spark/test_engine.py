"""The same task function on classic Spark, on Spark Connect, and with a task that has to be tried again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from tests.conftest import Topic
from tests.data.conftest import encode

RECORDS = 120_000
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


def run(
    topic: Topic, folder: Path, properties: Mapping[str, str], table: Mapping[str, Any] = PLAIN, **env: str
) -> dict[str, Any]:
    command = [
        sys.executable,
        "-m",
        "tests.spark.batch",
        topic.servers,
        topic.name,
        str(folder),
        json.dumps(properties),
        json.dumps(table),
    ]
    if properties == CONNECT:
        env["SPARK_TESTING"] = "1"  # a server on a port that is free, as others may test beside
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **env}, timeout=170, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


def filled(topic: Callable[..., Topic]) -> Topic:
    made = topic(partitions=2)
    for partition in range(2):
        half = RECORDS // 2
        made.send(*encode(*({"id": partition * half + i} for i in range(half))), partition=partition)
    return made


def test_a_batch_runs_as_one_job_of_several_tasks(topic: Callable[..., Topic], tmp_path: Path) -> None:
    found = run(filled(topic), tmp_path, LOCAL)
    assert found == {"rows": RECORDS, "distinct": RECORDS, "files": 2}


def test_the_first_jvm_leaves_its_classes_to_the_next_one(topic: Callable[..., Topic], tmp_path: Path) -> None:
    made = topic()
    made.send(*encode({"id": 1}))
    cache = tmp_path / "cache"
    written = []
    for number in range(2):
        run(made, tmp_path / str(number), LOCAL, XDG_CACHE_HOME=str(cache))
        written.append([(path.suffix, path.stat().st_mtime_ns) for path in cache.rglob("*.*")])
    assert [suffix for suffix, _ in written[0]] == [".jsa"]
    assert written[1] == written[0]


def test_a_batch_runs_on_spark_connect(topic: Callable[..., Topic], tmp_path: Path) -> None:
    found = run(filled(topic), tmp_path, CONNECT)
    assert found == {"rows": RECORDS, "distinct": RECORDS, "files": 2}


def test_a_task_that_fails_after_writing_is_tried_again_without_duplicates(
    topic: Callable[..., Topic], tmp_path: Path
) -> None:
    marker = tmp_path / "failed-once"
    properties = {**LOCAL, "spark.master": "local[2,3]", "spark.python.daemon.module": "tests.spark.flaky_daemon"}
    found = run(filled(topic), tmp_path, properties, FLAKY_MARKER=str(marker))
    assert marker.exists()
    assert found == {"rows": RECORDS, "distinct": RECORDS, "files": 2}


def test_a_shuffle_makes_one_file_of_each_partition(topic: Callable[..., Topic], tmp_path: Path) -> None:
    filled_topic = filled(topic)
    scattered = run(filled_topic, tmp_path / "none", LOCAL, {**HASH, "properties": {}})
    gathered = run(filled_topic, tmp_path / "hash", LOCAL, HASH)
    assert scattered == {"rows": RECORDS, "distinct": RECORDS, "files": 80}
    assert gathered == {"rows": RECORDS, "distinct": RECORDS, "files": 40}


def test_a_shuffle_runs_on_spark_connect(topic: Callable[..., Topic], tmp_path: Path) -> None:
    found = run(filled(topic), tmp_path, CONNECT, HASH)
    assert found == {"rows": RECORDS, "distinct": RECORDS, "files": 40}


def test_a_shuffle_whose_table_has_to_change_starts_over_without_duplicates(
    topic: Callable[..., Topic], tmp_path: Path
) -> None:
    made = filled(topic)
    made.send(*encode({"id": RECORDS, "late": "a new column"}), partition=1)
    found = run(made, tmp_path, LOCAL, HASH)
    assert found == {"rows": RECORDS + 1, "distinct": RECORDS + 1, "files": 40}
    assert len(list((tmp_path / "warehouse").rglob("*.parquet"))) == 40


def interleaved(topic: Callable[..., Topic]) -> Topic:
    """Every partition, and so every task, has ids of the whole range."""
    made = topic(partitions=2)
    for partition in range(2):
        made.send(*encode(*({"id": i * 2 + partition} for i in range(RECORDS // 2))), partition=partition)
    return made


def test_ranges_of_a_sort_order_make_files_that_do_not_overlap(topic: Callable[..., Topic], tmp_path: Path) -> None:
    made = interleaved(topic)
    found = run(made, tmp_path / "none", LOCAL, {**RANGE, "properties": {}})
    assert found == {"rows": RECORDS, "distinct": RECORDS, "files": 2, "overlaps": 1}
    found = run(made, tmp_path / "range", LOCAL, RANGE)
    assert found == {"rows": RECORDS, "distinct": RECORDS, "files": 2, "overlaps": 0}


def test_ranges_are_cut_on_spark_connect(topic: Callable[..., Topic], tmp_path: Path) -> None:
    found = run(interleaved(topic), tmp_path, CONNECT, RANGE)
    assert found == {"rows": RECORDS, "distinct": RECORDS, "files": 2, "overlaps": 0}


def test_48_partitions_with_500_days_each_make_500_files(topic: Callable[..., Topic], tmp_path: Path) -> None:
    made = topic(partitions=48)
    for p in range(48):
        made.send(
            *encode(*({"id": p * 500 + day, "ts": f"{date(2020, 1, 1) + timedelta(day)}"} for day in range(500))),
            partition=p,
        )
    table = {**HASH, "partition_by": ["ts"], "scattered": True}
    assert run(made, tmp_path, LOCAL, table) == {"rows": 24_000, "distinct": 24_000, "files": 500}
