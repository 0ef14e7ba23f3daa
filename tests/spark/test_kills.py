"""The whole driver is killed at random moments: its Python, its JVM and their workers. Each row is there once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.spark.job import BATCH
from tests.spark.lake import SparkLake
from tests.spark.test_streams import SECONDS

ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("CALVING_KILLS", "2"))


def start(lake: SparkLake, checkpoint: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.spark.job", str(lake.folder), str(checkpoint)]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )


def kill(driver: subprocess.Popen[bytes]) -> None:
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()


@pytest.mark.services
def test_every_row_is_there_once_after_the_driver_was_killed(lake: SparkLake, tmp_path: Path) -> None:
    rng = random.Random(KILLS)
    for number in range(KILLS + 1):
        before = len(lake.values("lake.t"))
        driver = start(lake, tmp_path / "checkpoint")
        deadline = time.monotonic() + SECONDS
        try:
            while len(lake.values("lake.t")) < before + 2 * BATCH:
                assert driver.poll() is None and time.monotonic() < deadline
                time.sleep(0.1)
            time.sleep(rng.uniform(0, 1) if number < KILLS else 0)
        finally:
            kill(driver)
        values = lake.values("lake.t")
        assert values == [*range(len(values))]
