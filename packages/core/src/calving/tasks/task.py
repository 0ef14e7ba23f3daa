"""The task: reads its ranges, decodes, transforms, routes, converts and writes. It is the same in Spark and in this
process.
"""

from __future__ import annotations

import contextlib
import gc
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from calving.errors import AccountingError, BadRecordError, first_line
from calving.model.dead_letters import DeadLetter, Stage, origin
from calving.model.ranges import Range
from calving.model.text import counted
from calving.records.arrays import Indices, without
from calving.records.failures import is_of_value
from calving.records.values import RecordError
from calving.secrets import know
from calving.source.opening import open_reader
from calving.source.reading import UNREADABLE, Block, headers_of
from calving.storage_errors import store_error
from calving.tasks.delivery import Delivery
from calving.tasks.outcome import Outcome
from calving.tasks.pipeline import Pipeline
from calving.tasks.result import RECEIVED, RangeResult, TaskResult
from calving.tasks.shuffle import Sample, ShuffleBlock, unpack
from calving.tasks.spec import TaskSpec
from calving.tasks.timings import Timings
from calving.tasks.writers import Writer, replaced, writer_of

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
    with its properties, is an ``error`` of the result, and is not retried. After an ``unclear`` result all tasks run
    once more with ``careful``.
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
    if spec.careful:
        return TaskResult(number, error=f"the batch cannot be written, whichever record is left out: {reason}")
    return TaskResult(number, unclear=reason)


@dataclass(slots=True)
class _RangeAccounts:
    """Counts the outcomes of the records of one range."""

    read: int = 0
    written: int = 0
    bad: int = 0
    filtered: Counter[str] = field(default_factory=Counter)
    size: int = 0
    latest_ms: int | None = None

    def add(self, block: Block, outcome: Outcome) -> None:
        self.read += len(block)
        self.written += outcome.written
        self.bad += len(outcome.bad)
        self.filtered.update(outcome.filtered)
        self.size += block.size
        latest = block.latest_ms
        if latest is not None:
            self.latest_ms = latest if self.latest_ms is None else max(latest, self.latest_ms)

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
        )


class _Task:
    def __init__(self, spec: TaskSpec) -> None:
        self._spec = spec
        self._timings = Timings()
        self._delivery = Delivery(spec, self._timings)
        self._pipeline = Pipeline(spec, self._delivery, self._timings)
        self._reader = open_reader(spec.path.kafka, spec.path.limits, headers=self._pipeline.needs_headers)
        self._dead_letters: list[DeadLetter] = []
        self._bad = 0
        self._first_bad: str | None = None
        self._bad_by_stage: Counter[str] = Counter()
        self._unnamed: Counter[str] = Counter()

    def run(self) -> Iterator[ShuffleBlock | Sample | TaskResult]:
        spec = self._spec
        accounts = {source: _RangeAccounts() for source in spec.ranges}
        with contextlib.closing(self._reader.read(spec.ranges)) as blocks:
            yield from self._run_blocks(blocks, accounts)
        changes, writers = self._delivery.changes, self._delivery.writers
        if changes:
            self.discard()
            yield TaskResult(spec.number, changes=changes, stages=self._timings.seconds)
            return
        with self._timings("write"):
            files = writers.close()
        yield from writers.shuffled()
        superseded, deleted = writers.replaced
        yield TaskResult(
            spec.number,
            files,
            [each.result(source) for source, each in accounts.items()],
            dead_letters=self._dead_letters,
            first_bad=self._first_bad,
            bad_by_stage=dict(self._bad_by_stage),
            shuffled=writers.sent,
            superseded=superseded,
            deleted=deleted,
            unnamed=dict(self._unnamed),
            stages=self._timings.seconds,
        )

    def discard(self) -> None:
        self._delivery.writers.discard()

    def _run_blocks(
        self, blocks: Iterator[Block], accounts: Mapping[Range, _RangeAccounts]
    ) -> Iterator[ShuffleBlock | Sample]:
        while True:
            with self._timings("fetch"):
                block = next(blocks, None)
                if block is None:
                    return
                block.values  # noqa: B018 - made here
            errors = self._rehearse(block) if self._spec.careful else []
            outcome = self._pipeline.run(block, without(len(block), {bad.index for bad in errors}))
            outcome.bad += errors
            self._reject(block, outcome.bad)
            accounts[block.source].add(block, outcome)
            self._unnamed.update(outcome.unnamed)
            yield from self._delivery.writers.shuffled()

    def _rehearse(self, block: Block) -> list[RecordError]:
        """The records that make a step fail. They are found by running the block, and then its halves, without keeping
        any result.
        """
        errors: list[RecordError] = []
        pending: list[Indices] = [range(len(block))]
        while pending:
            places = pending.pop()
            try:
                outcome = self._pipeline.run(block, places, trial=True)
                errors += [bad for bad in outcome.bad if bad.stage == Stage.WRITING]
            except BaseException as error:
                if not is_of_value(error):
                    raise
                if len(places) == 1:
                    name = type(error).__name__
                    errors.append(RecordError(places[0], Stage(self._timings.last.upper()), name, first_line(error)))
                else:
                    half = len(places) // 2
                    pending += [places[half:], places[:half]]
        return errors

    def _reject(self, block: Block, bad: Sequence[RecordError]) -> None:
        if not bad:
            return
        bad = sorted(bad, key=lambda b: b.index)
        tolerance = self._spec.path.tolerance
        fatal = next((b for b in bad if b.fatal or tolerance.to == "error"), None)
        if fatal is not None:
            raise BadRecordError(_located(block, fatal))
        if self._first_bad is None:
            self._first_bad = _located(block, bad[0])
        self._bad += len(bad)
        self._bad_by_stage.update(b.stage for b in bad)
        if self._bad > tolerance.at_most:
            raise BadRecordError(
                f"more than errors.max-per-batch = {tolerance.at_most} bad records; the first: {self._first_bad}"
            )
        letters = [self._letter(block, b) for b in bad]
        if tolerance.to == "topic":
            self._dead_letters += letters
        else:
            self._delivery.dead_letters(letters, block, [b.index for b in bad])

    def _letter(self, block: Block, bad: RecordError) -> DeadLetter:
        i = bad.index
        place = (block.source.topic, block.source.partition, block.offsets[i].as_py())
        headers, reason = headers_of(block, i), bad.reason
        if headers is None:
            headers, reason = (), reason if reason == UNREADABLE else f"{reason}; {UNREADABLE}"
        if self._spec.path.tolerance.replayed:
            place = origin(headers) or place
        topic, partition, offset = place
        return DeadLetter(
            topic=topic,
            partition=partition,
            offset=offset,
            timestamp_ms=block.timestamps_ms[i].as_py(),
            key=block.keys[i],
            value=block.values[i],
            headers=headers,
            stage=bad.stage,
            error=bad.error,
            reason=reason,
        )


def _located(block: Block, bad: RecordError) -> str:
    source = block.source
    return (
        f"topic '{source.topic}', partition {source.partition}, offset {block.offsets[bad.index].as_py()}: {bad.reason}"
    )


def receive(spec: TaskSpec, blocks: Iterable[ShuffleBlock]) -> TaskResult:
    """The receiving end of a shuffle: writes the blocks that tasks have sent. Blocks must come ordered by table and
    partition.
    """
    stages = Timings()
    writers: dict[str, Writer] = {}
    taken = 0
    try:
        with stages("write"):
            for (table, _), blocks_of_table in groupby(blocks, lambda block: (block.table, block.partition)):
                if table not in writers:
                    writers[table] = writer_of(spec, table)
                taken += _taken(writers[table], blocks_of_table, spec.path.limits.buffered_bytes)
            files = {table: writer.close() for table, writer in writers.items()}
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
