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
from calving.model.events import TableFiles, TableReference
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
        changes: list[SchemaChange] = []
        careful = False
        waiting = dict(enumerate(ranges))
        for _ in range(_ROUNDS):
            results = self._engine.run([self._task(n, found, careful=careful) for n, found in waiting.items()])
            _raise_errors(results)
            unclear = next((r.unclear for r in results if r.unclear is not None), None)
            changes = [change for result in results for change in result.changes]
            done += [r for r in results if not r.changes and r.unclear is None]
            if not changes and unclear is None:
                return done
            if unclear is not None or any(r.number == RECEIVED for r in results):
                # A shuffle mixes rows of all tasks in its files.
                for result in done:
                    self._tables.delete_files(result.files)
                done, waiting = [], dict(enumerate(ranges))
            else:
                needy = {r.number for r in results if r.changes}
                waiting = {n: found for n, found in waiting.items() if n in needy}
            if unclear is not None:
                log.warning("a record breaks the batch, which runs again to find out which one: %s", unclear)
                careful = True
            self._tables.refresh({change.table for change in changes if change.kind == "load"})
            self._tables.apply([change for change in changes if change.kind != "load"])
        raise ConfigError(f"after {_ROUNDS} rounds the tables still do not fit the records: {_described(changes)}")

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
        covered: Counter[TopicPartition] = Counter()
        latest: dict[TopicPartition, int] = {}
        files: dict[TableReference, list[DataFile]] = {}
        read = written = size = 0
        filtered: Counter[str] = Counter()
        letters = [letter for result in results for letter in result.rejected]
        first_rejected = next((r.first_rejected for r in results if r.first_rejected is not None), "")
        rejected = 0
        for result in results:
            self.stages.update(result.stages)
            for r in result.ranges:
                tp = TopicPartition(r.range.topic, r.range.partition)
                covered[tp] += r.range.end - r.range.start
                read, written, size = read + r.read, written + r.written, size + r.bytes
                rejected += r.rejected
                filtered.update(r.filtered)
                if r.timestamp_ms is not None:
                    latest[tp] = max(latest.get(tp, 0), r.timestamp_ms * 1000)
            for table, found in result.files.items():
                if found:
                    files.setdefault(self._tables.reference(table), []).extend(found)
        wanted = {tp: span.end - span.start for tp, span in spans.items()}
        lost = sum(result.shuffled for result in results)
        if lost:
            raise AccountingError(f"the batch does not balance: the shuffle lost {lost} rows; nothing is published")
        if covered != wanted or read != written + rejected + sum(filtered.values()):
            raise AccountingError(
                f"the batch does not balance: {dict(covered)} of {wanted} offsets covered, {read} records read,"
                f" {written} written, {rejected} dead letters, {dict(filtered)} filtered; nothing is published"
            )
        self._errors.check(rejected, read, first_rejected)
        totals = self.totals
        totals.read += read
        totals.batches += 1
        totals.files += sum(map(len, files.values()))
        totals.rejected += rejected
        totals.filtered.update(filtered)
        if filtered or rejected:
            causes = "".join(f", {cause} {count}" for cause, count in sorted(filtered.items()))
            log.info("read %d = written %d, dead letters %d%s", read, written, rejected, causes)
        if rejected:
            log.warning("bad records: %d; the first: %s", rejected, first_rejected)
        tables = {table: TableFiles(tuple(found)) for table, found in files.items()}
        return BatchOutcome(tables, latest, read, size, tuple(letters))


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
