"""A sink that an operator stops: who hears it, and who repeats it."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Event

import pytest

from calving.backend import SinkIdentity
from calving.backend.memory import MemoryBackend, MemorySession, MemoryStore
from calving.errors import CommandFailedError, FencedError
from calving.model.events import TargetState
from calving.runtime import stopping
from calving.runtime.log_view import keep
from calving.runtime.stopping import Leaving, state_in, tell_state
from tests.runtime.test_coordinator_loop import loop

STOPPED, RUNNING = TargetState.STOPPED, TargetState.RUNNING


def session(store: MemoryStore) -> MemorySession:
    opened = MemoryBackend(SinkIdentity("sink", "group", "control"), store=store).open("operator")
    assert isinstance(opened, MemorySession)
    return opened


def run_cycles(store: MemoryStore, cycles: int) -> None:
    running = loop(store)
    while running.complete_cycles < cycles:
        running.step(0)


def test_a_sink_runs_until_somebody_stops_it() -> None:
    assert not state_in(session(MemoryStore())).stopped


@pytest.mark.parametrize("cycles", [0, 1, 5])
def test_every_coordinator_repeats_that_the_sink_is_stopped_until_it_is_resumed(cycles: int) -> None:
    store = MemoryStore()
    tell_state(session(store), STOPPED)
    for _ in range(3):
        run_cycles(store, cycles)
        assert state_in(session(store)).stopped
    tell_state(session(store), RUNNING)
    run_cycles(store, cycles)
    assert not state_in(session(store)).stopped


def test_a_stopped_sink_stays_stopped_after_a_rewind() -> None:
    store = MemoryStore()
    tell_state(session(store), STOPPED)
    state = state_in(session(store))
    session(store).follow(replay=True).rewind({})
    keep(state, session(store).follow(replay=True))
    assert state_in(session(store)).stopped


def test_a_state_is_not_told_if_coordinators_come_in_between_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def fenced(*_: object) -> None:
        raise FencedError("another coordinator has opened the control log")

    monkeypatch.setattr("calving.backend.memory.MemoryCursor.acknowledge", fenced)
    with pytest.raises(CommandFailedError, match="nothing has changed"):
        tell_state(session(MemoryStore()), STOPPED)
    assert stopping._TRIES > 1


@dataclass
class Committing:
    """A coordinator, as far as a worker that leaves looks at it."""

    idle: bool = True
    buffered: dict[str, int] = field(default_factory=dict)
    complete_cycles: int = 3
    trigger: Event = field(default_factory=Event)


def leaving() -> tuple[Leaving, list[float]]:
    now = [0.0]
    return Leaving(10.0, lambda: now[0]), now


def may_leave(found: Leaving, coordinator: Committing | None, *, leads: bool = True) -> bool:
    return found.may_leave(coordinator, leads=leads)  # type: ignore[arg-type]


def test_a_worker_that_does_not_lead_leaves_at_once() -> None:
    found, _ = leaving()
    assert may_leave(found, None, leads=False) and found.has_left


def test_the_leader_leaves_once_a_cycle_has_found_nothing_to_commit() -> None:
    found, _ = leaving()
    coordinator = Committing(buffered={"db.t": 1})
    assert not may_leave(found, None) and not may_leave(found, coordinator)
    assert coordinator.trigger.is_set()
    coordinator.buffered = {}
    assert not may_leave(found, coordinator)
    coordinator.complete_cycles += 1
    assert may_leave(found, coordinator)
    found.forget()
    assert not found.has_left and not may_leave(found, coordinator)


def test_the_leader_leaves_after_a_while_although_a_table_fails() -> None:
    found, now = leaving()
    coordinator = Committing(buffered={"db.t": 1})
    assert not may_leave(found, coordinator)
    now[0] = 10.1
    assert may_leave(found, coordinator)
