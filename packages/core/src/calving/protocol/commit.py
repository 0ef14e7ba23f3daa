"""The commit of one table (C6): load it, leave out the files that it holds, attempt once, check, repeat until settled.

The loop calls no catalog; a ``CommitTarget`` does. After each failed attempt the loop loads the table to see whether
the commit landed: a catalog may report a conflict or a timeout although the commit succeeded. An attempt can land only
on the state that was loaded. So a second coordinator, a late request or a replay finds a newer ledger, and has nothing
left to add.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from calving.errors import AlreadyHeldError, CommitRefusedError, CommitUncertainError, SupersededError
from calving.model.events import Envelope
from calving.model.offsets import ControlOffsets, named
from calving.protocol.admission import Admitted, admit, twice
from calving.protocol.ledger import NOWHERE, LedgerKey, SourceProgress
from calving.protocol.order import disordered
from calving.protocol.rollback import Line

S = TypeVar("S", bound="State")


class State(Protocol):
    """A table as loaded."""

    @property
    def line(self) -> Line:
        """The snapshots of the target branch."""

    @property
    def properties(self) -> Mapping[str, str]:
        """The table properties."""


class CommitTarget(Protocol[S]):
    """One branch of one table: the operations that the loop needs."""

    def load(self) -> S:
        """Load the table, with retries.

        :raises TableTroubleError, WentBackError: the table cannot be loaded or committed now; its files stay buffered.
        """

    def attempt(self, state: S, admitted: Admitted) -> int:
        """Commit once, on exactly ``state``. Returns the snapshot id.

        :raises CommitRefusedError, CommitUncertainError: call ``landed`` to find out whether the attempt made a
            snapshot.
        """

    def landed(self, state: S) -> int | None:
        """The id of the newest snapshot in ``state`` that one of the attempts made; None if there is none."""

    def moved(self, state: S) -> bool:
        """Whether ``state`` explains the refusal of the last attempt: one of the attempt's requirements no longer
        holds.
        """

    def discard(self) -> None:
        """Delete the files that the last attempt wrote. Call it only if the attempt was refused, ``moved`` and not
        ``landed``.
        """

    def pause(self, tries: int) -> None:
        """Wait before the next try."""


@dataclass(frozen=True, slots=True)
class Settled:
    """The table holds all requested files, except the entries that ``admitted`` holds back. ``snapshot_id`` is None if
    the table held the files before; ``tries`` counts attempts.
    """

    snapshot_id: int | None
    admitted: Admitted
    tries: int


class CommitLoop(Generic[S]):
    """``CommitLoop(target, key, 20).settle(heard, read)``."""

    def __init__(
        self,
        target: CommitTarget[S],
        key: LedgerKey,
        max_tries: int,
        *,
        in_order: bool = False,
        deciding: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """``in_order``: true for a mutation table. ``deciding``: entered while the loop decides which files are new."""
        self._target, self._key, self._max_tries, self._in_order = target, key, max_tries, in_order
        self._deciding = deciding

    def settle(self, heard: Iterable[Envelope], read: ControlOffsets, progress: SourceProgress = NOWHERE) -> Settled:
        """Commit the files of all ``heard`` entries exactly once, and advance the ledger at least to ``read`` and
        ``progress``.

        :raises CommitRefusedError, CommitUncertainError: not settled within ``max_tries``; nothing is lost, try again
            next cycle.
        :raises AlreadyHeldError, SupersededError: an operator has to recover the sink; do not commit these files.
        """
        target = self._target
        entries = list(heard)
        state = target.load()
        for tries in range(1, self._max_tries + 1):
            with self._deciding():
                ledger = self._key.read(state.line, state.properties)
                left_out = self._key.left_out(state.properties)
                admitted = admit(entries, read, progress, ledger, left_out, in_order=self._in_order)
            if not admitted:
                return Settled(None, admitted, tries - 1)
            if self._key.is_superseded(state.properties, progress):
                raise SupersededError(
                    "the sink was recovered after this coordinator had begun, or the recovery did not end: stop all"
                    " workers and run `calving recover FILE` to its end"
                )
            for tp, spans in twice(admitted, progress, ledger, left_out).items():
                raise AlreadyHeldError(
                    f"it holds offsets {spans[0].start} to {spans[-1].end} of {named(tp)} already:"
                    " the store of positions has lost acknowledged writes;"
                    " stop all workers and run `calving recover FILE`"
                )
            for tp, span in disordered(admitted.publications, progress).items() if self._in_order else ():
                raise AlreadyHeldError(
                    f"changes of {named(tp)} from offset {span.start} on were read after later ones: its position has"
                    " gone back; stop all workers and run `calving recover FILE`"
                )
            try:
                return Settled(target.attempt(state, admitted), admitted, tries)
            except (CommitRefusedError, CommitUncertainError) as error:
                state = target.load()
                snapshot_id = target.landed(state)
                if snapshot_id is not None:
                    return Settled(snapshot_id, admitted, tries)
                # A refusal may be wrong, and a stale replica may seem to confirm the refusal by showing the state
                # before the attempt. A table that has really moved on shows a snapshot after that state.
                if isinstance(error, CommitRefusedError) and target.moved(state):
                    target.discard()
                if tries == self._max_tries:
                    raise
                target.pause(tries)
        raise AssertionError("unreachable")
