"""The state of tables, which every worker derives from the control log. The code is pure: time is an argument."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from uuid import UUID

from calving.model.events import (
    CommitComplete,
    CommitToTable,
    DataComplete,
    DataWritten,
    Envelope,
    Leader,
    StartCommit,
    WorkerEnd,
)
from calving.model.offsets import Coverage
from calving.protocol.held_back import OldestPublications, settled
from calving.protocol.target_state import TargetStateInUse
from calving.status.values import LogStatus, TableStatus


@dataclass(frozen=True, slots=True)
class _Publication:
    number: int
    files: int
    at: float
    spans: Coverage


@dataclass(frozen=True, slots=True)
class _Commit:
    at: float
    snapshot_id: int | None
    valid_through_us: int | None


class TableStates:
    """The state of tables from the control log. It lives as long as the process, also if a loop restarts: after missed
    entries, the next CommitComplete makes the state complete again.
    """

    def __init__(self) -> None:
        self.waiting = OldestPublications()
        self.leader: Leader | None = None
        """The leader that the last event of a coordinator names, if it names one."""
        self.target = TargetStateInUse()
        """The state that an operator has asked for."""
        self.end: WorkerEnd | None = None
        """The last worker that has ended with an error, until a commit cycle ends."""
        self.settled: Coverage = {}
        """Source offsets whose records are committed to every table to which they are routed."""
        self._buffered: dict[str, deque[_Publication]] = {}
        self._commits: dict[str, _Commit] = {}
        self._number = 0
        self._open: UUID | None = None
        self._answered = 0
        """The last publication among the open cycle's answers. The cycle's commits hold everything up to it."""
        self._cycle_at: float | None = None
        self._had_all_answers = False
        self._valid_through_us: int | None = None

    def hear(self, envelope: Envelope, now: float) -> None:
        """Take in an entry of the control log."""
        self.waiting.hear(envelope)
        self.target.hear(envelope)
        if isinstance(envelope.event, StartCommit | CommitComplete):
            self.leader = envelope.attached.leader
        self.end = envelope.end or self.end
        match envelope.event:
            case StartCommit(commit_id):
                self._open = commit_id
            case DataWritten(table=table, data_files=data, delete_files=deletes):
                self._number += 1
                publication = _Publication(self._number, len(data) + len(deletes), now, envelope.spans)
                self._buffered.setdefault(str(table), deque()).append(publication)
            case DataComplete(commit_id) if commit_id == self._open:
                self._answered = self._number
            case CommitToTable(_, table, snapshot_id, valid_through):
                before = self._commits.get(str(table))
                known = before.valid_through_us if before is not None else None
                self._commits[str(table)] = _Commit(now, snapshot_id, valid_through or known)
                self._let_go(str(table), self._answered)
            case CommitComplete(_, valid_through):
                self.end = None
                self._cycle_at, self._valid_through_us = now, valid_through or self._valid_through_us
                self._had_all_answers = self._had_all_answers or not envelope.attached.unanswered
                self._settle(envelope.attached.settled)

    def status(self, wall: float) -> LogStatus:
        """The present status. ``wall``: the difference between seconds since the epoch and the clock of ``hear``."""
        cycles = {".".join(table): count for table, count in self.waiting.cycles.items()}
        return LogStatus(
            {
                name: self._table(name, cycles.get(name, 0), wall)
                for name in sorted(self._commits.keys() | self._buffered.keys())
            },
            None if self._cycle_at is None else self._cycle_at + wall,
            self._valid_through_us,
            self.leader,
            self.end,
            self._had_all_answers,
        )

    def _table(self, name: str, cycles: int, wall: float) -> TableStatus:
        commit, buffered = self._commits.get(name), self._buffered.get(name, ())
        return TableStatus(
            None if commit is None else commit.at + wall,
            None if commit is None else commit.snapshot_id,
            None if commit is None else commit.valid_through_us,
            sum(each.files for each in buffered),
            min((each.at + wall for each in buffered), default=None),
            cycles,
        )

    def _let_go(self, table: str, number: int) -> None:
        buffered = self._buffered.get(table, deque())
        while buffered and buffered[0].number <= number:
            buffered.popleft()
        if not buffered:
            self._buffered.pop(table, None)

    def _settle(self, spans: Coverage) -> None:
        if not spans:
            return
        self.settled = spans
        for table, buffered in list(self._buffered.items()):
            left = deque(each for each in buffered if not each.spans or not settled(each.spans, spans))
            self._buffered[table] = left
            if not left:
                del self._buffered[table]
