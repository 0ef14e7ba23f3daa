"""The task: reads its ranges, decodes, transforms, routes, casts and writes. It is the same in Spark and in this
process.
"""

from __future__ import annotations

import contextlib
import gc
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby

from calving.errors import AccountingError, first_line
from calving.model.dead_letters import Stage
from calving.model.offsets import Range
from calving.model.text import counted
from calving.records.arrays import Indices, without
from calving.records.failures import is_of_value
from calving.records.values import RecordError
from calving.secrets import know
from calving.source.opening import open_reader
from calving.source.reading import Block
from calving.storage_errors import store_error
from calving.tasks.letters import DeadLetters
from calving.tasks.pipeline import Pipeline
from calving.tasks.selection import Accounts, Timings
from calving.tasks.shuffle import Sample, ShuffleBlock, unpack
from calving.tasks.spec import RECEIVED, RangeResult, TaskResult, TaskSpec
from calving.tasks.write import Writer, replaced, writer_of

log = logging.getLogger(__name__)


def run(spec: TaskSpec) -> TaskResult:
    """Run a whole task without a shuffle. ``stream`` documents the result."""
    (result,) = stream(spec)
    if not isinstance(result, TaskResult):
        raise TypeError("a task without a shuffle has sent rows away")
    return result


def _settings(spec: TaskSpec) -> set[tuple[str, str]]:
    """The settings of the task's clients, as a configuration names them. Reasons of bad records show none of their
    secrets.
    """
    settings = {(f"kafka.{key}", value) for key, value in spec.path.kafka.items()}
    for table in spec.tables.values():
        settings |= {(f"iceberg.catalog.{key}", value) for key, value in table.io_properties.items()}
    for converters in spec.path.converters.values():
        for kind in (converters.key, converters.value):
            settings |= {(f"value.converter.{key}", value) for key, value in kind.options.items()}
    return settings


def stream(spec: TaskSpec) -> Iterator[ShuffleBlock | Sample | TaskResult]:
    """Run a task. Yields blocks of rows for other tasks, and at the end the result: files, and one result per range. If
    some record does not fit its table, the result has only schema changes, and the blocks are void.

    Raises errors that another attempt may fix. A bad record that is not tolerated, or a table that cannot be written
    with its properties, is an ``error`` of the result, and is not retried. After a result with
    ``failed_by_unknown_record`` all tasks run once more with ``trial_run``.
    """
    know("tasks", _settings(spec))
    task = _Task(spec)
    collecting = gc.isenabled()
    # The garbage collector tracks each message. Walking over all messages again and again costs more than reading them.
    gc.disable()
    try:
        yield from task.run()
    except BaseException as error:
        task.discard()
        failed = _failed(error, spec)
        if failed is None:
            raise
        yield failed
    finally:
        if collecting:
            gc.enable()


def _failed(error: BaseException, spec: TaskSpec, number: int | None = None) -> TaskResult | None:
    """The result of a task that failed; None if another attempt may help.

    :raises UnavailableError: another attempt may help, and the error's text has the answer of the store.
    """
    number = spec.number if number is None else number
    if (lasting := TaskResult.of_error(number, error)) is not None:
        return lasting
    if (of_store := store_error(error)) is not None:
        raise of_store from error
    if not is_of_value(error):
        return None
    reason = f"{type(error).__name__}: {first_line(error)}"
    log.error("a task failed with an error that a retry cannot fix", exc_info=error)
    if spec.trial_run:
        return TaskResult(number, error=f"the batch cannot be written, whichever record is left out: {reason}")
    return TaskResult(number, failed_by_unknown_record=reason)


@dataclass(slots=True)
class _RangeAccounts:
    """Counts the outcomes of the records of one range."""

    read: int = 0
    written: int = 0
    bad: int = 0
    filtered: Counter[str] = field(default_factory=Counter)
    size: int = 0
    earliest_ms: int | None = None
    latest_ms: int | None = None

    def add(self, block: Block, accounts: Accounts) -> None:
        self.read += len(block)
        self.written += accounts.written
        self.bad += len(accounts.bad)
        self.filtered.update(accounts.filtered)
        self.size += block.values.size
        if (times := block.first_and_last_ms) is not None:
            first, last = times
            self.earliest_ms = first if self.earliest_ms is None else min(first, self.earliest_ms)
            self.latest_ms = last if self.latest_ms is None else max(last, self.latest_ms)

    def result(self, source: Range) -> RangeResult:
        """The result of the range.

        :raises AccountingError: the accounts do not balance.
        """
        if self.read != self.written + self.bad + sum(self.filtered.values()):
            raise AccountingError(
                f"{source}: read {counted(self.read, 'record')}, wrote {self.written}, rejected {self.bad},"
                f" filtered {dict(self.filtered)}"
            )
        return RangeResult(
            range=source,
            read=self.read,
            written=self.written,
            bad=self.bad,
            filtered=dict(self.filtered),
            bytes=self.size,
            timestamp_ms=self.latest_ms,
            earliest_ms=self.earliest_ms,
        )


class _Task:
    def __init__(self, spec: TaskSpec) -> None:
        self._spec = spec
        self._timings = Timings()
        self._pipeline = Pipeline(spec, self._timings)
        self._reader = open_reader(spec.path.kafka, spec.path.limits, headers=self._pipeline.needs_headers)
        path = self._pipeline
        self._dead_letters = DeadLetters(spec, path.held, path.cast, path.changes, path.writers)
        self._unnamed: Counter[str] = Counter()
        self._warnings: dict[str, None] = {}

    def run(self) -> Iterator[ShuffleBlock | Sample | TaskResult]:
        spec, timings, dead, writers = self._spec, self._timings, self._dead_letters, self._pipeline.writers
        ranges = {source: _RangeAccounts() for source in spec.ranges}
        with contextlib.closing(self._reader.read(spec.ranges)) as blocks:
            yield from self._run_blocks(blocks, ranges)
        if self._pipeline.changes:
            timings.stop()
            self.discard()
            yield TaskResult(spec.number, changes=[*self._pipeline.changes.values()], stages=timings.seconds)
            return
        timings.start("write")
        closed = writers.close()
        timings.stop()
        if spec.shuffle:
            yield from writers.shuffled()
        yield TaskResult(
            spec.number,
            closed.files,
            [each.result(source) for source, each in ranges.items()],
            dead_letters=dead.for_topic,
            first_bad=dead.first,
            bad_by_stage=dict(dead.by_stage),
            shuffled=closed.sent,
            superseded=closed.superseded,
            deleted=closed.deleted,
            unnamed=dict(self._unnamed),
            warnings=[*self._warnings],
            stages=timings.seconds,
        )

    def discard(self) -> None:
        self._pipeline.writers.discard()

    def _run_blocks(
        self, blocks: Iterator[Block], ranges: Mapping[Range, _RangeAccounts]
    ) -> Iterator[ShuffleBlock | Sample]:
        while True:
            self._timings.start("fetch")
            block = next(blocks, None)
            if block is None:
                return
            block.values  # noqa: B018 - made here
            errors = self._find_failing_records(block) if self._spec.trial_run else []
            accounts = self._pipeline.run(block, without(len(block), {bad.index for bad in errors}) if errors else None)
            accounts.bad += errors
            if accounts.bad:
                self._dead_letters.add(block, accounts.bad)
            ranges[block.source].add(block, accounts)
            self._unnamed.update(accounts.unnamed)
            self._warnings |= accounts.warnings
            if self._spec.shuffle:
                self._timings.stop()
                yield from self._pipeline.writers.shuffled()

    def _find_failing_records(self, block: Block) -> list[RecordError]:
        """The records that make a step fail. They are found by running the block, and then its halves, without keeping
        any result.
        """
        errors: list[RecordError] = []
        pending: list[Indices] = [range(len(block))]
        while pending:
            places = pending.pop()
            try:
                accounts = self._pipeline.trial_run(block, places)
                errors += [bad for bad in accounts.bad if bad.stage == Stage.WRITING]
            except BaseException as error:
                if not is_of_value(error):
                    raise
                if len(places) == 1:
                    name = type(error).__name__
                    errors.append(RecordError(places[0], Stage(self._timings.step.upper()), name, first_line(error)))
                else:
                    half = len(places) // 2
                    pending += [places[half:], places[:half]]
        return errors


def receive(spec: TaskSpec, blocks: Iterable[ShuffleBlock]) -> TaskResult:
    """The receiving end of a shuffle: writes the blocks that tasks have sent. Blocks must come ordered by table and
    partition.
    """
    stages = Timings()
    writers: dict[str, Writer] = {}
    taken = 0
    try:
        stages.start("write")
        for (table, _), blocks_of_table in groupby(blocks, lambda block: (block.table, block.partition)):
            if table not in writers:
                writers[table] = writer_of(spec, table)
            taken += _taken(writers[table], blocks_of_table, spec.path.limits.buffered_bytes)
        files = {table: writer.close() for table, writer in writers.items()}
        stages.stop()
    except BaseException as error:
        for writer in writers.values():
            writer.discard()
        failed = _failed(error, spec, RECEIVED)
        if failed is None:
            raise
        return failed
    superseded, deleted = replaced(writers.values())
    return TaskResult(RECEIVED, files, shuffled=-taken, superseded=superseded, deleted=deleted, stages=stages.seconds)


def _taken(writer: Writer, blocks: Iterable[ShuffleBlock], most: int) -> int:
    """Write all blocks of one partition or range. Returns their number of rows."""
    taken = 0
    for rows in (rows for block in blocks for rows in unpack(block.rows)):
        taken += rows.num_rows
        writer.write(rows)
        while writer.buffered_bytes > most:
            writer.flush_largest()
    writer.end()
    return taken


def run_json(text: str) -> str:
    """``run`` for engines that ship text."""
    return run(TaskSpec.from_json(text)).to_json()
