"""The contract of engines over Spark's: ``python -m pytest tests/engine/contract.py -k Classic``, a process for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from calving.engine.interface import Engine
from calving.engine.registry import open_engine
from calving.testing import EngineContract


def opened(properties: Mapping[str, str]) -> Iterator[Engine]:
    engine = open_engine("spark", "test", properties)
    yield engine
    engine.close()


class TestClassic(EngineContract):
    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls) -> Iterator[Engine]:
        yield from opened({"spark.master": "local[2]", "spark.ui.showConsoleProgress": "false"})


class TestConnect(EngineContract):
    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls) -> Iterator[Engine]:
        yield from opened({"spark.remote": "local[2]"})
