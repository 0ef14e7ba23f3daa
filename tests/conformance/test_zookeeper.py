from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from kazoo.client import KazooClient

from calving.backend.interface import Backend, SinkIdentity
from calving.model.membership import Claim
from calving.model.offsets import TopicPartition
from calving.services.zookeeper import ZooKeeperServer
from calving.testing import BackendContract, Harness, member_claim
from calving_zookeeper.backend import ZooKeeperBackend
from calving_zookeeper.options import ZooKeeperOptions

pytestmark = pytest.mark.services


class ZooKeeperHarness(Harness):
    def __init__(self, server: ZooKeeperServer, name: str) -> None:
        self._server, self._root = server, f"/{name}"
        self._options = ZooKeeperOptions(hosts=server.hosts, root=self._root, session_ms=2000, timeout_ms=3000)

    def backend(self) -> Backend:
        return ZooKeeperBackend(SinkIdentity("sink", "group", "control"), self._options)

    def claim(self) -> Claim:
        return member_claim("group")

    def outsider(self) -> Claim:
        return member_claim("group", "", -1)

    def positions(self) -> Mapping[TopicPartition, int]:
        with self._client() as client:
            state = json.loads(client.get(f"{self._root}/control/group/state")[0])
        found = {tuple(field.rsplit(":", 1)): offset for field, offset in state["positions"].items()}
        return {TopicPartition(topic, int(partition)): offset for (topic, partition), offset in found.items()}

    def entries(self) -> Sequence[bytes]:
        found: list[bytes] = []
        base = f"{self._root}/control/group"
        with self._client() as client:
            for name in sorted(client.get_children(f"{base}/log")):
                raw = client.get(f"{base}/log/{name}")[0]
                (size,) = struct.unpack_from(">I", raw)
                header = json.loads(raw[4 : 4 + size])
                body = raw[4 + size :] + b"".join(client.get(f"{base}/blobs/{b}")[0] for b in header["blobs"])
                for length in header["sizes"]:
                    found.append(body[:length])
                    body = body[length:]
        return found

    def stop(self) -> None:
        self._server.kill()

    def start(self) -> None:
        self._server.start()

    def wipe(self) -> None:
        with self._client() as client:
            client.delete(self._root, recursive=True)

    def close(self) -> None:
        pass

    def _client(self) -> Any:
        return _Connected(self._server.hosts)


class _Connected:
    def __init__(self, hosts: str) -> None:
        self._client = KazooClient(hosts)

    def __enter__(self) -> KazooClient:
        self._client.start()
        return self._client

    def __exit__(self, *_: object) -> None:
        self._client.stop()
        self._client.close()


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
