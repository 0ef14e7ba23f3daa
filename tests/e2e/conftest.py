from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from calving.services.redis import LocalRedis
from calving.services.zookeeper import LocalZooKeeper


@pytest.fixture(params=["redis", "zookeeper"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalRedis | LocalZooKeeper]:
    """A store that a test may kill, wipe or turn back."""
    made = LocalRedis if request.param == "redis" else LocalZooKeeper
    found = made(tmp_path / "store")
    found.start()
    yield found
    found.stop()
