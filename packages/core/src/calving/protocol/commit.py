"""The commit of one table (C6): load, leave out what is there, try once, look, and again until it settles.

The loop knows no catalog: a ``Target`` does. Whatever an attempt reports, the table itself is asked whether it landed,
because success, conflict and silence can each be wrong about that. An attempt lands only on the state that was looked
at, so a second coordinator, a late request or a replay finds the ledger moved and has nothing left to add.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from calving.errors import AlreadyHeldError, CommitRefused, CommitUncertain, SupersededError
from calving.model.events import Envelope
from calving.model.offsets import ControlOffsets, named
from calving.protocol.admission import Admitted, admit, twice
from calving.protocol.ledger import NOWHERE, LedgerKey, Reach

S = TypeVar("S", bound="State")


class State(Protocol):
    """A table as loaded."""

    @property
    def ancestry(self) -> Iterable[Mapping[str, str]]:
        """Snapshot summaries of the target branch, head first."""

    @property
    def properties(self) -> Mapping[str, str]: ...


class Target(Protocol[S]):
    """One branch of one table, as the loop needs it."""

    def load(self) -> S:
        """The table as it is now, patiently: raises only if it stays out of reach or cannot serve."""

    def attempt(self, state: S, admitted: Admitted) -> int:
        """Commit once, on exactly ``state``. Returns the snapshot id.

        :raises CommitRefused, CommitUncertain: ``landed`` finds its snapshot, if there is one.
        """

    def landed(self, state: S) -> int | None:
        """The id of an attempt's snapshot if ``state`` has it, of the last one that it has."""

    def moved(self, state: S) -> bool:
        """Whether ``state`` explains that the last attempt was refused: what it required is no longer so."""

    def discard(self) -> None:
        """Delete what the last attempt wrote. Only after a refusal that is explained, of one that did not land."""

    def pause(self, tries: int) -> None:
        """Wait before the next try."""


@dataclass(frozen=True, slots=True)
class Settled:
    """The table holds everything asked for, but for what ``admitted`` holds back. ``snapshot_id`` is None if it did so
    before; ``tries`` counts attempts.
    """

    snapshot_id: int | None
    admitted: Admitted
    tries: int


class CommitLoop(Generic[S]):
    """``CommitLoop(target, key, 20).settle(heard, read)``."""

    def __init__(self, target: Target[S], key: LedgerKey, max_tries: int, *, in_order: bool = False) -> None:
        """``in_order``: it is a mutation table."""
        self._target, self._key, self._max_tries, self._in_order = target, key, max_tries, in_order

    def settle(self, heard: Iterable[Envelope], read: ControlOffsets, reach: Reach = NOWHERE) -> Settled:
        """Bring everything ``heard`` into the table, exactly once, and its ledger to ``read`` and ``reach`` at least.

        :raises CommitRefused, CommitUncertain: it did not settle within the tries; nothing is lost, try again later.
        :raises AlreadyHeldError, SupersededError: an operator has to recover the sink.
        """
        target = self._target
        entries = list(heard)
        state = target.load()
        for tries in range(1, self._max_tries + 1):
            ledger = self._key.read(state.ancestry, state.properties)
            left_out = self._key.left_out(state.properties)
            admitted = admit(entries, read, reach, ledger, left_out, in_order=self._in_order)
            if not admitted:
                return Settled(None, admitted, tries - 1)
            if self._key.is_superseded(state.properties, reach):
                raise SupersededError(
                    "the sink was recovered after this coordinator had begun, or the recovery did not end: stop all"
                    " workers and run `calving recover FILE` to its end"
                )
            for tp, spans in twice(admitted, reach, ledger, left_out).items():
                raise AlreadyHeldError(
                    f"it holds offsets {spans[0].start} to {spans[-1].end} of {named(tp)} already:"
                    " the store of positions has lost what it had acknowledged;"
                    " stop all workers and run `calving recover FILE`"
                )
            try:
                return Settled(target.attempt(state, admitted), admitted, tries)
            except (CommitRefused, CommitUncertain) as error:
                state = target.load()
                snapshot_id = target.landed(state)
                if snapshot_id is not None:
                    return Settled(snapshot_id, admitted, tries)
                # A refusal may be wrong, and a replica that is behind may bear it out: it shows the table as it was
                # before. A table that has moved on shows whatever came right after that state.
                if isinstance(error, CommitRefused) and target.moved(state):
                    target.discard()
                if tries == self._max_tries:
                    raise
                target.pause(tries)
        raise AssertionError("unreachable")
