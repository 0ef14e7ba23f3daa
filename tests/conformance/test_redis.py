from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import pytest
import redis

from calving.backend.interface import Backend, SinkIdentity
from calving.model.membership import Claim
from calving.model.offsets import TopicPartition
from calving.services.redis import RedisServer
from calving.testing import BackendContract, Harness, member_claim
from calving_redis.backend import RedisBackend
from calving_redis.options import RedisOptions

pytestmark = pytest.mark.services

KEYS = "calving:{control:group}:"


class RedisHarness(Harness):
    def __init__(self, folder: Path, settings: Mapping[str, str], **options: object) -> None:
        self._server = RedisServer(folder, settings)
        self.syncs_every_second = settings["appendfsync"] == "everysec"
        self._options = options
        self.start()

    def backend(self) -> Backend:
        settings = RedisOptions(url=self._server.url, timeout_ms=3000, lease_ms=1500, **self._options)
        return RedisBackend(SinkIdentity("sink", "group", "control"), settings)

    def claim(self) -> Claim:
        return member_claim("group")

    def outsider(self) -> Claim:
        return member_claim("group", "", -1)

    def positions(self) -> Mapping[TopicPartition, int]:
        found = cast("dict[bytes, bytes]", self._client.hgetall(f"{KEYS}positions"))
        return {
            TopicPartition(field.decode().rsplit(":", 1)[0], int(field.decode().rsplit(":", 1)[1])): int(offset)
            for field, offset in found.items()
        }

    def entries(self) -> Sequence[bytes]:
        log = cast("list[tuple[bytes, dict[bytes, bytes]]]", self._client.xrange(f"{KEYS}log"))
        return [fields[b"e"] for _, fields in log]

    def stop(self) -> None:
        self._server.kill()

    def start(self) -> None:
        self._server.start()
        self._client = redis.Redis(port=self._server.port, protocol=2)
        while True:
            try:
                self._client.ping()
            except redis.exceptions.BusyLoadingError:
                continue
            break

    def wipe(self) -> None:
        self._client.flushall()

    def close(self) -> None:
        self._client.close()
        self._server.stop()


class TestRedis(BackendContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> Harness:
        return RedisHarness(tmp_path, {"appendfsync": "always"})


class TestRedisThatSyncsEverySecond(BackendContract):
    """A publication waits for the disk itself."""

    @pytest.fixture
    def harness(self, tmp_path: Path) -> Harness:
        return RedisHarness(tmp_path, {"appendfsync": "everysec"})
