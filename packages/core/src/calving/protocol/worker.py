"""The worker: decides which offsets to read next, and when to publish.

A cycle is open from StartCommit to CommitComplete. While a cycle is open, the worker owes an answer for each assigned
partition, also for a partition that is assigned in the middle of the cycle. The state of the batch and the state of the
answer are phases: ``calving.protocol.phases`` has their table and diagram.

The worker has no recovery code. After an error, or when a partition is lost, unpublished work is dropped and read again
from the stored positions; files that a batch has written meanwhile are orphans.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from calving.errors import ProtocolError
from calving.model.dead_letters import DeadLetter
from calving.model.events import (
    NO_COMMIT,
    CommitComplete,
    DataComplete,
    DataWritten,
    Envelope,
    PartitionProgress,
    Publication,
    StartCommit,
    TableFiles,
    TableReference,
    Written,
)
from calving.model.forms import NEWEST, StoredForm
from calving.model.offsets import Advance, Gap, SourceOffsets, Span, Spans, TopicPartition, each
from calving.protocol.effects import Publish, RequestCycle, RunBatch, WorkerEffect
from calving.protocol.forms import check_form
from calving.protocol.phases import Batch, Cycle, Phases, Turn
from calving.protocol.positions import Position, take


class BatchLimits(NamedTuple):
    """The size of the backlog at which a batch runs between cycles; it is also the most that one batch reads."""

    records: int
    bytes: int
    first: int | None = None
    """The most records that the first batch may read, if a larger batch failed before; None: ``records``. After each
    batch that ends, the next batch may read an eighth more.
    """


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """The result of a finished batch: files by table, the largest timestamp per partition, its size, its bad
    records, the smallest timestamp per partition.
    """

    written: Written
    timestamps_us: Mapping[TopicPartition, int]
    records: int
    bytes: int
    dead_letters: tuple[DeadLetter, ...] = ()
    earliest_us: Mapping[TopicPartition, int] = field(default_factory=dict)


class WorkerMachine:
    """Decides for one worker what to read and publish; it does no I/O, and one thread calls it.

    Its driver reports events with ``assigned``, ``heard``, ``finished``, ``published`` and ``released``. The driver
    runs the effects that ``tick`` and ``handover`` return, in their order. If an effect fails, the driver drops the
    machine with its unpublished batches, and makes a new machine that starts at the stored positions. A call that the
    state forbids raises ProtocolError.
    """

    def __init__(self, limits: BatchLimits, newest: StoredForm = NEWEST, *, asks: bool = False) -> None:
        """``newest``: the newest form that this process knows. ``asks``: whether it asks for a cycle when records come
        after a cycle without files.
        """
        self._asks, self._has_asked, self._has_files, self._rests = asks, False, True, False
        self._limits, self._newest = limits, newest
        self._records = limits.records if limits.first is None else min(limits.first, limits.records)
        """The most records that the next batch reads."""
        self._stored: dict[TopicPartition, int | None] = {}
        self._next: dict[TopicPartition, int] = {}
        self.held: frozenset[TopicPartition] = frozenset()
        """The assigned partitions."""
        self._restarted: set[TopicPartition] = set()
        """Partitions whose position went back after it was stored. They count as moved even if the position reaches the
        stored offset again.
        """
        self._finished: list[tuple[Spans, BatchOutcome]] = []
        self._phases = Phases()
        self._number = 0
        self._reads: Spans = {}
        """The offsets of the running or last batch."""
        self._commit_id = NO_COMMIT
        self._answered: set[TopicPartition] = set()
        self._record_bytes = 1.0

    @property
    def positions(self) -> SourceOffsets:
        """Next offset to read, by assigned partition, without the running batch."""
        return dict(self._next)

    @property
    def owes(self) -> bool:
        """Whether the open cycle lacks an answer of this worker."""
        return self._phases.answering and not self._answered.issuperset(self._next)

    @property
    def waits_for_records(self) -> bool:
        """Whether it asks for a cycle as soon as it sees records to read (T4)."""
        return self._asks and self._rests and not self._has_asked

    @property
    def earliest_us(self) -> Mapping[TopicPartition, int]:
        """By partition, the smallest timestamp of what the next publication tells."""
        earliest: dict[TopicPartition, int] = {}
        for _, outcome in self._finished:
            for tp, at in outcome.earliest_us.items():
                earliest[tp] = min(earliest.get(tp, at), at)
        return earliest

    @property
    def unpublished(self) -> bool:
        """Whether finished batches wait for the next publication."""
        return bool(self._finished)

    @property
    def busy(self) -> bool:
        """Whether a batch is running."""
        return self._phases.batch is not Batch.IDLE

    def assigned(self, positions: Mapping[TopicPartition, Position]) -> None:
        """These partitions are now assigned to this worker, at these positions (W1)."""
        for tp, position in positions.items():
            if tp in self._next:
                raise ProtocolError(f"{tp} was assigned twice")
            self._stored[tp], self._next[tp] = position.stored, position.next
            self._answered.discard(tp)
        self.held = frozenset(self._next)

    def stop(self) -> None:
        """Start no further batch and send no further answer. Call ``handover`` with all assigned partitions next."""
        self._phases.take(Turn.STOP)

    def handover(self, leaving: Iterable[TopicPartition]) -> list[WorkerEffect]:
        """These partitions are about to be revoked: publish all finished batches (W6). Call ``released`` afterwards."""
        self._void({tp for tp in leaving if tp in self._next})
        return self._publish() if self._finished else []

    def released(self, gone: Iterable[TopicPartition]) -> None:
        """These partitions are revoked. Unpublished work on them is dropped (W5)."""
        missing = {tp for tp in gone if tp in self._next}
        self._void(missing)
        if any(missing & spans.keys() for spans, _ in self._finished):
            # Files mix partitions. To drop one partition's rows, the files must be dropped, so all their partitions are
            # read again.
            for spans, _ in reversed(self._finished):
                self._next.update({tp: span.start for tp, span in spans.items()})
            self._finished.clear()
            self._drop_batch()
        for tp in missing:
            del self._stored[tp], self._next[tp]
            self._answered.discard(tp)
            self._restarted.discard(tp)
        self.held = frozenset(self._next)

    def gaps(
        self, begins: SourceOffsets, ends: SourceOffsets, known: Collection[TopicPartition] = ()
    ) -> dict[TopicPartition, Gap]:
        """For each partition whose next offset is not on the broker: the gap up to where reading can continue (W7).

        Reading continues at the first available offset. The exception is a truncated topic: it is ``known`` to be the
        same topic, and ends before the wanted offset. All its records were read before, so reading continues at its
        end.
        """
        return {
            tp: Gap(at, ends[tp] if tp in known and at > ends[tp] else begins[tp])
            for tp, at in self._next.items()
            if tp in begins and not begins[tp] <= at <= ends[tp]
        }

    def skip(self, tp: TopicPartition, to: int) -> None:
        """Continue at ``to``: the records before it are gone, or the offsets have restarted."""
        if to < self._next[tp]:
            self._restarted.add(tp)
        self._next[tp] = to

    def heard(self, envelope: Envelope) -> None:
        """Take in an entry of the control log.

        :raises NewerVersionError: workers of a later version use a form that this one does not know.
        """
        check_form(envelope, self._newest)
        match envelope.event:
            case StartCommit(commit_id) if commit_id != self._commit_id or not self._phases.answering:
                self._commit_id = commit_id
                self._has_files = self._rests = self._has_asked = False
                self._answered.clear()
                self._phases.take(Turn.CYCLE_OPENS_MEANWHILE if self.busy else Turn.CYCLE_OPENS)
            case DataWritten():
                self._has_files = True
            case CommitComplete(commit_id) if commit_id == self._commit_id:
                self._rests = not self._has_files
                self._phases.take(Turn.CYCLE_CLOSES)

    def tick(self, ends: SourceOffsets) -> list[WorkerEffect]:
        """Decide what to do next. ``ends`` are the last stable offsets of the assigned partitions."""
        if self.busy or not self._next or self._phases.cycle is Cycle.STOPPED:
            return []
        backlog = {tp: Span(at, ends[tp]) for tp, at in self._next.items() if ends.get(tp, at) > at}
        if self.owes and self._phases.cycle is Cycle.SWEPT:
            return self._publish()
        if self.owes:
            self._phases.take(Turn.SWEEP)
            return self._run(backlog) if backlog else self._publish()
        size = sum(span.end - span.start for span in backlog.values())
        if size >= self._records or size * self._record_bytes >= self._limits.bytes:
            return self._run(backlog)
        if backlog and self.waits_for_records:
            self._has_asked = True
            return [RequestCycle(Publication((DataComplete(NO_COMMIT),), {}, {}, wanted=True))]
        return []

    def finished(self, number: int, outcome: BatchOutcome) -> None:
        """Batch ``number`` has ended with ``outcome``.

        :raises ProtocolError: this batch was not running.
        """
        if not self.busy or number != self._number:
            raise ProtocolError(f"batch {number} ended, but it was not running")
        if outcome.records:
            self._record_bytes = max(1.0, outcome.bytes / outcome.records)
        if self._phases.batch is Batch.VOID:
            self._phases.take(Turn.VOID_ENDS)
            return
        self._phases.take(Turn.BATCH_ENDS)
        self._records = min(self._limits.records, self._records + self._records // 8 + 1)
        self._next.update({tp: span.end for tp, span in self._reads.items()})
        self._finished.append((self._reads, outcome))

    def published(self) -> None:
        """The last ``Publish`` effect has succeeded."""
        self._stored.update(self._next)
        self._answered.update(self._next)
        self._finished.clear()
        self._restarted.clear()

    def _void(self, leaving: set[TopicPartition]) -> None:
        if leaving & self._reads.keys():
            self._drop_batch()

    def _drop_batch(self) -> None:
        if self.busy:
            self._phases.take(Turn.BATCH_LOST)

    def _run(self, backlog: Spans) -> list[WorkerEffect]:
        records = min(self._records, max(1, int(self._limits.bytes / self._record_bytes)))
        self._phases.take(Turn.BATCH_STARTS)
        self._number, self._reads = self._number + 1, take(backlog, records)
        return [RunBatch(self._number, self._reads)]

    def _written(self) -> list[DataWritten]:
        """The files of the finished batches, one event for each table. Files that delete rows begin another event,
        because their deletes apply to all files before them.
        """
        tables: dict[TableReference, list[TableFiles]] = {}
        for _, outcome in self._finished:
            for table, files_of_table in outcome.written.items():
                known = tables.setdefault(table, [])
                for files in files_of_table:
                    if not known or files.delete_files:
                        known.append(files)
                    else:
                        known[-1] = TableFiles(known[-1].data_files + files.data_files, known[-1].delete_files)
        return [
            DataWritten(self._commit_id, table, files.data_files, files.delete_files)
            for table, known in sorted(tables.items(), key=lambda item: item[0].identifier)
            for files in known
        ]

    def _progress(self) -> tuple[PartitionProgress, ...]:
        ends: dict[TopicPartition, int] = {}
        latest: dict[TopicPartition, int] = {}
        for batch, outcome in self._finished:
            ends.update({tp: span.end for tp, span in batch.items()})
            for tp, timestamp in outcome.timestamps_us.items():
                latest[tp] = max(latest.get(tp, timestamp), timestamp)
        return tuple(PartitionProgress(tp, ends.get(tp), latest.get(tp)) for tp in sorted(self._next))

    def _covers(self, tp: TopicPartition) -> Span:
        """The span from the stored position on. Successive publications must not have a gap, because coverage is
        compared.
        """
        return Span(0 if tp in self._restarted else self._stored[tp] or 0, self._next[tp])

    def _publish(self) -> list[WorkerEffect]:
        # Store positions even if no records were read: a position may come from the reset, or have moved over a gap.
        advances = {
            tp: Advance(self._stored[tp], at)
            for tp, at in sorted(self._next.items())
            if at != self._stored[tp] or tp in self._restarted
        }
        moved = [tp for tp, advance in advances.items() if advance.end != (advance.start or 0) or tp in self._restarted]
        return [
            Publish(
                Publication(
                    (*self._written(), DataComplete(self._commit_id, self._progress())),
                    advances,
                    each({tp: self._covers(tp) for tp in moved}),
                    tuple(letter for _, outcome in self._finished for letter in outcome.dead_letters),
                    restarted=frozenset(self._restarted),
                )
            )
        ]
