from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from calving.services.redis import RedisServer
from calving.services.zookeeper import ZooKeeperServer


@pytest.fixture(params=["redis", "zookeeper"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RedisServer | ZooKeeperServer]:
    """A store that a test may kill, wipe or turn back."""
    made = RedisServer if request.param == "redis" else ZooKeeperServer
    found = made(tmp_path / "store")
    found.start()
    yield found
    found.stop()
