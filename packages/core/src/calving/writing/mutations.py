"""Writes changes of rows into the files of a mutation table: data files, and key files of the rows to delete (rules M3
to M5).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Protocol
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.transforms import BucketTransform

from calving.errors import AccountingError
from calving.model.files import DataFile
from calving.model.record_path import Limits
from calving.model.tables import TableSpec
from calving.model.text import counted
from calving.records.arrays import joined
from calving.records.fields import table_schema
from calving.storage_errors import name_file
from calving.writing.changes import (
    DELETE,
    KEPT,
    OPERATION,
    TRUNCATE,
    LastChanges,
    identity_of,
    is_operation,
    optional,
    rows_of,
)
from calving.writing.joining import ChangeJoiner
from calving.writing.key_files import KeyWriter, PartialRowWriter, VersionKeyWriter
from calving.writing.keys import key
from calving.writing.layout import Layout, Placed
from calving.writing.partitioning import divide
from calving.writing.sources import truncate_column
from calving.writing.table import BufferedWriter, TableWriter
from calving.writing.truncates import Truncates
from calving.writing.versions import VersionChain, VersionColumns

BUCKETS = 64
"""The number of parts into which keys are divided if rows go to other tasks, or do not fit into memory."""
_ROWS_AT_ONCE = 64 * 1024


class ChangeLayout(Layout):
    """Changes of rows, divided by buckets of their keys if they are sent to other tasks.

    :raises ConfigError: the table's schema, spec, order or properties do not allow writing it.
    """

    def __init__(self, table: TableSpec, *, buckets: bool) -> None:
        super().__init__(table)
        assert table.mutations is not None  # noqa: S101 - else rows are appended
        self.identity = identity_of(table)
        self._keeps_deleted = table.mutations.delete_mode == "soft"
        schema = table_schema(table.schema_json)
        truncate = truncate_column(table.name, schema, table.mutations)
        self._compared = (*self.identity.compared, *([] if truncate is None else [truncate]))
        self._key_of = [
            key(schema, column.field_id, BucketTransform(BUCKETS))
            for column in self.identity.columns
            if BucketTransform(BUCKETS).can_transform(schema.find_type(column.field_id))
        ]
        self._divides = buckets
        lacking = optional(schema, frozenset(schema.field_ids))
        keeps = table.mutations.keeps
        self._partial = Layout(replace(table, schema_json=lacking.model_dump_json())) if keeps else self
        """That of partial rows, which may lack any column."""

    def staying(self, changes: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of the changes that add a row."""
        rows, operations = rows_of(changes), changes.column(OPERATION)
        return rows if self._keeps_deleted else _where(rows, pc.less(operations, pa.scalar(DELETE, pa.int8())))

    def place(self, rows: pa.RecordBatch, longest: int | None = None) -> Placed:
        """The changes with their buckets, after checking that all can be written, and found again."""
        for layout, staying in self._forms(rows):
            self._check(layout, staying, longest)
        return self._divided(rows) if self._divides else (rows, 0)

    def _forms(self, changes: pa.RecordBatch) -> Iterator[tuple[Layout, pa.RecordBatch]]:
        """The rows of the changes that add a row, whole ones and partial ones, with their layouts."""
        forms: list[tuple[Layout, pa.RecordBatch]] = [(self, changes)]
        if changes.column(KEPT).null_count < changes.num_rows:
            is_whole = changes.column(KEPT).is_null()
            forms = [(self, changes.filter(is_whole)), (self._partial, changes.filter(pc.invert(is_whole)))]
        for layout, some in forms:
            if (staying := self.staying(some)).num_rows:
                yield layout, staying

    def _divided(self, rows: pa.RecordBatch) -> Placed:
        """The changes with their buckets. Truncate events go to all buckets, because any may have earlier changes."""
        is_truncate = is_operation(rows.column(OPERATION), TRUNCATE)
        if not pc.any(is_truncate, min_count=0).as_py():
            return rows, self.buckets(rows)
        changes, truncates = rows.filter(pc.invert(is_truncate)), rows.filter(is_truncate)
        each = [bucket for bucket in range(BUCKETS) for _ in range(truncates.num_rows)]
        numbers = pa.concat_arrays([self.buckets(changes), pa.array(each, pa.int32())])
        return pa.concat_batches([changes, *[truncates] * BUCKETS]), numbers

    def trial(self, rows: pa.RecordBatch) -> None:
        for layout, staying in self._forms(rows):
            layout._try(self._check(layout, staying)[0])

    def _check(self, layout: Layout, staying: pa.RecordBatch, longest: int | None = None) -> Placed:
        placed = Layout.place(layout, staying, longest)
        for column in self._compared:
            self.format.check_compared(column.name, column.of(staying))
        return placed

    def path(self, number: int) -> str:
        return f"{number:04d}"

    def buckets(self, rows: pa.RecordBatch) -> pa.Array:
        """The bucket of each row's key."""
        numbers = pa.repeat(pa.scalar(0, pa.int64()), rows.num_rows)
        for bucket in self._key_of:
            numbers = pc.add(pc.multiply(numbers, 31), bucket(rows))
        return pc.bit_wise_and(numbers, BUCKETS - 1).cast(pa.int32())


class _FileWriter(Protocol):
    """Writes some of the files of a table's changes."""

    @property
    def buffered_bytes(self) -> int: ...

    def flush_largest(self) -> None: ...

    def discard(self) -> None: ...


class ChangeWriter(BufferedWriter):
    """Writes a mutation table's changes for one task. If changes do not fit into memory, they are spilled to local
    disk; or they become a step of their own, if the task has read whole partitions.

    ``superseded`` counts changes that a later change of the same key, or a truncate event of all rows, replaced.
    ``deleted`` counts changes that left no row, also because of a truncate event of one source. Truncate events are not
    counted: they delete rows from earlier files, and earlier changes of their source partition (M12).
    """

    def __init__(self, table: TableSpec, task: int, limits: Limits, last: LastChanges | None = None) -> None:
        """``last``: what is left of the changes of a key, if the settings alone do not say it."""
        layout = ChangeLayout(table, buckets=False)
        super().__init__(layout, 1 << 62)
        assert table.mutations is not None  # noqa: S101 - else rows are appended
        self._changes, self._limits = layout, limits
        self._name = table.name
        writer = uuid4()
        self._data = TableWriter(table, task, limits, writer)
        self._last: LastChanges | VersionChain = last or LastChanges(layout.identity, table.mutations)
        self._keys = KeyWriter(table, layout.identity, task, limits, writer)
        self._versions: VersionKeyWriter | None = None
        if table.mutations.has_versions:
            schema = table_schema(table.schema_json)
            places = VersionColumns.of(schema, table.mutations.order_field).places(schema)
            self._last = VersionChain(layout.identity, table.mutations, places)
            self._versions = VersionKeyWriter(table, layout.identity, places, task, limits, writer)
        keeps = table.mutations.keeps
        self._partial = PartialRowWriter(table, layout.identity, task, limits) if keeps else None
        self._joiner = ChangeJoiner(table, layout.identity)
        self._spilt: _Spilt | None = None
        self._in_steps = table.distribution == "none"
        self._files: list[DataFile] = []
        self._truncates = Truncates(table, layout.identity, task, limits)
        self.superseded = self.deleted = 0

    def accept(self, rows: Placed) -> None:
        changes, numbers = rows
        is_truncate = is_operation(changes.column(OPERATION), TRUNCATE)
        if pc.any(is_truncate, min_count=0).as_py():
            self._truncates.take(changes.filter(is_truncate))
            changes = changes.filter(pc.invert(is_truncate))
        super().accept((changes, numbers))

    @property
    def buffered_bytes(self) -> int:
        """About how many bytes are held in memory."""
        return self._waiting.bytes + sum(writer.buffered_bytes for writer in self._writers)

    @property
    def _writers(self) -> tuple[_FileWriter, ...]:
        others = (writer for writer in (self._partial, self._versions) if writer is not None)
        return (self._data, self._keys, *others)

    def flush_largest(self) -> None:
        """Flush a part of the buffered rows."""
        largest = max(self._writers, key=lambda writer: writer.buffered_bytes)
        if self._waiting.bytes < largest.buffered_bytes:
            largest.flush_largest()
            return
        if self._in_steps:
            self._finish()
            return
        self._spilt = self._spilt or _Spilt()
        for _, rows in self._waiting.all():
            # Joined, because each part of a bucket costs as much later as some hundred changes.
            batch = joined(rows)
            for bucket, part in divide(batch, self._changes.buckets(batch)):
                self._spilt.add(bucket, part)

    def end(self) -> None:
        """All changes of the keys taken so far have been taken."""
        if self._spilt is None:
            self._settle(self._waiting.taken())
            return
        self.flush_largest() if self._waiting.bytes else None
        spilt, self._spilt = self._spilt, None
        for changes in spilt.take():
            self._settle(changes)

    def close(self) -> list[DataFile]:
        """Finish all files. Key files come before the data files of their step: they delete from all files before them.

        :raises AccountingError: a change is not accounted for.
        """
        self._finish()
        written = sum(file.rows for file in self._files)
        if self.rows != written + self.superseded + self.deleted:
            raise AccountingError(
                f"table {self._name}: {counted(self.rows, 'change was', 'changes were')} handed over,"
                f" {counted(written, 'row')} written, {self.superseded} superseded, {self.deleted} deleted"
            )
        return self._files

    def _finish(self) -> None:
        """Finish the files of the changes taken so far."""
        self.end()
        known = {file.file_path for file in self._files}
        self._files += self._truncates.finish()
        others = [file for each in (self._partial, self._versions) if each is not None for file in each.close()]
        finished = (*self._keys.close(), *others, *self._data.close())
        self._files += [file for file in finished if file.file_path not in known]

    def discard(self) -> None:
        """Give up, and delete the written files as far as possible."""
        if self._spilt is not None:
            self._spilt.close()
        self._waiting.clear()
        for writer in self._writers:
            writer.discard()

    def _settle(self, changes: Sequence[pa.RecordBatch]) -> None:
        """Write the last change of each key, or its versions; no other changes have these keys."""
        self.superseded += sum(part.num_rows for part in changes)
        changes = [left for part in changes if (left := self._truncates.undone(part)).num_rows]
        if not changes:
            return
        for last, replaces in self._last.of(self._joiner.joined(changes)):
            self.superseded -= last.num_rows
            is_whole = last.column(KEPT).is_null()
            if self._partial is not None:
                self._partial.write(_where(last, pc.invert(is_whole)))
            whole = _where(last, is_whole)
            staying = self._changes.staying(whole)
            self.deleted += whole.num_rows - staying.num_rows
            for start in range(0, staying.num_rows, _ROWS_AT_ONCE):
                self._data.write(staying.slice(start, _ROWS_AT_ONCE))
                while self._data.buffered_bytes > self._limits.buffered_bytes:
                    self._data.flush_largest()
            (self._versions or self._keys).write(_where(last, pc.and_(replaces, is_whole)))

    def _append(self, number: int, rows: pa.Table) -> None:
        raise AssertionError("changes wait until all of their keys have come")


def _where(rows: pa.RecordBatch, mask: pa.Array) -> pa.RecordBatch:
    """The rows of the mask. They are not copied if the mask selects all."""
    return rows if _all(mask) else rows.filter(mask)


def _all(mask: pa.Array) -> bool:
    return bool(pc.all(mask, min_count=0).as_py())


class _Spilt:
    """Changes on local disk, by bucket."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="calving-changes-")))
        self._writers: dict[int, pa.ipc.RecordBatchStreamWriter] = {}

    def add(self, bucket: int, rows: pa.RecordBatch) -> None:
        path = str(self._folder / str(bucket))
        try:
            if bucket not in self._writers:
                sink = self._stack.enter_context(pa.OSFile(path, "wb"))
                self._writers[bucket] = pa.ipc.new_stream(sink, rows.schema)
            self._writers[bucket].write_batch(rows)
        except OSError as error:
            name_file(error, path)
            raise

    def take(self) -> Iterator[list[pa.RecordBatch]]:
        """Take out the changes of each bucket, one bucket after the other."""
        for writer in self._writers.values():
            writer.close()
        with self._stack:
            for bucket in self._writers:
                with pa.OSFile(str(self._folder / str(bucket))) as source, pa.ipc.open_stream(source) as stream:
                    yield list(stream)

    def close(self) -> None:
        """Drop everything."""
        self._stack.close()
