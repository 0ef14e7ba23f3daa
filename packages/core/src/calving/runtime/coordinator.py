"""The coordinator's driver: one step decides and acts. ``step`` raises every error, which ends the loop. While the
process leads, another thread looks at the tables (R2a).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Protocol
from uuid import UUID

from calving.backend.interface import Cursor
from calving.errors import UnavailableError, UnexpectedError
from calving.model.events import (
    NOTHING_ATTACHED,
    Attachment,
    CommitComplete,
    Event,
    Leader,
    TableId,
)
from calving.model.forms import NEWEST, StoredForm
from calving.model.marks import TableMark
from calving.model.members import Member
from calving.model.offsets import Coverage, Topic, TopicPartition, intersection
from calving.model.text import listed
from calving.protocol.coordinator import Committed, Coordinator, Failed
from calving.protocol.effects import Acknowledge, Announce, CommitTables, CoordinatorEffect
from calving.protocol.forms import FormInUse
from calving.protocol.members import Members
from calving.protocol.phases import Commit
from calving.protocol.target_state import TargetStateInUse
from calving.runtime.worker import Clock
from calving.settings.deciding import deciding_keys
from calving.status.cycle_times import CycleTimes
from calving.status.values import CommitCycle

log = logging.getLogger(__name__)

_LAGS = 10
"""Commit cycles for which an appending leader keeps the order of files at most: where many workers write, there is
always something that is not read yet, and a gap may last.
"""
_DEAF_SECONDS = 30.0
_DEAF_READS = 20
"""A coordinator waits so many seconds and so many reads for its own events. Reads count because a long commit is no
silence.
"""


class Committer(Protocol):
    """Commits tables, each isolated from the others."""

    @property
    def seen(self) -> Mapping[TableId, TableMark]:
        """The marks of the tables that may hold records of the sink, as they were when this committer was made."""

    def commit(self, request: CommitTables) -> Iterable[tuple[TableId, Committed | Failed]]:
        """Commit every table of ``request``; yields each outcome when it is known. A table without entries is only
        loaded and compared with its mark.
        """


class CoordinatorLoop:
    def __init__(
        self,
        cursor: Cursor,
        committer: Committer,
        partitions: Callable[[], frozenset[TopicPartition]],
        machine: Coordinator,
        clock: Clock,
        fresh_id: Callable[[], UUID],
        unknown: Callable[[Collection[Topic]], Collection[Topic]],
        leader: Leader | None = None,
        newest: StoredForm = NEWEST,
        own: Member | None = None,
        times: CycleTimes | None = None,
    ) -> None:
        """``machine``: a new one, which decides what the loop does. ``unknown`` returns the topics that the broker does
        not have. ``leader``: this process, as its events name it. ``newest``: the newest form that it knows.
        ``own``: the worker of this process, as it describes itself with all its settings. ``times`` outlives the loop.
        """
        self.machine = machine
        self._cursor, self._committer, self._partitions = cursor, committer, partitions
        self._clock, self._fresh_id, self._unknown = clock, fresh_id, unknown
        self._leader, self._form, self._target = leader, FormInUse(newest), TargetStateInUse()
        self._times = times or CycleTimes(clock, lambda steps: None)
        self.complete_cycles = 0
        self.last: CommitCycle | None = None
        self._tables = self._failed = 0
        self._began: float | None = None
        """When the running commit of the tables began."""
        self._unheard_since: float | None = None
        self._silent_reads = 0
        self._asked = float("-inf")
        """When a worker last asked for a cycle."""
        self._lagging = 0
        """Commit cycles in a row in which an older entry may have been unread."""
        self._unheard = 0
        """How many entries have been read after the one in work."""
        self._members, self._own = Members(), own
        self._expected: frozenset[TopicPartition] = frozenset()
        """The partitions whose answers the open cycle waits for."""
        self.unread: Coverage = {}
        """Offsets that the log did not show as read at the end of two cycles. What one cycle lacks may be in an entry
        of another partition of the log.
        """
        self._passed_over: Coverage = {}

    def trigger(self) -> None:
        """Start the next cycle now instead of after the interval."""
        if self.idle:
            self.machine.pace.trigger(self._clock())

    def step(self, timeout: float) -> None:
        """Start or end a cycle if one is due, then read the log for up to ``timeout`` seconds, or until a cycle is due.

        :raises UnexpectedError: the log delivers no entries, not even this coordinator's own.
        :raises NewerVersionError: workers of a later version have written what this one would misread.
        """
        self._expected = self._partitions()
        before, due = self.machine.commit_id, max(self.machine.pace.due, self._asked)
        effects = self.machine.tick(self._clock(), self._fresh_id(), self._expected)
        if self.machine.commit_id != before:
            self._times.begins(self.machine.commit_id, due)
        self._act(effects)
        if self.idle:
            timeout = max(0.0, min(timeout, self.machine.pace.due - self._clock()))
            self._look_for_topics()
        heard = self._cursor.read(timeout)
        for self._unheard, envelope in zip(reversed(range(len(heard))), heard, strict=True):
            self._asked = self._clock() if envelope.wanted else self._asked
            self._form.hear(envelope)
            self._target.hear(envelope)
            self._members.hear(envelope, self.machine.commit_id)
            if isinstance(envelope.event, CommitComplete) and envelope.attached.leader != self._leader:
                self._members.recall(envelope.attached.members)
            self._act(self.machine.heard(envelope))
        if heard:
            self._unheard_since, self._silent_reads = None, 0
        elif self._unheard_since is not None:
            self._silent_reads += 1
            silent = self._clock() - self._unheard_since
            if silent > _DEAF_SECONDS and self._silent_reads > _DEAF_READS:
                raise UnexpectedError(f"the coordinator has not heard its own StartCommit for {silent:.0f} s")

    def _look_for_topics(self) -> None:
        now = self._clock()
        if doubtful := self.machine.doubtful(now):
            try:
                self.machine.looked(now, doubtful, self._unknown(doubtful))
            except UnavailableError as error:  # without an answer, no topic is known to be gone
                log.info("the broker could not be asked for topics that may be gone: %s", error)

    @property
    def idle(self) -> bool:
        return self.machine.phase is Commit.RESTING

    def _act(self, effects: list[CoordinatorEffect]) -> None:
        for effect in effects:
            log.debug("coordinator: %s", effect)
            match effect:
                case Announce(events):
                    self._cursor.acknowledge({}, events, self._attached(NOTHING_ATTACHED))
                    if self._unheard_since is None:
                        self._unheard_since = self._clock()
                case Acknowledge(position, events, attached, departed):
                    for step in ("answered", "committed"):
                        self._times.mark(step, self.machine.commit_id)
                    for event in events if self._heard_all else ():
                        if isinstance(event, CommitComplete):
                            self._form.complete(event.commit_id)
                    silent = len(self.machine.unanswered)
                    attached = replace(attached, members=self._members.differing, unanswered=silent)
                    self._cursor.acknowledge(position, events, self._attached(attached), departed)
                    if departed:
                        log.info(
                            "deleted the stored positions of topics that are gone: %s",
                            listed(sorted(map(str, departed))),
                        )
                    self._times.mark("announced", self.machine.commit_id)
                    self._note(events)
                case CommitTables():
                    self._times.mark("answered", self.machine.commit_id)
                    self._began = self._clock()
                    for table, outcome in self._committer.commit(self._request(effect)):
                        self._tables += isinstance(outcome, Committed)
                        self._failed += isinstance(outcome, Failed)
                        self._act(self.machine.settled(table, outcome))

    def _request(self, effect: CommitTables) -> CommitTables:
        """The effect, with what the workers tell of themselves."""
        effect = replace(effect, form=self._form.form, has_read=self._has_read())
        if self._own is None:
            return effect
        disputed = self._members.disputed(self._own, effect.tables, deciding_keys)
        return replace(effect, disputed=disputed, heard_all=self._heard_all)

    def _has_read(self) -> bool:
        """Whether every entry has been heard that is older than the one in work. After ``_LAGS`` cycles in which one
        may be missing, the log counts as read once.
        """
        if not self._cursor.has_ended:
            return False
        self._lagging = 0 if not self._unheard and self._cursor.is_current else self._lagging + 1
        return self._lagging % (_LAGS + 1) == 0

    @property
    def _heard_all(self) -> bool:
        """Whether the last commit had the answers of all partitions. Without a partition nobody is known: the broker
        may not show the topics now.
        """
        return bool(self._expected) and not self.machine.unanswered

    def _attached(self, attached: Attachment) -> Attachment:
        return replace(attached, leader=self._leader, form=self._form.form, state=self._target.repeated)

    def _note(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, CommitComplete):
                self.complete_cycles += 1
                before, self._passed_over = self._passed_over, self.machine.passed_over
                self.unread = intersection(before, self._passed_over)
                now, silent = self._clock(), self.machine.unanswered
                self.last = CommitCycle(
                    commit_id=str(event.commit_id),
                    ended_at=now,
                    outcome="partial" if silent else "full" if self._tables or self._failed else "empty",
                    seconds=now - self.machine.pace.started,
                    commit_seconds=0.0 if self._began is None else now - self._began,
                    valid_through_us=event.valid_through_us,
                    unanswered=tuple(str(tp) for tp in sorted(silent)),
                    committed=self._tables,
                    failed=self._failed,
                    steps=self._times.ends(event.commit_id, leads=True),
                )
                self._tables, self._failed, self._began = 0, 0, None


class Looker(Protocol):
    """What is looked at, and how."""

    @property
    def tables(self) -> Callable[[], Iterable[TableId]]:
        """The tables that may hold records of the sink."""

    def take_read(self) -> Collection[TableId]:
        """The tables that were read since the last call; a look at them would tell nothing new."""

    def look(self, table: TableId) -> None:
        """Look at one table. Any error may be raised, and means nothing for the other tables."""


class Looks:
    """Looks at each table at once, and then every ``seconds``, on a thread of its own: a catalog that hangs delays no
    commit.
    """

    def __init__(self, looker: Looker, seconds: float) -> None:
        self._looker, self._seconds = looker, seconds
        self._stop = threading.Event()
        threading.Thread(target=self._run, name="calving-looks", daemon=True).start()

    def stop(self) -> None:
        """Request the end after the present table."""
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._look_at_each()
            except Exception as error:  # the thread has no caller; the next round may find the tables
                log.warning("the tables could not be looked at for rollbacks: %s: %s", type(error).__name__, error)
            self._stop.wait(self._seconds)

    def _look_at_each(self) -> None:
        read = self._looker.take_read()
        for table in self._looker.tables():
            if self._stop.is_set():
                return
            if table not in read:
                self._look(table)

    def _look(self, table: TableId) -> None:
        try:
            self._looker.look(table)
        except Exception as error:  # the next look, or the next commit, tells
            log.info("table %s could not be looked at: %s", ".".join(table), error)
