"""The worker's driver: one step reads the log, decides and acts. It never repairs state.

Every error is raised by ``step``; the caller then discards the loop and makes a new one from the stored positions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Protocol

from calving.backend.interface import Cursor, Session
from calving.errors import DataLossError, FencedError, OutcomeUnknownError, UnavailableError
from calving.model.events import CommitComplete, DataWritten, Envelope, Publication, StartCommit, TableId
from calving.model.offsets import TRUNCATED, Coverage, Gap, SourceOffsets, Spans, TopicPartition, less, union, within
from calving.model.tables import Branches
from calving.model.text import counted
from calving.protocol.effects import Publish, RequestCycle, RunBatch, WorkerEffect
from calving.protocol.members import Members
from calving.protocol.positions import Unread, first_start, starting, within_topics
from calving.protocol.positions import text_of as moved_text
from calving.protocol.worker import BatchOutcome, WorkerMachine
from calving.runtime.listening import read_until_cycle
from calving.runtime.log_health import OpenTransactions, SilenceDetector
from calving.runtime.policy import SourcePolicy
from calving.runtime.positions import Resumed, data_loss_text, moved, recreated_text, truncated_text
from calving.runtime.publications import Publications
from calving.source.interface import Bounds, Group
from calving.source.start import EARLIEST, first_start_lines
from calving.status.cycle_times import CycleTimes
from calving.status.partitions import Arrivals, committed_up_to, seen
from calving.status.table_states import TableStates

log = logging.getLogger(__name__)


_SEARCH_SECONDS = 10.0


class Runner(Protocol):
    """Runs batches on another thread, one at a time."""

    def start(self, number: int, spans: Spans) -> None:
        """Start a batch."""

    def wait(self, timeout: float) -> None:
        """Wait until the running batch has ended, but at most ``timeout`` seconds."""

    def poll(self) -> tuple[int, BatchOutcome] | None:
        """The number and outcome of a batch that has ended; each batch is returned once. None if no batch has ended.
        Raises the batch's error.
        """


class Clock(Protocol):
    def __call__(self) -> float:
        """Seconds of a monotonic clock."""


class WorkerLoop:
    """The loop of one worker: its membership, the control log and its batches."""

    def __init__(
        self,
        group: Group,
        session: Session,
        cursor: Cursor,
        runner: Runner,
        machine: WorkerMachine,
        policy: SourcePolicy,
        clock: Clock,
        table_states: TableStates | None = None,
        publications: Publications | None = None,
        members: Members | None = None,
        resumed: Resumed = lambda log: {},
        branches: Branches | None = None,
        changes_rows: Callable[[TableId], bool] = lambda table: False,
        times: CycleTimes | None = None,
    ) -> None:
        """``machine``: a new one, which decides. ``table_states`` to ``members``, and ``times``, outlive the loop.
        ``resumed``: what tables tell and the log does not. ``branches``, ``changes_rows``: what its settings say.
        """
        self.machine, self._changes_rows = machine, changes_rows
        self.table_states, self._members = table_states or TableStates(), members or Members()
        self.publications, self.times = publications or Publications(), times or CycleTimes(clock, lambda steps: None)
        self.paused_ms: int | None = None
        """Since when no batch is started, in milliseconds since the epoch; None if batches are started."""
        self.version = 0
        """Grows with every change of the reported state."""
        self.latest_us: dict[TopicPartition, int] = {}
        """The largest timestamps of read records."""
        self.skipped: dict[TopicPartition, int] = {}
        """Records that were skipped because the broker no longer has them."""
        self.passed_over: dict[TopicPartition, int] = {}
        """Offsets that were passed over because somebody else has moved the position."""
        self._group, self._session, self._cursor, self._runner = group, session, cursor, runner
        self._policy, self._clock, self._resumed, self._branches = policy, clock, resumed, branches
        self._ends: SourceOffsets = {}
        self._topic_ids: dict[str, str] = {}
        """The topic ids of the topics that are read. A topic may be recreated at any time."""
        self._stored_within: dict[TopicPartition, str] = {}
        """The topic id of each stored position."""
        self._unread: dict[TopicPartition, Unread] = {}
        """The offsets below stored positions that nobody has read."""
        self._seen_unread: Coverage = {}
        """The same, of all positions that this loop has started from."""
        self._truncated, self._mirrors_again = set[TopicPartition](), False
        """Copies of positions may fail, during a rebalance for example: the next publication copies them again."""
        self._looked = self._searched = float("-inf")
        self.arrivals: dict[TopicPartition, Arrivals] = {}
        """When the ends of the assigned partitions were seen to grow, by this loop's clock."""
        self.hidden, self._ear = OpenTransactions(), SilenceDetector(policy.deaf_seconds, clock())

    @property
    def undecodable(self) -> int:
        """Entries of the control log that were skipped."""
        return self._cursor.undecodable

    @property
    def unsigned(self) -> str:
        """A sentence on the last entry of the group that is not signed; empty if there is none."""
        return self._cursor.unsigned

    @property
    def stop_at(self) -> SourceOffsets | None:
        """Offsets at which reading stops; empty if reading does not stop."""
        return self._policy.stop_at

    def step(self, timeout: float) -> None:
        """Wait up to ``timeout`` seconds for something to do, then act on all that is due."""
        heard = self._heard(timeout)
        for envelope in heard:
            self.machine.heard(envelope)
            self._hear_cycle(envelope)
            self._members.hear(envelope)
            self.table_states.hear(envelope, self._clock())
        self._ear.listened(self._clock(), bool(heard))
        ended = self._runner.poll()
        self.version += bool(heard) + (ended is not None)
        if ended is not None:
            self.times.mark("seen")
            self.machine.finished(*ended)
            self.latest_us.update(ended[1].timestamps_us)
            self._looked = float("-inf")
        if not self.machine.busy and self._look():
            self._act(self.machine.tick(self._ends if self.paused_ms is None else self.machine.positions))

    def _heard(self, timeout: float) -> Sequence[Envelope]:
        """Wait where the next thing to do comes from, and read the log: without partitions that is the group, while a
        batch runs the batch, and else the log, until a cycle begins. All else waits for up to ``timeout``.
        """
        self._group.poll(0.0 if self.machine.held else timeout, self)
        if self.machine.busy:
            self._runner.wait(timeout)
        if self.machine.busy or self.machine.owes or not self.machine.held:
            return self._cursor.read(0)
        return read_until_cycle(self._cursor, timeout, self._clock)

    def _hear_cycle(self, envelope: Envelope) -> None:
        self.publications.hear(envelope)
        match envelope.event:
            case StartCommit(commit_id):
                self.times.hears(commit_id)
            case CommitComplete(commit_id):
                self.times.ends(commit_id, leads=False)

    @property
    def ends(self) -> SourceOffsets:
        """Last stable offsets of the assigned partitions when they were last queried."""
        return self._ends

    @property
    def unread(self) -> Coverage:
        """Offsets that nobody has read, because somebody else has moved a position from which this loop has started.
        They stay until the control log calls them settled, as it does once an operator has accepted them.
        """
        return less(self._seen_unread, self.table_states.settled)

    def stored(self, partitions: Collection[TopicPartition]) -> SourceOffsets:
        """The stored positions of these partitions, whichever worker stored them."""
        return self._session.committed(partitions)

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._session.take_over(partitions)
        stored = self._session.committed(partitions)
        if stored.keys() != frozenset(partitions):
            # A start position depends on the stored positions of other partitions. Otherwise query only these
            # partitions: a dead owner's undecided publication on another partition would delay every worker.
            every = self._group.partitions() | frozenset(partitions)
            stored = self._session.committed(every)
            if not stored and self._policy.start != EARLIEST:
                self._begin(every)
                stored = self._session.committed(every)
        self._recognise({tp.topic for tp in partitions})
        bounds = self._group.bounds(partitions)
        self.machine.assigned(starting(partitions, stored, bounds.begins))
        for tp in partitions:
            self._stored_within.pop(tp, None)
            self._unread.pop(tp, None)  # another worker may have passed them over since
            self._truncated.discard(tp)
        for tp, identity in self._session.topic_ids(partitions).items():
            self._stored_within[tp] = identity.removesuffix(TRUNCATED)
            self._truncated |= {tp} if identity.endswith(TRUNCATED) else set()
        self._look_for_moves({tp: stored[tp] for tp in partitions if tp in stored and tp not in self._stored_within})
        for tp in self._recreated(stored.keys() & set(partitions)):
            self._skip(tp, Gap(stored[tp], bounds.begins[tp]), recreated_text(tp, stored[tp]))
        self._looked, self._mirrors_again = float("-inf"), True

    def _look_for_moves(self, stored: SourceOffsets) -> None:
        """``stored``: positions without a topic id."""
        for tp, unread in moved(self._session, stored, self._topic_ids, self._resumed).items() if stored else ():
            self._unread[tp] = unread
            if unread.offsets:
                log.warning("%s", moved_text(tp, unread.span))
                known = within(tp, self._topic_ids.get(tp.topic, ""))
                self._seen_unread = union(self._seen_unread, {known: (unread.span,)})

    def _begin(self, every: Collection[TopicPartition]) -> None:
        self._recognise({tp.topic for tp in every})
        starts = self._group.starts(every, self._policy.start)
        for line in first_start_lines(self._policy.start, starts) if self.stop_at is None else ():
            log.info("%s", line)
        publication = within_topics(first_start(starts), self._topic_ids, {})
        self._session.publish(publication, self._group.claim())

    def revoked(self, partitions: Collection[TopicPartition]) -> None:
        self._act(self.machine.handover(partitions))
        self.machine.released(partitions)

    def lost(self, partitions: Collection[TopicPartition]) -> None:
        self.machine.released(partitions)

    def finish(self) -> None:
        """Publish the finished batches, as the last step of a clean stop (W6)."""
        self._act(self.machine.handover(self.machine.held))

    def _look(self) -> bool:
        """Query the ends of the partitions if a query is due. Returns whether it was due."""
        now, machine = self._clock(), self.machine
        policy = self._policy
        every = min(policy.bounds_seconds, policy.idle_seconds) if machine.waits_for_records else policy.bounds_seconds
        if not (machine.owes or now - self._looked >= every):
            return False
        held = machine.held
        if not held:
            return False
        bounds = self._group.bounds(held, machine.positions)
        ends, stop_at = bounds.ends, self._policy.stop_at
        if stop_at is not None:
            ends = {tp: min(end, stop_at.get(tp, 0)) for tp, end in ends.items()}
            # What the broker has removed behind the end that was asked for is nobody's loss.
            left = {tp for tp, at in machine.positions.items() if at < stop_at.get(tp, 0)}
            bounds = Bounds({tp: begin for tp, begin in bounds.begins.items() if tp in left}, bounds.ends)
        self._watch_gaps(bounds)
        self._ends, self._looked = ends, now
        self.times.mark("looked")
        visible = committed_up_to(self.table_states.settled)
        self.arrivals = {
            tp: seen(self.arrivals.get(tp, ()), end, now, visible.get(tp, self.machine.positions.get(tp, 0)))
            for tp, end in ends.items()
        }
        self.version += 1
        if now - self._searched >= _SEARCH_SECONDS:
            self._searched = now
            for tp in self.hidden.look(now, bounds.ends, self._group.highs(held)):
                log.warning("%s: an open transaction of a producer hides all records behind it", tp)
        return True

    def _watch_gaps(self, bounds: Bounds) -> None:
        if not self.machine.gaps(bounds.begins, bounds.ends):
            return
        self._recognise({tp.topic for tp in self.machine.held})
        known = {tp for tp in self.machine.held if self._is_known(tp)}
        for tp, gap in self.machine.gaps(bounds.begins, bounds.ends, known).items():
            restarts = gap.resumes < gap.wanted
            truncated = restarts and tp in known
            if restarts and not truncated and (self.machine.unpublished or self.machine.busy):
                # Reading again would repeat records of batches that are not published yet.
                raise UnavailableError(f"{tp} ends before offset {gap.wanted}: unpublished batches are read again")
            self._skip(tp, gap, (truncated_text if truncated else data_loss_text)(tp, gap.wanted, bounds))
            self._truncated |= {tp} if truncated else set()

    def _is_known(self, tp: TopicPartition) -> bool:
        """Whether the topic has the topic id of the stored position."""
        return self._topic_ids.get(tp.topic, "") == self._stored_within.get(tp) != ""

    def _skip(self, tp: TopicPartition, gap: Gap, why: str) -> None:
        if self._policy.on_data_loss == "fail":
            raise DataLossError(f"{why}; {self._policy.skipping}")
        missing = max(0, gap.resumes - gap.wanted)
        self.skipped[tp] = self.skipped.get(tp, 0) + missing
        skipped = counted(missing, "record was", "records were")
        log.error("%s; %s skipped, reading continues at offset %d", why, skipped, gap.resumes)
        self.machine.skip(tp, gap.resumes)

    def _recreated(self, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
        """Partitions whose topic was recreated since their position was stored."""
        stored = ((tp, self._stored_within.get(tp)) for tp in partitions)
        return [tp for tp, before in stored if before and self._topic_ids.get(tp.topic, before) != before]

    def _recognise(self, topics: Collection[str]) -> None:
        """:raises UnavailableError: one of these topics was recreated since it was read."""
        for topic, identity in self._group.topic_ids(topics).items() if topics else ():
            if self._topic_ids.setdefault(topic, identity) != identity:
                raise UnavailableError(f"topic '{topic}' was recreated while it was read")

    def _publish(self, publication: Publication) -> None:
        try:
            self._session.publish(publication, self._group.claim())
        except (FencedError, UnavailableError, OutcomeUnknownError) as error:
            self.publications.failed(error)
            raise
        self.times.mark("published")
        self.publications.done(self.machine.positions, self.machine.earliest_us)

    def _act(self, effects: list[WorkerEffect]) -> None:
        for effect in effects:
            log.debug("worker: %s", effect)
            match effect:
                case RunBatch(number, spans):
                    self._runner.start(number, spans)
                case RequestCycle(publication):
                    self._session.publish(publication, self._group.claim())
                case Publish(publication):
                    # The topic ids are checked before and after reading, so that all records belong to this topic.
                    self._recognise({tp.topic for tp in publication.advances})
                    publication = within_topics(publication, self._topic_ids, self._stored_within, self._unread)
                    written = {e.table.identifier for e in publication.events if isinstance(e, DataWritten)}
                    publication = replace(
                        publication,
                        truncated=frozenset(self._truncated),
                        paused_ms=self.paused_ms,
                        member=self._members.described,
                        branches=self._branches,
                        ordered=frozenset(filter(self._changes_rows, written)),
                    )
                    self._publish(publication)
                    self._stored_within.update({tp: self._topic_ids.get(tp.topic, "") for tp in publication.advances})
                    for tp in self._unread.keys() & publication.advances.keys():
                        if count := self._unread.pop(tp).offsets:
                            self.passed_over[tp] = self.passed_over.get(tp, 0) + count
                    self.machine.published()
                    self._ear.spoke(self._clock())
                    if self._policy.mirror and (publication.advances or self._mirrors_again):
                        self._group.mirror(self.machine.positions)
                        self._mirrors_again = bool(publication.advances)
