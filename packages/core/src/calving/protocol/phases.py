"""The phases of both machines as tables. All moves of a phase are in this module.

A worker is two machines side by side: one for its batch and one for its answer. Each turn, an input such as "a batch
starts", goes to both machines. A machine ignores a turn that is nowhere in its table. A turn that is in its table, but
not for the present phase, is an error. A phase does not include the partitions that a cycle still waits for.

    IDLE --a batch starts--> RUNNING --it ends--> IDLE
    RUNNING --what it reads is lost--> VOID --a void one ends--> IDLE

    CLOSED --a cycle opens--> OPEN --what is left is read--> SWEPT --the cycle closes--> CLOSED
    CLOSED --a cycle opens while a batch runs--> SWEPT, OPEN --a cycle opens while a batch runs--> SWEPT
    SWEPT --a void one ends--> OPEN, SWEPT --a cycle opens--> OPEN, OPEN --the cycle closes--> CLOSED
    CLOSED --the worker stops--> STOPPED, OPEN --the worker stops--> STOPPED, SWEPT --the worker stops--> STOPPED

A coordinator is one machine. While it is WAITING, it repeats StartCommit until all partitions are answered.

    RESTING --the interval has passed--> WAITING --all have answered or it is too late--> COMMITTING
    COMMITTING --all tables are settled--> RESTING
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TypeVar

from calving.errors import ProtocolError


class Batch(enum.Enum):
    """The state of the batch."""

    IDLE = enum.auto()
    """No batch runs."""
    RUNNING = enum.auto()
    VOID = enum.auto()
    """A batch runs whose results will be dropped: one of its partitions was revoked, even if it has come back."""


class Cycle(enum.Enum):
    """The state of the answer to the coordinator."""

    CLOSED = enum.auto()
    """No answer is owed."""
    OPEN = enum.auto()
    """The worker first reads the rest of its partitions, in at most one batch."""
    SWEPT = enum.auto()
    """This batch runs or has ended, or there was nothing to read. The answer follows as soon as no batch runs."""
    STOPPED = enum.auto()
    """The worker stops: no batch starts and no answer follows any more."""


class Turn(enum.Enum):
    """The inputs of both machines."""

    BATCH_STARTS = "a batch starts"
    BATCH_LOST = "what it reads is lost"
    BATCH_ENDS = "it ends"
    VOID_ENDS = "a void one ends"
    CYCLE_OPENS = "a cycle opens"
    CYCLE_OPENS_MEANWHILE = "a cycle opens while a batch runs"
    SWEEP = "what is left is read"
    CYCLE_CLOSES = "the cycle closes"
    STOP = "the worker stops"


BATCH: Mapping[Batch, Mapping[Turn, Batch]] = {
    Batch.IDLE: {
        Turn.BATCH_STARTS: Batch.RUNNING,
        Turn.CYCLE_OPENS: Batch.IDLE,
    },
    Batch.RUNNING: {
        Turn.BATCH_LOST: Batch.VOID,
        Turn.BATCH_ENDS: Batch.IDLE,
        Turn.CYCLE_OPENS_MEANWHILE: Batch.RUNNING,
    },
    Batch.VOID: {
        Turn.BATCH_LOST: Batch.VOID,
        Turn.VOID_ENDS: Batch.IDLE,
        Turn.CYCLE_OPENS_MEANWHILE: Batch.VOID,
    },
}

CYCLE: Mapping[Cycle, Mapping[Turn, Cycle]] = {
    Cycle.CLOSED: {
        Turn.BATCH_STARTS: Cycle.CLOSED,
        Turn.VOID_ENDS: Cycle.CLOSED,
        Turn.CYCLE_OPENS: Cycle.OPEN,
        # A batch that runs already counts as this cycle's batch: waiting for a second batch would make every answer
        # late.
        Turn.CYCLE_OPENS_MEANWHILE: Cycle.SWEPT,
        Turn.CYCLE_CLOSES: Cycle.CLOSED,
        Turn.STOP: Cycle.STOPPED,
    },
    Cycle.OPEN: {
        Turn.BATCH_STARTS: Cycle.OPEN,
        Turn.VOID_ENDS: Cycle.OPEN,
        Turn.CYCLE_OPENS: Cycle.OPEN,
        Turn.CYCLE_OPENS_MEANWHILE: Cycle.SWEPT,
        Turn.SWEEP: Cycle.SWEPT,
        Turn.CYCLE_CLOSES: Cycle.CLOSED,
        Turn.STOP: Cycle.STOPPED,
    },
    Cycle.SWEPT: {
        Turn.BATCH_STARTS: Cycle.SWEPT,
        Turn.VOID_ENDS: Cycle.OPEN,
        Turn.CYCLE_OPENS: Cycle.OPEN,
        Turn.CYCLE_OPENS_MEANWHILE: Cycle.SWEPT,
        Turn.CYCLE_CLOSES: Cycle.CLOSED,
        Turn.STOP: Cycle.STOPPED,
    },
    Cycle.STOPPED: {
        Turn.VOID_ENDS: Cycle.STOPPED,
        Turn.CYCLE_OPENS: Cycle.STOPPED,
        Turn.CYCLE_OPENS_MEANWHILE: Cycle.STOPPED,
        Turn.CYCLE_CLOSES: Cycle.STOPPED,
        Turn.STOP: Cycle.STOPPED,
    },
}


class Commit(enum.Enum):
    """The state of the coordinator's cycle."""

    RESTING = enum.auto()
    """The next cycle has not begun."""
    WAITING = enum.auto()
    """Answers of workers are missing."""
    COMMITTING = enum.auto()
    """The tables of this cycle are being committed."""


class CommitStep(enum.Enum):
    """The inputs of the coordinator's machine."""

    CYCLE_BEGINS = "the interval has passed"
    COMMIT_BEGINS = "all have answered or it is too late"
    COMMIT_ENDS = "all tables are settled"


COMMIT: Mapping[Commit, Mapping[CommitStep, Commit]] = {
    Commit.RESTING: {CommitStep.CYCLE_BEGINS: Commit.WAITING},
    Commit.WAITING: {CommitStep.COMMIT_BEGINS: Commit.COMMITTING},
    Commit.COMMITTING: {CommitStep.COMMIT_ENDS: Commit.RESTING},
}

P = TypeVar("P", bound=enum.Enum)
T = TypeVar("T", bound=enum.Enum)


class Phases:
    """The present phases of both machines of a worker. Only ``take`` changes them."""

    def __init__(self) -> None:
        self._batch, self._cycle = Batch.IDLE, Cycle.CLOSED

    @property
    def batch(self) -> Batch:
        """The phase of the machine for the batch."""
        return self._batch

    @property
    def cycle(self) -> Cycle:
        """The phase of the machine for the answer."""
        return self._cycle

    @property
    def answering(self) -> bool:
        """Whether the coordinator waits for answers."""
        return self._cycle in (Cycle.OPEN, Cycle.SWEPT)

    def take(self, turn: Turn) -> None:
        """Move both machines as their tables say.

        :raises ProtocolError: the present phase of a machine does not have this turn; neither machine has moved.
        """
        self._batch, self._cycle = after(BATCH, self._batch, turn), after(CYCLE, self._cycle, turn)


def after(table: Mapping[P, Mapping[T, P]], phase: P, turn: T) -> P:
    """The phase that ``turn`` leads to; the same one if this machine knows no such turn.

    :raises ProtocolError: the machine knows the turn, but not in this phase.
    """
    if turn in table[phase]:
        return table[phase][turn]
    if any(turn in turns for turns in table.values()):
        raise ProtocolError(f"{turn.name} in phase {type(phase).__name__}.{phase.name}")
    return phase
