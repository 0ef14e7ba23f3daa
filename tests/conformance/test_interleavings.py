"""Random interleavings of sessions, on every backend that needs no Kafka, against the memory backend as the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from calving.backend import Backend, Cursor, Session, SinkIdentity
from calving.backend.memory import MemoryBackend, MemoryStore
from calving.errors import FencedError
from calving.model.events import CommitComplete, DataComplete, Event, PartitionProgress, Publication, StartCommit
from calving.model.offsets import Advance, Span, TopicPartition
from calving.services.stores import RedisServer, ZooKeeperServer
from calving.testing import member_claim
from calving_redis.backend import RedisBackend
from calving_redis.options import RedisOptions
from calving_zookeeper.backend import ZooKeeperBackend
from calving_zookeeper.options import ZooKeeperOptions

pytestmark = pytest.mark.services

CLAIM = member_claim("group")
TPS = [TopicPartition("t", p) for p in range(2)]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(0, 2), st.integers(0, 1), st.integers(0, 3), st.integers(1, 3)),
        st.tuples(st.just("follow"), st.integers(0, 1)),
        st.tuples(st.just("read"), st.integers(0, 1)),
        st.tuples(st.just("acknowledge"), st.integers(0, 1), st.booleans()),
        st.tuples(st.just("reopen"), st.integers(0, 2)),
    ),
    min_size=4,
    max_size=25,
)
Make = Callable[[], Backend]


class Side:
    """One backend, driven step by step. What it answers must not depend on which it is."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        backend.provision()
        self._sessions: list[Session] = [backend.open(str(uuid4())) for _ in range(3)]
        self._followers: dict[int, Session] = {}
        self._cursors: dict[int, Cursor] = {}
        self._seen: dict[int, dict[int, int]] = {}
        self._order: dict[UUID, int] = {}

    def step(self, step: tuple[Any, ...], ids: Iterator[UUID]) -> object:
        match step:
            case ("publish", session, partition, start, length):
                return self._publish(session, TPS[partition], start, length, next(ids))
            case ("follow", which):
                if which in self._cursors:
                    self._cursors.pop(which).close()
                    self._followers.pop(which).close()
                self._followers[which] = self._backend.open(str(uuid4()))
                self._cursors[which] = self._followers[which].follow(replay=True)
                self._seen[which] = {}
            case ("read", which) if which in self._cursors:
                return self._read(which)
            case ("acknowledge", which, saves) if which in self._cursors:
                event: Event = CommitComplete(next(ids)) if saves else StartCommit(next(ids))
                try:
                    self._cursors[which].acknowledge(self._seen[which] if saves else {}, [event])
                except FencedError:
                    return "fenced"
            case ("reopen", which):
                self._sessions[which].close()
                self._sessions[which] = self._backend.open(str(uuid4()))
        return dict(self._sessions[0].committed(TPS))

    def _publish(self, session: int, tp: TopicPartition, start: int, length: int, commit: UUID) -> object:
        event = DataComplete(commit, (PartitionProgress(tp, start + length),))
        advances = {tp: Advance(start or None, start + length)}
        try:
            self._sessions[session].publish(
                Publication((event,), advances, {tp: (Span(start, start + length),)}), CLAIM
            )
        except FencedError:
            return "fenced"
        return "written"

    def _read(self, which: int) -> list[Event]:
        """All that is there."""
        found: list[Event] = []
        quiet = 0
        while quiet < 2:
            entries = self._cursors[which].read(0.1)
            quiet = 0 if entries else quiet + 1
            for entry in entries:
                self._seen[which][entry.partition] = entry.offset + 1
                found.append(entry.event)
        return found

    def close(self) -> None:
        parts: list[Cursor | Session] = [*self._cursors.values(), *self._followers.values(), *self._sessions]
        for part in parts:
            part.close()


def memory() -> Backend:
    return MemoryBackend(SinkIdentity("sink", "group", "control"), store=MemoryStore())


@pytest.fixture(scope="module")
def redis_backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Make]:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield lambda: RedisBackend(SinkIdentity("sink", "group", str(uuid4())), RedisOptions(url=server.url))
    server.stop()


@pytest.fixture(scope="module")
def zookeeper_backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Make]:
    server = ZooKeeperServer(Path(tmp_path_factory.mktemp("zookeeper")))
    server.start()
    # A connection may take a third of a session; the default is short for a busy machine.
    options = ZooKeeperOptions(hosts=server.hosts, session_ms=30_000)
    yield lambda: ZooKeeperBackend(SinkIdentity("sink", "group", str(uuid4())), options)
    server.stop()


def compare(make: Make, steps: list[tuple[Any, ...]]) -> None:
    model, real = Side(memory()), Side(make())
    ids = [uuid4() for _ in steps]
    mine, theirs = iter(ids), iter(ids)
    try:
        for step in steps:
            assert real.step(step, theirs) == model.step(step, mine), step
    finally:
        model.close()
        real.close()


explored = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@explored
@given(steps=STEPS)
def test_redis_answers_as_the_model_does(redis_backend: Make, steps: list[tuple[Any, ...]]) -> None:
    compare(redis_backend, steps)


@explored
@given(steps=STEPS)
def test_zookeeper_answers_as_the_model_does(zookeeper_backend: Make, steps: list[tuple[Any, ...]]) -> None:
    compare(zookeeper_backend, steps)
