"""Runs a batch: cuts spans into tasks, hands them to the engine, changes the tables' schemas, balances the books."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from calving.engine.interface import Engine
from calving.errors import AccountingError, BadRecordError, CalvingError, ConfigError, DataLossError, JobFailedError
from calving.model.dead_letters import DeadLetter
from calving.model.events import TableFiles
from calving.model.files import DataFile
from calving.model.offsets import Spans, TopicPartition
from calving.model.ranges import Range
from calving.model.record_path import RecordPath
from calving.model.tables import SchemaChange
from calving.protocol.worker import BatchOutcome
from calving.runtime.serial import Serial
from calving.tasks.result import RECEIVED, TaskResult
from calving.tasks.spec import TaskSpec

if TYPE_CHECKING:
    from calving.iceberg.tables import Tables  # it takes long to import

log = logging.getLogger(__name__)

_ROUNDS = 8
_WORTH_A_TASK = 50_000
"""Records below which splitting a batch further costs more than it saves."""
_RANGE_RECORDS = 200
"""What a range costs besides its records, in records."""


@dataclass(frozen=True, slots=True)
class ErrorLimits:
    """The circuit breaker: how many bad records of one batch go to the dead letters before the sink stops instead.

    The share counts only in batches with more than ``share_from`` bad records, so that a few bad ones alone do not.
    """

    per_batch: int = 10_000
    share: float = 1.0
    share_from: int = 100

    def check(self, count: int, read: int, first: str) -> None:
        """:raises BadRecordError: too many; nothing is published, and the records are read again."""
        if count > self.per_batch:
            key, limit = "errors.max-per-batch", str(self.per_batch)
        elif count > self.share_from and count > self.share * read:
            key, limit = "errors.max-share", str(self.share)
        else:
            return
        raise BadRecordError(
            f"{count} of {read} records are bad, more than {key} = {limit} lets pass; the first: {first}"
        )


@dataclass(slots=True)
class Totals:
    """Counted since the start."""

    read: int = 0
    rejected: int = 0
    filtered: Counter[str] = field(default_factory=Counter)
    files: int = 0
    batches: int = 0


class BatchRunner:
    """The worker loop's ``Runner``: one batch at a time, beside the loop."""

    def __init__(self, engine: Engine, tables: Tables, path: RecordPath, errors: ErrorLimits) -> None:
        self._engine, self._tables, self._path, self._errors = engine, tables, path, errors
        self._batches: Serial[tuple[int, BatchOutcome]] = Serial("calving-batch")
        self._running: Future[tuple[int, BatchOutcome]] | None = None
        self.totals = Totals()
        self._started = time.monotonic()
        self.stages: Counter[str] = Counter()
        """CPU seconds of the tasks, by stage."""

    def start(self, number: int, spans: Spans) -> None:
        self._running = self._batches.submit(lambda: (number, self._translated(spans)))

    def poll(self) -> tuple[int, BatchOutcome] | None:
        if self._running is None or not self._running.done():
            return None
        running, self._running = self._running, None
        return running.result()

    def drop(self) -> None:
        """Nobody wants the batch any more; its files are orphans. The next one begins when it has ended."""
        if self._running is not None:
            self._running.cancel()
            self._running = None

    def stalled(self, seconds: float) -> str | None:
        """Why the process should end, if a batch takes longer than this."""
        if self._batches.seconds <= seconds:
            return None
        return f"a batch has been running for {self._batches.seconds:.0f} s: it is {self._batches.place}"

    @property
    def place(self) -> str:
        """Where the batch is that runs."""
        return self._batches.place

    def close(self) -> None:
        self.drop()
        self._batches.close()

    def _translated(self, spans: Spans) -> BatchOutcome:
        try:
            return self.run(spans)
        except CalvingError:
            raise
        except Exception as error:  # of whatever library a task of the local engine has called
            raise JobFailedError(f"the batch failed: {type(error).__name__}: {error}") from error

    def run(self, spans: Spans) -> BatchOutcome:
        """One batch.

        :raises BadRecordError, DataLossError, ConfigError: an operator has to act. :raises Unavailable: try again.
        """
        started = time.monotonic()
        rules = self._path.routing.rules
        self._tables.forget_unused()
        known = set(self._tables.specs())
        self._tables.refresh(known | {rule.table for rule in rules})
        outcome = self._outcome(spans, self._rounds(cut(spans, self._engine.slots)))
        if self.totals.batches == 1:
            log.info("first batch finished %.1f s after the start", time.monotonic() - self._started)
        log.info(
            "batch: %d records, %d files, %.2f s",
            outcome.records,
            sum(len(f.data_files) for f in outcome.written.values()),
            time.monotonic() - started,
        )
        return outcome

    def _rounds(self, ranges: Sequence[Sequence[Range]]) -> list[TaskResult]:
        """Runs tasks until all records fit their tables. A round only runs what a schema change has held up."""
        done: list[TaskResult] = []
        held_up: list[TaskResult] = []
        careful = False
        everything = dict(enumerate(ranges))
        waiting = everything
        for _ in range(_ROUNDS):
            results = self._engine.run([self._task(n, found, careful=careful) for n, found in waiting.items()])
            _raise_errors(results)
            held_up = [r for r in results if r.changes or r.unclear is not None]
            done += [r for r in results if not r.changes and r.unclear is None]
            if not held_up:
                return done
            is_unclear = _is_unclear(held_up)
            careful = careful or is_unclear
            if is_unclear or any(r.number == RECEIVED for r in results):
                # A shuffle mixes rows of all tasks in its files.
                self._discard(done)
                done, waiting = [], everything
            else:
                waiting = {r.number: everything[r.number] for r in held_up}
            self._tables.apply(_changes(held_up))
        raise ConfigError(
            f"after {_ROUNDS} rounds the tables still do not fit the records: {_described(_changes(held_up))}"
        )

    def _discard(self, results: Sequence[TaskResult]) -> None:
        for result in results:
            self._tables.delete_files(result.files)

    def _task(self, number: int, ranges: Sequence[Range], *, careful: bool) -> TaskSpec:
        return TaskSpec(
            number,
            tuple(ranges),
            self._path,
            self._tables.specs(),
            self._tables.missing,
            barren=self._tables.barren,
            id_columns=self._tables.id_columns,
            careful=careful,
        )

    def _outcome(self, spans: Spans, results: Sequence[TaskResult]) -> BatchOutcome:
        found = _Tally()
        for result in results:
            self.stages.update(result.stages)
            found.add(result)
        found.check(spans)
        self._errors.check(found.rejected, found.read, found.first_rejected)
        files = {self._tables.reference(table): TableFiles(tuple(its)) for table, its in found.files.items()}
        totals = self.totals
        totals.read += found.read
        totals.batches += 1
        totals.files += sum(len(its.data_files) for its in files.values())
        totals.rejected += found.rejected
        totals.filtered.update(found.filtered)
        if found.filtered or found.rejected:
            causes = "".join(f", {cause} {count}" for cause, count in sorted(found.filtered.items()))
            log.info("read %d = written %d, dead letters %d%s", found.read, found.written, found.rejected, causes)
        if found.rejected:
            log.warning("bad records: %d; the first: %s", found.rejected, found.first_rejected)
        return BatchOutcome(files, found.latest_us, found.read, found.size, tuple(found.letters))


def _changes(results: Sequence[TaskResult]) -> list[SchemaChange]:
    return [change for result in results for change in result.changes]


def _is_unclear(results: Sequence[TaskResult]) -> bool:
    """Whether some record, it is not known which, breaks writing."""
    reason = next((r.unclear for r in results if r.unclear is not None), None)
    if reason is not None:
        log.warning("a record breaks the batch, which runs again to find out which one: %s", reason)
    return reason is not None


@dataclass(slots=True)
class _Tally:
    """What the tasks of a batch have done, together."""

    covered: Counter[TopicPartition] = field(default_factory=Counter)
    """Offsets."""
    latest_us: dict[TopicPartition, int] = field(default_factory=dict)
    files: dict[str, list[DataFile]] = field(default_factory=dict)
    filtered: Counter[str] = field(default_factory=Counter)
    letters: list[DeadLetter] = field(default_factory=list)
    read: int = 0
    written: int = 0
    rejected: int = 0
    size: int = 0
    shuffled: int = 0
    first_rejected: str = ""

    def add(self, result: TaskResult) -> None:
        self.letters += result.rejected
        self.first_rejected = self.first_rejected or result.first_rejected or ""
        self.shuffled += result.shuffled
        for r in result.ranges:
            tp = TopicPartition(r.range.topic, r.range.partition)
            self.covered[tp] += r.range.end - r.range.start
            self.read, self.written, self.size = self.read + r.read, self.written + r.written, self.size + r.bytes
            self.rejected += r.rejected
            self.filtered.update(r.filtered)
            if r.timestamp_ms is not None:
                self.latest_us[tp] = max(self.latest_us.get(tp, 0), r.timestamp_ms * 1000)
        for table, found in result.files.items():
            if found:
                self.files.setdefault(table, []).extend(found)

    def check(self, spans: Spans) -> None:
        """:raises AccountingError: some offset, row or record is not accounted for."""
        wanted = {tp: span.end - span.start for tp, span in spans.items()}
        if self.shuffled:
            raise AccountingError(
                f"the batch does not balance: the shuffle lost {self.shuffled} rows; nothing is published"
            )
        if self.covered != wanted or self.read != self.written + self.rejected + sum(self.filtered.values()):
            raise AccountingError(
                f"the batch does not balance: {dict(self.covered)} of {wanted} offsets covered, {self.read} records"
                f" read, {self.written} written, {self.rejected} dead letters, {dict(self.filtered)} filtered; nothing"
                " is published"
            )


def cut(spans: Spans, slots: int) -> list[list[Range]]:
    """Ranges for at most ``slots`` tasks that have about equally much to do, so that also small backlogs of many
    partitions are spread; a partition may be split over tasks.
    """
    total = sum(span.end - span.start + _RANGE_RECORDS for span in spans.values())
    count = max(1, min(slots, -(-total // _WORTH_A_TASK)))
    # Where a task ends, a range is split and costs once more, or room for less than that is left over.
    share = -(-(total + (count - 1) * _RANGE_RECORDS) // count)
    tasks: list[list[Range]] = [[]]
    room = share
    for tp, span in sorted(spans.items()):
        start = span.start
        while start < span.end:
            if room <= _RANGE_RECORDS:
                tasks.append([])
                room = share
            end = min(span.end, start + room - _RANGE_RECORDS)
            tasks[-1].append(Range(tp.topic, tp.partition, start, end))
            room -= end - start + _RANGE_RECORDS
            start = end
    return tasks


def _described(changes: Sequence[SchemaChange]) -> str:
    return "; ".join(f"table {n.table}: {n.kind} {'.'.join(n.path)} {n.type or ''}".strip() for n in changes[:3])


def _raise_errors(results: Sequence[TaskResult]) -> None:
    for result in results:
        if result.error is not None:
            raise (DataLossError if result.data_loss else BadRecordError)(result.error)
