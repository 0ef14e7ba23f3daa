"""A session of Spark on this machine, in which a task may fail once."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from harness.jvm import spark
from tests.spark.lake import SparkLake

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
        settings: dict[str, bool | float | int | str | None] = {
            **spark(),
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("spark")),
        }
        made = SparkSession.builder.master("local[2, 2]").config(map=settings).getOrCreate()
        made.sparkContext.setLogLevel("OFF")
        yield made
        made.stop()


@pytest.fixture
def lake(tmp_path: Path) -> SparkLake:
    return SparkLake.create(tmp_path / "warehouse")
