from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from calving.services.redis import RedisServer
from calving.services.zookeeper import ZooKeeperServer
from harness.run import settings_of

STORES = {"redis": RedisServer, "zookeeper": ZooKeeperServer}


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RedisServer | ZooKeeperServer]:
    """A store that a test may kill, wipe or turn back."""
    found = STORES[request.param](tmp_path / "store")
    found.start()
    yield found
    found.stop()


@pytest.fixture(scope="module", params=["kafka", *STORES])
def keys(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The settings of a backend whose store is there for the whole module."""
    if request.param == "kafka":
        yield {}
        return
    server = STORES[request.param](tmp_path_factory.mktemp(request.param))
    server.start()
    yield settings_of(server)
    server.stop()
