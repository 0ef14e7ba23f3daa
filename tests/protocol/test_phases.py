"""The phases of worker and coordinator are those of the tables, and of the diagrams."""

from __future__ import annotations

import re

import pytest

from calving.errors import ProtocolError
from calving.protocol import phases
from calving.protocol.phases import BATCH, COMMIT, CYCLE, Batch, Commit, CommitStep, Cycle, Phases, Turn, after

Move = tuple[str, str, str]


def drawn() -> set[Move]:
    """All arrows of the diagram; what follows an arrow may begin the next one."""
    return set(re.findall(r"([A-Z]+) --([a-z ]+)--> (?=([A-Z]+))", phases.__doc__ or ""))


def in_the_table() -> set[Move]:
    batch = {(a.name, turn.value, b.name) for a, turns in BATCH.items() for turn, b in turns.items()}
    cycle = {(a.name, turn.value, b.name) for a, turns in CYCLE.items() for turn, b in turns.items()}
    commit = {(a.name, step.value, b.name) for a, steps in COMMIT.items() for step, b in steps.items()}
    return batch | cycle | commit


def taken(*turns: Turn) -> tuple[Batch, Cycle]:
    found = Phases()
    for turn in turns:
        found.take(turn)
    return found.batch, found.cycle


def test_the_diagram_shows_every_move_of_the_table_and_no_other() -> None:
    assert drawn() == {(before, turn, behind) for before, turn, behind in in_the_table() if before != behind}


def test_every_phase_has_its_row_and_every_turn_moves_something() -> None:
    assert (set(BATCH), set(CYCLE), set(COMMIT)) == (set(Batch), set(Cycle), set(Commit))
    assert {turn for _, turn, _ in in_the_table()} == {turn.value for turn in (*Turn, *CommitStep)}


@pytest.mark.parametrize(
    "turns",
    [
        (Turn.BATCH_ENDS,),
        (Turn.BATCH_STARTS, Turn.BATCH_STARTS),
        (Turn.BATCH_STARTS, Turn.BATCH_LOST, Turn.BATCH_ENDS),
        (Turn.BATCH_STARTS, Turn.VOID_ENDS),
        (Turn.BATCH_STARTS, Turn.CYCLE_OPENS),
        (Turn.SWEEP,),
        (Turn.STOP, Turn.SWEEP),
        (Turn.STOP, Turn.BATCH_STARTS),
    ],
)
def test_a_turn_that_a_phase_does_not_have_is_a_bug(turns: tuple[Turn, ...]) -> None:
    with pytest.raises(ProtocolError, match=turns[-1].name):
        taken(*turns)


@pytest.mark.parametrize("phase", Commit)
@pytest.mark.parametrize("step", CommitStep)
def test_each_phase_of_a_coordinator_has_one_step(phase: Commit, step: CommitStep) -> None:
    if [*Commit].index(phase) == [*CommitStep].index(step):
        assert after(COMMIT, phase, step) is not phase
    else:
        with pytest.raises(ProtocolError, match=f"{step.name} in phase Commit.{phase.name}"):
            after(COMMIT, phase, step)


def test_a_turn_that_is_refused_moves_neither_machine() -> None:
    found = Phases()
    found.take(Turn.STOP)
    with pytest.raises(ProtocolError):
        found.take(Turn.BATCH_STARTS)  # the batch could, the cycle cannot
    assert (found.batch, found.cycle) == (Batch.IDLE, Cycle.STOPPED)


def test_a_batch_that_runs_when_a_cycle_opens_serves_as_its_batch_unless_it_is_void() -> None:
    begun = (Turn.BATCH_STARTS, Turn.CYCLE_OPENS_MEANWHILE)
    assert taken(*begun, Turn.BATCH_ENDS) == (Batch.IDLE, Cycle.SWEPT)
    assert taken(*begun, Turn.BATCH_LOST, Turn.VOID_ENDS) == (Batch.IDLE, Cycle.OPEN)


def test_a_worker_that_has_stopped_lets_its_batch_end() -> None:
    assert taken(Turn.BATCH_STARTS, Turn.STOP, Turn.BATCH_ENDS) == (Batch.IDLE, Cycle.STOPPED)
