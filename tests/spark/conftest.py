"""A session of Spark, by default on this machine, in which a task may fail once. Modules share it: each start of one takes
half a minute of CPU, with those of its processes of Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.lake import SparkLake
from tests.spark.sessions import Sessions, chosen


@pytest.fixture(scope="package")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sessions]:
    made = Sessions(tmp_path_factory.mktemp("spark"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def session(sessions: Sessions) -> SparkSession:
    return sessions.of(chosen())


@pytest.fixture(scope="module")
def no_session(sessions: Sessions) -> None:
    """No session is open, for commands of Spark: a session of Connect tells all processes that this one starts that
    they are Connect's.
    """
    sessions.close()


@pytest.fixture
def lake(tmp_path: Path) -> SparkLake:
    return SparkLake.create(tmp_path / "warehouse")
