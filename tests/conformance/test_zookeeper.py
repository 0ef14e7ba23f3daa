from __future__ import annotations

from collections.abc import Iterator

import pytest

from calving.services.stores import ZooKeeperServer
from calving.testing import BackendContract, Harness
from harness.backends import ZooKeeperHarness

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    found = ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"))
    found.start()
    yield found
    found.stop()


class TestZooKeeper(BackendContract):
    @pytest.fixture
    def harness(self, server: ZooKeeperServer, unique: str) -> Harness:
        return ZooKeeperHarness(server, unique)
