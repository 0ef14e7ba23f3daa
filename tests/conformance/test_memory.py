from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import time_ns
from uuid import uuid4

import pytest

from calving.backend import Backend, SinkIdentity
from calving.backend.memory import MemoryBackend, MemoryStore
from calving.model.offsets import TopicPartition
from calving.model.sink import Claim
from calving.testing import BackendContract, Harness, member_claim
from calving.wire.codec import Message, encode


class MemoryHarness(Harness):
    survives_restart = False

    def __init__(self) -> None:
        self.wipe()

    def backend(self) -> Backend:
        return MemoryBackend(SinkIdentity("sink", "group", "control"), store=self._store)

    def claim(self) -> Claim:
        return member_claim("group")

    def outsider(self) -> Claim:
        return member_claim("group", "", -1)

    def positions(self) -> Mapping[TopicPartition, int]:
        return dict(self._store.positions)

    def entries(self) -> Sequence[bytes]:
        found = [entry[0] for shard in self._store.log for entry in shard if entry is not None]
        return [encode(Message(uuid4(), time_ns() // 1000, "group", event)) for event in found]

    def stop(self) -> None:
        raise NotImplementedError

    def start(self) -> None:
        raise NotImplementedError

    def wipe(self) -> None:
        self._store = MemoryStore(identity=str(uuid4()))

    def close(self) -> None:
        pass


class TestMemory(BackendContract):
    @pytest.fixture
    def harness(self) -> Harness:
        return MemoryHarness()
