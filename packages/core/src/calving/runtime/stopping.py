"""A sink that an operator stops: its workers leave the group, their processes stay, and its positions can be moved.

The state is an entry of the control log, so all workers of the sink hear it, and it outlives them.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from uuid import uuid4

from calving.backend.interface import Backend, Session
from calving.backend.sessions import read_to_end
from calving.errors import CommandFailedError, FencedError, OutcomeUnknownError
from calving.model.events import TargetState
from calving.model.offsets import SourceOffsets, TopicPartition
from calving.protocol.target_state import TargetStateInUse
from calving.runtime.leading import CoordinatorThread
from calving.settings.load import Sink
from calving.source.interface import Source

_TRIES = 8
_READ_SECONDS = 0.2


def state_in(session: Session) -> TargetStateInUse:
    """The state by the control log."""
    found = TargetStateInUse()
    with contextlib.closing(session.watch()) as cursor:
        for entry in read_to_end(cursor):
            found.hear(entry)
    return found


def tell_state(session: Session, state: TargetState) -> None:
    """Let all workers have this state, also those that start later. A coordinator steps down, and starts again later.

    :raises CommandFailedError: the sink's coordinator interfered again and again.
    """
    from calving.runtime.log_view import Replay  # most workers are never stopped

    for _ in range(_TRIES):
        cursor = session.follow(replay=True)
        # An attempt of unknown outcome is repeated, because the state may be told twice.
        with contextlib.closing(cursor), contextlib.suppress(FencedError, OutcomeUnknownError):
            Replay.of(cursor).complete(cursor, uuid4(), state)
            return
    raise CommandFailedError(f"nothing has changed: the sink's coordinator came in between {_TRIES} times; try again")


def stopped_text(name: str) -> str:
    """A sentence for whoever starts a stopped sink for a while."""
    return (
        f"the sink was stopped (PUT /connectors/{name}/stop), so it reads nothing: resume it (PUT"
        f" /connectors/{name}/resume, with iceberg.http.port and iceberg.http.token), and run this again"
    )


class Leaving:
    """Decides when a worker of a stopped sink leaves its group: the leader commits first what is published."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        """``seconds``: how long the leader tries."""
        self._seconds, self._clock = seconds, clock
        self.forget()

    def forget(self) -> None:
        """The sink runs again."""
        self.has_left = False
        self._begun_ms: int | None = None
        self._until: float | None = None
        self._since: int | None = None
        """The cycles that had ended when nothing was left to commit. One more must find the same (see ``CaughtUp``)."""

    def since_ms(self, *, stopped: bool) -> int | None:
        """Since when the worker reads nothing more, in milliseconds since the epoch: the first call. None if the sink
        runs: if an operator had stopped it, that was taken back before this worker had left, and is forgotten.
        """
        if not stopped:
            self.forget()
            return None
        self._begun_ms = self._begun_ms or time.time_ns() // 1_000_000
        return self._begun_ms

    def may_leave(self, coordinator: CoordinatorThread | None, *, leads: bool) -> bool:
        """Whether it leaves now. Call it often; it remembers that it has said so."""
        now = self._clock()
        self._until = now + self._seconds if self._until is None else self._until
        self.has_left = not leads or now > self._until or self._has_committed(coordinator)
        return self.has_left

    def _has_committed(self, coordinator: CoordinatorThread | None) -> bool:
        if coordinator is None or not coordinator.idle:
            return False
        if not coordinator.buffered:
            self._since = coordinator.complete_cycles if self._since is None else self._since
            if coordinator.complete_cycles > self._since:
                return True
        coordinator.trigger.set()
        return False


class StoppedSink:
    """What an operator does with the sink's state and its positions, from another thread than the worker's."""

    def __init__(self, sink: Sink, backend: Backend, topics: Source) -> None:
        self._sink, self._backend, self._topics = sink, backend, topics
        self._turn = threading.Lock()
        """A move takes a while. A sink that is resumed meanwhile would find a move that was interrupted."""

    def tell(self, state: TargetState) -> None:
        """Tell the state; that the sink runs only if it was stopped, by the control log: this worker may not have heard
        of it yet.

        :raises CalvingError: the state is not told.
        """
        with self._turn, contextlib.closing(self._backend.open(str(uuid4()))) as session:
            if state is not TargetState.RUNNING or state_in(session).stopped:
                tell_state(session, state)

    def stored(self) -> SourceOffsets:
        """The stored positions of all partitions.

        :raises CalvingError: the backend or the broker does not answer.
        """
        with contextlib.closing(self._backend.open(str(uuid4()))) as session:
            return session.committed(self._topics.partitions())

    def move(self, to: Mapping[TopicPartition, int | None] | None) -> list[str]:
        """Move positions as ``calving offsets`` does, or all to the beginnings; one sentence for each thing that it
        means. A partition without an offset goes to its beginning, like one that is new.

        :raises CalvingError: it cannot be done.
        """
        from calving.runtime.destination import Destination
        from calving.runtime.moving import move_positions

        with self._turn:
            destination = Destination("--to earliest", moves_all=True)
            if to is not None:
                begins = self._topics.bounds(self._topics.partitions()).begins
                destination = Destination.at({tp: begins.get(tp, 0) if at is None else at for tp, at in to.items()})
            return [*move_positions(self._sink, destination, dry_run=False, only_stopped=True)]

    def wait(self, member: str, is_over: Callable[[], bool], meanwhile: Callable[[], None]) -> TargetStateInUse:
        """Read the control log until an operator resumes the sink, or it ``is_over``; ``meanwhile`` is called several
        times a second. Returns the last state.

        :raises CalvingError: the log cannot be read.
        """
        with (
            contextlib.closing(self._backend.open(member)) as session,
            contextlib.closing(session.follow(replay=False)) as cursor,
        ):
            found = state_in(session)
            while found.stopped and not is_over():
                for entry in cursor.read(_READ_SECONDS):
                    found.hear(entry)
                meanwhile()
            return found
