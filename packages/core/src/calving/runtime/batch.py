"""Runs a batch: cuts spans into tasks, runs them on the engine, evolves the tables' schemas, accounts for all
records.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

from calving.engine.interface import Engine
from calving.errors import (
    BadRecordError,
    CalvingError,
    ConfigError,
    CredentialsExpiredError,
    JobFailedError,
    JobTooLongError,
    UnavailableError,
)
from calving.model.events import TableFiles
from calving.model.files import DataFile, FileContent
from calving.model.offsets import Range, Spans
from calving.model.record_path import RecordPath
from calving.model.tables import SchemaChange, TableSpec
from calving.model.text import counted
from calving.protocol.worker import BatchOutcome
from calving.runtime.cutting import cut, cut_whole, is_whole
from calving.runtime.tally import Tally
from calving.status.values import Batches
from calving.tasks.spec import RECEIVED, TaskResult, TaskSpec
from calving.threads import SerialThread

if TYPE_CHECKING:
    from calving.iceberg.tables import Tables  # slow to import

log = logging.getLogger(__name__)

_ROUNDS = 12
"""More than records can need: a table may be loaded, be created, and get columns three times; so may the dead-letter
table; and a record that breaks the batch may be looked for.
"""
_FEWEST = 1_000
"""The records that a batch may have even if it took too long: a smaller batch would not take less time."""


@dataclass(frozen=True, slots=True)
class ErrorLimits:
    """The circuit breaker: the number of bad records in one batch above which the sink stops.

    The share is checked only in batches with more than ``share_from`` bad records, so that a few bad records do not
    stop the sink.
    """

    per_batch: int
    share: float
    share_from: int = 100

    def check(self, count: int, read: int, first: str) -> None:
        """:raises BadRecordError: too many; nothing is published, and the records are read again."""
        if count > self.per_batch:
            key, limit = "errors.max-per-batch", str(self.per_batch)
        elif count > self.share_from and count > self.share * read:
            key, limit = "errors.max-share", str(self.share)
        else:
            return
        bad = f"{count} of {counted(read, 'record')} {'is' if count == 1 else 'are'} bad"
        raise BadRecordError(f"{bad}, more than {key} = {limit} allows; the first: {first}")


class BatchRunner:
    """The worker loop's ``Runner``: runs one batch at a time, on its own thread."""

    def __init__(
        self,
        engine: Engine,
        tables: Tables,
        path: RecordPath,
        errors: ErrorLimits,
        mark: Callable[[str], None] = lambda step: None,
    ) -> None:
        """``mark`` is told when a step has ended: see ``CYCLE_STEPS``."""
        self._mark = mark
        self._engine, self._tables, self._path, self._errors = engine, tables, path, errors
        self._batches: SerialThread[tuple[int, BatchOutcome]] = SerialThread("calving-batch")
        self._running: Future[tuple[int, BatchOutcome]] | None = None
        self.totals = Batches()
        """Totals of the batches since the start. The object is replaced as a whole."""
        self.fewer: int | None = None
        """The most records that the next batch should have, if the last batch took too long."""
        self._started = time.monotonic()

    def start(self, number: int, spans: Spans) -> None:
        self._running = self._batches.submit(lambda: (number, self._translated(spans)))

    def wait(self, timeout: float) -> None:
        if self._running is not None:
            wait([self._running], timeout)

    def poll(self) -> tuple[int, BatchOutcome] | None:
        if self._running is None or not self._running.done():
            return None
        running, self._running = self._running, None
        return running.result()

    def drop(self) -> None:
        """Drop the running batch; its files are orphans. The next batch starts when the dropped batch has ended."""
        if self._running is not None:
            self._running.cancel()
            self._running = None

    def stalled(self, seconds: float) -> str | None:
        """The reason to end the process, if the batch has run longer than ``seconds``; otherwise None."""
        if self._batches.seconds <= seconds:
            return None
        return f"a batch has been running for {self._batches.seconds:.0f} s: it is {self._batches.place}"

    @property
    def place(self) -> str:
        """Where the running batch is."""
        return self._batches.place

    def close(self) -> None:
        self.drop()
        self._batches.close()

    def _translated(self, spans: Spans) -> BatchOutcome:
        try:
            return self.run(spans)
        except CalvingError:
            raise
        except Exception as error:  # any library that a task of the local engine calls may raise it
            raise JobFailedError(f"the batch failed: {type(error).__name__}: {error}") from error
        finally:
            self._mark("batch")

    def run(self, spans: Spans) -> BatchOutcome:
        """Run one batch over these spans.

        :raises BadRecordError, DataLossError, ConfigError: an operator has to act.
        :raises UnavailableError: try again.
        """
        started = time.monotonic()
        rules = self._path.routing.rules
        named = {rule.table for rule in rules}
        self._tables.drop_unused(named)
        self._tables.refresh(named | self._tables.specs().keys())
        self._mark("loaded")
        try:
            tally = self._tally(spans, self._rounds(self._cut(spans)))
        except (CredentialsExpiredError, JobTooLongError) as error:
            raise self._too_large(error, sum(span.end - span.start for span in spans.values())) from error
        outcome = self._outcome(tally)
        self.fewer = None
        self.totals = tally.added_to(self.totals, time.monotonic() - started)
        if self.totals.count == 1:
            log.info("first batch finished %.1f s after the start", time.monotonic() - self._started)
        files = sum(len(files.data_files) for steps in outcome.written.values() for files in steps)
        done = f"{counted(outcome.records, 'record')}, {counted(files, 'file')}"
        log.info("batch: %s, %.2f s", done, time.monotonic() - started)
        return outcome

    def _too_large(self, error: CredentialsExpiredError | JobTooLongError, records: int) -> CalvingError:
        """The error to raise for a batch of ``records`` records that took longer than its credentials last, or than a
        job may take. The next batch is smaller.
        """
        self.fewer = max(_FEWEST, records // 2)
        text = f"{error}. The batch had {counted(records, 'record')}, the next has {self.fewer} at most"
        if isinstance(error, JobTooLongError):
            # Each smaller batch is an attempt of another kind. Only if no batch can be smaller, nothing changes.
            return UnavailableError(text) if self.fewer < records else error
        trouble = next(iter(self._tables.troubled.values()), None)
        if trouble is None:
            return CredentialsExpiredError(text)
        # Only loading the table brings new credentials, so this error lasts as long as the trouble with the table.
        return type(trouble)(f"{trouble}; the credentials of its last load are not accepted any more: {error}")

    def _rounds(self, ranges: Sequence[Sequence[Range]]) -> list[TaskResult]:
        """Run tasks until all records fit their tables. Each further round runs only tasks affected by schema changes.

        A new or wider column also affects tasks that have already written to its table. An empty list does not need a
        new column, but is written to it once another record needs it, and a double has more digits than a float. A
        record that was bad may fit now.
        """
        done: list[TaskResult] = []
        held_up: list[TaskResult] = []
        trial_run = False
        everything = dict(enumerate(ranges))
        waiting = everything
        for _ in range(_ROUNDS):
            tables = self._specs(whole=is_whole(ranges))
            tasks = [self._task(n, of_task, tables, trial_run=trial_run) for n, of_task in waiting.items()]
            results = self._engine.run(tasks)
            held_up = []
            for result in results:
                result.raise_error()
                (held_up if result.is_held_up else done).append(result)
            if not held_up:
                self._tables.check_access()
                return done
            is_unknown = _failed_by_unknown_record(held_up)
            trial_run = trial_run or is_unknown
            changes = _changes(held_up)
            if is_unknown or any(r.number == RECEIVED for r in results):
                # With a shuffle, files mix rows of all tasks, so all tasks run again.
                void, waiting = done, everything
            else:
                void = _void(done, changes)
                waiting = {r.number: everything[r.number] for r in (*held_up, *void)}
            self._discard(void)
            done = [r for r in done if r not in void]
            self._tables.apply(changes)
        raise ConfigError(
            f"after {_ROUNDS} rounds the tables still do not fit the records: {_described(_changes(held_up))}"
        )

    def _discard(self, results: Sequence[TaskResult]) -> None:
        for result in results:
            self._tables.delete_files(result.files)

    def _cut(self, spans: Spans) -> list[list[Range]]:
        """The ranges of each task. No partition is split if that saves the shuffle of a mutation table, and if the
        tasks are of about equal size.
        """
        slots = self._engine.slots
        in_steps = any(_in_steps(table) for table in self._tables.specs().values())
        return (cut_whole(spans, slots) if in_steps else None) or cut(spans, slots)

    def _specs(self, *, whole: bool) -> dict[str, TableSpec]:
        """``whole``: no partition is split over tasks."""
        return {
            name: replace(table, distribution="none") if whole and _in_steps(table) else table
            for name, table in self._tables.specs().items()
        }

    def _task(
        self, number: int, ranges: Sequence[Range], tables: Mapping[str, TableSpec], *, trial_run: bool
    ) -> TaskSpec:
        return TaskSpec(
            number,
            tuple(ranges),
            self._path,
            tables,
            self._tables.missing,
            refused=self._tables.refused,
            trial_run=trial_run,
        )

    def _tally(self, spans: Spans, results: Sequence[TaskResult]) -> Tally:
        tally = Tally(self._path.tolerance.table)
        for result in sorted(results, key=lambda result: result.number):
            tally.add(result)
        tally.check(spans)
        self._errors.check(tally.rejected, tally.read, tally.first_rejected)
        return tally

    def _outcome(self, found: Tally) -> BatchOutcome:
        files = {self._tables.reference(table): in_steps(its) for table, its in found.files.items()}
        if account := found.account:
            log.info("%s", account)
        for which, count in found.unnamed.items():
            log.warning("%s %s: taken as inserts", counted(count, "record"), which)
        for warning in found.warnings:
            log.warning("%s", warning)
        if found.rejected:
            log.warning("bad records: %d; the first: %s", found.rejected, found.first_rejected)
        letters = tuple(found.letters)
        return BatchOutcome(files, found.latest_us, found.read, found.size, letters, found.earliest_us)


def in_steps(files: Sequence[DataFile]) -> list[TableFiles]:
    """The files of one table as steps. Each key file begins a step, because it deletes rows from all files before
    it.
    """
    steps: list[TableFiles] = []
    for is_data, some in groupby(files, lambda file: file.content is FileContent.DATA):
        if not is_data or not steps:
            steps.append(TableFiles())
        name = "data_files" if is_data else "delete_files"
        steps[-1] = replace(steps[-1], **{name: tuple(some)})
    return steps


def _in_steps(table: TableSpec) -> bool:
    return table.mutations is not None and table.mutations.in_steps


def _changes(results: Sequence[TaskResult]) -> list[SchemaChange]:
    return [change for result in results for change in result.changes]


def _void(done: Sequence[TaskResult], changes: Sequence[SchemaChange]) -> list[TaskResult]:
    """Results that may differ once the tables have changed."""
    grown = {change.table for change in changes if change.kind in ("add", "widen")}
    return [result for result in done if grown and (result.bad_by_stage or grown & result.files.keys())]


def _failed_by_unknown_record(results: Sequence[TaskResult]) -> bool:
    """Whether writing failed because of a record that is not known yet."""
    reason = next((r.failed_by_unknown_record for r in results if r.failed_by_unknown_record is not None), None)
    if reason is not None:
        log.warning("a record breaks the batch, which runs again to find that record: %s", reason)
    return reason is not None


def _described(changes: Sequence[SchemaChange]) -> str:
    return "; ".join(f"table {change.table}: {change} {change.type or ''}".strip() for change in changes[:3])
