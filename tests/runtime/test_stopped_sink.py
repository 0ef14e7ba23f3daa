"""What an operator tells a sink by its status server, as its control log has it."""

from __future__ import annotations

from contextlib import closing

import pytest

from calving.backend.memory import MemoryBackend, MemoryStore
from calving.model.events import TargetState
from calving.runtime import components
from calving.runtime.stopping import StoppedSink, state_in
from calving.settings.load import parse

SINK = parse({"name": "s", "topics": "orders", "iceberg.tables": "db.orders", "kafka.bootstrap.servers": "localhost:1"})


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def backend(store: MemoryStore) -> MemoryBackend:
    return MemoryBackend(SINK.identity, store=store)


def worker(backend: MemoryBackend) -> StoppedSink:
    return StoppedSink(SINK, backend, components.source(SINK))


def state(backend: MemoryBackend) -> TargetState:
    with closing(backend.open("m")) as session:
        return state_in(session).state


def test_a_worker_that_has_not_heard_of_the_stop_resumes_the_sink(backend: MemoryBackend) -> None:
    worker(backend).tell(TargetState.STOPPED)
    assert state(backend) is TargetState.STOPPED
    worker(backend).tell(TargetState.RUNNING)
    assert state(backend) is TargetState.RUNNING


def test_the_leader_of_a_sink_that_runs_is_not_disturbed_by_resume(backend: MemoryBackend, store: MemoryStore) -> None:
    worker(backend).tell(TargetState.RUNNING)
    assert not any(store.log) and not store.coordinator_epoch
