"""A session of Spark, by default on this machine, in which a task may fail once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.lake import SparkLake
from tests.spark.sessions import chosen, opened


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with opened(chosen(), tmp_path_factory.mktemp("spark")) as made:
        yield made


@pytest.fixture
def lake(tmp_path: Path) -> SparkLake:
    return SparkLake.create(tmp_path / "warehouse")
