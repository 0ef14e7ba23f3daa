"""The contract of engines over Spark's: ``python -m pytest tests/engine/contract.py -k Classic``, a process for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from calving.engine.interface import Engine, open_engine
from calving.engine.spark import JAVA_OPTIONS
from calving.iceberg.catalog import open_catalog
from calving.iceberg.resolution import RowChangeResolver
from calving.testing import EngineContract
from harness.jvm import java_options
from tests.iceberg.histories import create, pyiceberg_rows


def opened(properties: Mapping[str, str]) -> Iterator[Engine]:
    engine = open_engine("spark", "test", properties)
    yield engine
    engine.close()


class SparkContract(EngineContract):
    def test_tasks_look_for_keys(self, engine: Engine, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        table = create(open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)}), "by key", 2)
        table.commit(table.step([{"id": key, "name": "a", "g": 0} for key in range(50)]))
        table.resolver = RowChangeResolver(tasks=engine.for_other_jobs)
        table.resolver.lookups.rows_here = 0
        table.commit(table.step([{"id": 1, "name": "b", "g": 0}], [{"id": 2}]))
        assert pyiceberg_rows(table.table) == table.rows()
        assert "without tasks" not in caplog.text

    # Here, because the tests run in the order in which they stand, and none can use the engine after this one.
    def test_it_can_be_closed_twice(self, engine: Engine) -> None:
        super().test_it_can_be_closed_twice(engine)


class TestClassic(SparkContract):
    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls) -> Iterator[Engine]:
        yield from opened({"spark.master": "local[2]", "spark.ui.showConsoleProgress": "false"})


class TestConnect(SparkContract):
    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls) -> Iterator[Engine]:
        yield from opened({"spark.remote": "local[2]", JAVA_OPTIONS: java_options()})
