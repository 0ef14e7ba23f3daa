"""The same task function on classic Spark, on Spark Connect, and with a task that has to be tried again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.conftest import Topic
from tests.data.conftest import encode

RECORDS = 120_000
LOCAL = {"spark.master": "local[2]", "spark.ui.showConsoleProgress": "false"}


def run(topic: Topic, folder: Path, properties: Mapping[str, str], **env: str) -> dict[str, Any]:
    command = [
        sys.executable,
        "-m",
        "tests.spark.batch",
        topic.servers,
        topic.name,
        str(folder),
        json.dumps(properties),
    ]
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


def test_a_batch_runs_on_spark_connect(topic: Callable[..., Topic], tmp_path: Path) -> None:
    found = run(filled(topic), tmp_path, {"spark.remote": "local[2]"})
    assert found == {"rows": RECORDS, "distinct": RECORDS, "files": 2}


def test_a_task_that_fails_after_writing_is_tried_again_without_duplicates(
    topic: Callable[..., Topic], tmp_path: Path
) -> None:
    marker = tmp_path / "failed-once"
    properties = {**LOCAL, "spark.master": "local[2,3]", "spark.python.daemon.module": "tests.spark.flaky_daemon"}
    found = run(filled(topic), tmp_path, properties, FLAKY_MARKER=str(marker))
    assert marker.exists()
    assert found == {"rows": RECORDS, "distinct": RECORDS, "files": 2}
