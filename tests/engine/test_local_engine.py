"""The engine of this process, and one that is opened beside, keep the contract of engines."""

from __future__ import annotations

import pytest

from calving.engine.interface import Engine, open_engine
from calving.engine.opening import OpeningEngine
from calving.testing import EngineContract


class TestLocal(EngineContract):
    @pytest.fixture
    def engine(self) -> Engine:
        return open_engine("local", "test", {})


class TestOpening(EngineContract):
    @pytest.fixture
    def engine(self) -> Engine:
        return OpeningEngine(lambda: open_engine("local", "test", {}))
