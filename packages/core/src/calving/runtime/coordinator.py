"""The coordinator's driver: one step decides and acts. Every error leaves through ``step`` and ends the loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from calving.backend.interface import Cursor
from calving.model.events import CommitComplete, Event, TableId
from calving.model.offsets import TopicPartition
from calving.protocol.coordinator import Committed, Coordinator, Failed, Pace, Phase
from calving.protocol.effects import Acknowledge, Announce, CommitTables, CoordinatorEffect
from calving.runtime.worker import Clock


class Committer(Protocol):
    """Commits tables, isolated from each other."""

    def commit(self, request: CommitTables) -> Iterable[tuple[TableId, Committed | Failed]]:
        """Every table of ``request``, each as it settles."""


@dataclass(frozen=True, slots=True)
class Cycle:
    """A complete commit cycle. ``seconds`` count from its StartCommit."""

    commit_id: UUID
    tables: int
    failed: int
    seconds: float
    valid_through_us: int | None


class CoordinatorLoop:
    def __init__(
        self,
        cursor: Cursor,
        committer: Committer,
        partitions: Callable[[], frozenset[TopicPartition]],
        pace: Pace,
        clock: Clock,
        fresh_id: Callable[[], UUID],
    ) -> None:
        self.machine = Coordinator(pace, cursor.log.start, clock())
        self._cursor, self._committer, self._partitions = cursor, committer, partitions
        self._clock, self._fresh_id = clock, fresh_id
        self.complete_cycles = 0
        self.last: Cycle | None = None
        self._tables = self._failed = 0

    def hurry(self) -> None:
        """Do not wait for the interval before the next cycle."""
        if self.idle:
            self.machine.hurry(self._clock())

    def step(self, timeout: float) -> None:
        """Start or end a cycle if one is due, then listen for up to ``timeout`` seconds."""
        self._act(self.machine.tick(self._clock(), self._fresh_id(), self._partitions()))
        for envelope in self._cursor.read(timeout):
            self._act(self.machine.heard(envelope))

    @property
    def idle(self) -> bool:
        return self.machine.phase is Phase.IDLE

    def _act(self, effects: list[CoordinatorEffect]) -> None:
        for effect in effects:
            match effect:
                case Announce(events):
                    self._cursor.acknowledge({}, events)
                case Acknowledge(position, events):
                    self._cursor.acknowledge(position, events)
                    self._note(events)
                case CommitTables():
                    for table, outcome in self._committer.commit(effect):
                        self._tables += isinstance(outcome, Committed)
                        self._failed += isinstance(outcome, Failed)
                        self._act(self.machine.settled(table, outcome))

    def _note(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, CommitComplete):
                self.complete_cycles += 1
                seconds = self._clock() - self.machine.started
                self.last = Cycle(event.commit_id, self._tables, self._failed, seconds, event.valid_through_us)
                self._tables = self._failed = 0
