"""Writes rows: the writers of one task, and its shuffle blocks, by table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from calving.casting.converted import TableRows
from calving.errors import AccountingError, first_line
from calving.model.dead_letters import Stage
from calving.model.files import DataFile
from calving.model.text import counted
from calving.records.arrays import Indices, chosen_rows, compose
from calving.records.failures import is_of_value
from calving.records.values import RecordError
from calving.tasks.shuffle import Sample, ShuffleBlock, ShuffleWriter
from calving.tasks.spec import TaskSpec
from calving.writing.layout import Placed
from calving.writing.mutations import ChangeWriter
from calving.writing.partitioning import LONGEST_VALUE
from calving.writing.table import TableWriter

Writer = TableWriter | ChangeWriter


def writer_of(spec: TaskSpec, table: str) -> Writer:
    """A writer for a table's rows."""
    target = spec.tables[table]
    kind = TableWriter if target.mutations is None else ChangeWriter
    return kind(target, spec.number, spec.path.limits)


def replaced(writers: Iterable[Writer]) -> tuple[int, int]:
    """The numbers of changes that a later change of the same key replaced, and of changes that left no row."""
    change_writers = [writer for writer in writers if isinstance(writer, ChangeWriter)]
    return sum(writer.superseded for writer in change_writers), sum(writer.deleted for writer in change_writers)


class Closed(NamedTuple):
    """What a task has written: its files by table, the changes of rows that a later change of the same key replaced,
    the changes that left no row, and the number of rows that other tasks write.
    """

    files: dict[str, list[DataFile]]
    superseded: int
    deleted: int
    sent: int


class Writers:
    """The writers of one task, with one bound on their memory."""

    def __init__(self, spec: TaskSpec, make: Callable[[TaskSpec, str], Writer] = writer_of) -> None:
        """``make``: makes the writer of a table."""
        self._spec, self._make = spec, make
        self._writers: dict[str, Writer] = {}
        self._shuffle_writers: dict[str, ShuffleWriter] = {}

    def of(self, table: str) -> Writer | ShuffleWriter:
        """The writer, or shuffle writer, of a table."""
        writer = self._writers.get(table) or self._shuffle_writers.get(table)
        if writer is None:
            spec, target = self._spec, self._spec.tables[table]
            if spec.shuffle and target.distribution != "none":
                writer = self._shuffle_writers[table] = ShuffleWriter(target, ranges=target.distribution == "range")
            else:
                writer = self._writers[table] = self._make(spec, table)
        return writer

    def write(self, converted: Sequence[TableRows], bad: dict[int, RecordError]) -> None:
        """Write the rows, but none of a bad value. Values that only a writer finds to be wrong are added to ``bad``."""
        ready = _checked(self.of, _prepared, converted, bad)
        for table, rows in ready:
            self.of(table).accept(rows)
        self._flush_largest()

    def _flush_largest(self) -> None:
        """Flush the largest buffers until all are within the limit."""
        most = self._spec.path.limits.buffered_bytes
        while sum(w.buffered_bytes for w in self._writers.values()) > most:
            max(self._writers.values(), key=lambda w: w.buffered_bytes).flush_largest()
        while sum(w.waiting for w in self._shuffle_writers.values()) > most:
            max(self._shuffle_writers.values(), key=lambda w: w.waiting).flush_largest()

    def shuffled(self) -> Iterator[ShuffleBlock | Sample]:
        """The packed rows that other tasks write."""
        for sender in self._shuffle_writers.values():
            yield from sender.take()

    def close(self) -> Closed:
        """Finish all files, and pack the remaining rows for other tasks.

        :raises AccountingError: the files of a table do not hold the rows that were handed over.
        """
        for sender in self._shuffle_writers.values():
            sender.finish()
        files = {table: writer.close() for table, writer in self._writers.items()}
        for table, writer in self._writers.items():
            written = sum(file.record_count for file in files[table])
            if isinstance(writer, TableWriter) and written != writer.rows:
                given = counted(writer.rows, "row was", "rows were")
                raise AccountingError(
                    f"table {table}: {given} handed over, its files hold {written}; "
                    "nothing is published: report this as a bug in calving"
                )
        sent = sum(sender.rows for sender in self._shuffle_writers.values())
        return Closed(files, *replaced(self._writers.values()), sent)

    def discard(self) -> None:
        """Give up, and delete the written files, ignoring errors."""
        for writer in self._writers.values():
            writer.discard()
        for sender in self._shuffle_writers.values():
            sender.discard()
        self._writers.clear()
        self._shuffle_writers.clear()


class Trial:
    """Writes rows into files in memory, which are thrown away, to find bad ones."""

    def __init__(self, writers: Writers) -> None:
        self._writers = writers

    def write(self, converted: Sequence[TableRows], bad: dict[int, RecordError]) -> None:
        """Values that cannot be written are added to ``bad``."""
        _checked(self._writers.of, _tried, converted, bad)


def refusals(spec: TaskSpec, converted: Sequence[TableRows]) -> dict[int, RecordError]:
    """The values that the writers of these tables refuse, by index. Nothing is written, and no file is opened."""
    bad: dict[int, RecordError] = {}
    writers: dict[str, ShuffleWriter] = {}

    def of(table: str) -> ShuffleWriter:
        if table not in writers:
            writers[table] = ShuffleWriter(spec.tables[table])
        return writers[table]

    _checked(of, _tried if spec.trial_run else _prepared, converted, bad)
    return bad


Check = Callable[[Writer | ShuffleWriter, pa.RecordBatch], Placed]


def _prepared(writer: Writer | ShuffleWriter, rows: pa.RecordBatch) -> Placed:
    return writer.prepare(rows, LONGEST_VALUE)


def _tried(writer: Writer | ShuffleWriter, rows: pa.RecordBatch) -> Placed:
    writer.trial(rows)
    return writer.prepare(rows, LONGEST_VALUE)


def _checked(
    writer_of: Callable[[str], Writer | ShuffleWriter],
    check: Check,
    converted: Sequence[TableRows],
    bad: dict[int, RecordError],
) -> list[tuple[str, Placed]]:
    """The rows, ready to be written. A value that is wrong for one table has rows in none."""
    while True:
        ready: list[tuple[str, Placed]] = []
        known = len(bad)
        for table, part in converted:
            if part.rows is None:
                continue
            here = [row for row, i in enumerate(part.index) if i not in bad] if bad else part.index
            kept = compose(part.index, here) if bad else part.index
            rows = part.rows if len(kept) == len(part.index) else chosen_rows(part.rows, here)
            if rows.num_rows:
                ready += ((table, placed) for placed in _placed(table, writer_of(table), check, rows, kept, bad))
        if len(bad) == known:
            return ready


def _placed(
    table: str,
    writer: Writer | ShuffleWriter,
    check: Check,
    rows: pa.RecordBatch,
    places: Indices,
    bad: dict[int, RecordError],
) -> Iterator[Placed]:
    """The rows in as few parts as possible. ``places``: the index of each row's value."""
    pending = [(0, rows.num_rows)]
    while pending:
        start, count = pending.pop()
        part = rows.slice(start, count) if count < rows.num_rows else rows
        try:
            placed = check(writer, part)
        except BaseException as error:
            if not is_of_value(error):
                raise
            if count == 1:
                reason = f"table {table}: {first_line(error)}"
                bad[places[start]] = RecordError(places[start], Stage.WRITING, type(error).__name__, reason)
            else:
                half = count // 2
                pending += [(start + half, count - half), (start, half)]
        else:
            yield placed
