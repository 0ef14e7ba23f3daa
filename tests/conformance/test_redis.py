from __future__ import annotations

from pathlib import Path

import pytest

from calving.testing import BackendContract, Harness
from harness.backends import RedisHarness

pytestmark = pytest.mark.services


class TestRedis(BackendContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> Harness:
        return RedisHarness(tmp_path, {"appendfsync": "always"})


class TestRedisThatSyncsEverySecond(BackendContract):
    """A publication waits for the disk itself."""

    @pytest.fixture
    def harness(self, tmp_path: Path) -> Harness:
        return RedisHarness(tmp_path, {"appendfsync": "everysec"})
