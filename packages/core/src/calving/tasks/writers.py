"""The writers of one task, and its shuffle blocks, by table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from calving.errors import AccountingError, first_line
from calving.model.dead_letters import Stage
from calving.model.files import DataFile
from calving.model.text import counted
from calving.records.failures import is_of_value
from calving.records.values import RecordError
from calving.tasks.shuffle import Sample, ShuffleBlock, ShuffleWriter
from calving.tasks.spec import TaskSpec
from calving.writing.layout import Placed
from calving.writing.mutations import ChangeWriter
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


class Writers:
    """The writers of one task, with one bound on their memory."""

    def __init__(self, spec: TaskSpec) -> None:
        self._spec = spec
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
                writer = self._writers[table] = writer_of(spec, table)
        return writer

    def prepare(
        self, table: str, rows: pa.RecordBatch, places: Sequence[int], bad: dict[int, RecordError], *, trial: bool
    ) -> list[tuple[str, Placed]]:
        """Prepare rows for ``accept``, in as few parts as possible. Rows that cannot be written are added to ``bad``.

        ``places``: the place of each row among the values. ``trial``: rows are also written to a file in memory.
        """
        writer = self.of(table)
        pending = [(0, rows.num_rows)]
        ready: list[tuple[str, Placed]] = []
        while pending:
            start, count = pending.pop()
            part = rows.slice(start, count) if count < rows.num_rows else rows
            try:
                if trial:
                    writer.trial(part)
                ready.append((table, writer.prepare(part)))
            except BaseException as error:
                if not is_of_value(error):
                    raise
                if count == 1:
                    reason = f"table {table}: {first_line(error)}"
                    bad[places[start]] = RecordError(places[start], Stage.WRITING, type(error).__name__, reason)
                else:
                    half = count // 2
                    pending += [(start + half, count - half), (start, half)]
        return ready

    def accept(self, table: str, rows: Placed) -> None:
        """Take rows that were prepared."""
        self.of(table).accept(rows)

    def flush_largest(self) -> None:
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

    @property
    def sent(self) -> int:
        """The number of rows that other tasks write."""
        return sum(sender.rows for sender in self._shuffle_writers.values())

    @property
    def replaced(self) -> tuple[int, int]:
        """The result of the function ``replaced`` for all writers."""
        return replaced(self._writers.values())

    def close(self) -> dict[str, list[DataFile]]:
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
        return files

    def discard(self) -> None:
        """Give up, and delete the written files, ignoring errors."""
        for writer in self._writers.values():
            writer.discard()
        for sender in self._shuffle_writers.values():
            sender.discard()
        self._writers.clear()
        self._shuffle_writers.clear()
