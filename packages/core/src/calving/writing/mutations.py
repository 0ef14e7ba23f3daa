"""Writes changes of rows into the files of a mutation table: data files, and key files of the rows to delete (rules M3
to M5).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.transforms import BucketTransform

from calving.errors import AccountingError
from calving.model.files import DELETES, KEYS, DataFile, FileContent
from calving.model.record_path import Limits
from calving.model.tables import TableSpec
from calving.model.text import counted
from calving.records.arrays import joined
from calving.records.fields import arrow_schema, table_schema
from calving.storage_errors import name_file
from calving.writing.changes import DELETE, OPERATION, Identity, LastChanges, identity_of, pruned, rows_of
from calving.writing.keys import key
from calving.writing.layout import Layout, Placed
from calving.writing.partitioning import divide
from calving.writing.table import BufferedWriter, TableWriter

BUCKETS = 64
"""The number of parts into which keys are divided if rows go to other tasks, or do not fit into memory."""
_ROWS_AT_ONCE = 64 * 1024
_BLOOM = "write.parquet.bloom-filter-"
_METRICS = "write.metadata.metrics."


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
        self._key_of = [
            key(schema, column.field_id, BucketTransform(BUCKETS))
            for column in self.identity.columns
            if BucketTransform(BUCKETS).can_transform(schema.find_type(column.field_id))
        ]
        self._divides = buckets

    def staying(self, changes: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of the changes that add a row."""
        rows = rows_of(changes)
        return rows if self._keeps_deleted else _where(rows, pc.not_equal(changes.column(OPERATION), DELETE))

    def place(self, rows: pa.RecordBatch, longest: int | None = None) -> Placed:
        """The changes with their buckets, after checking that all can be written, and found again."""
        staying = self.staying(rows)
        if staying.num_rows:
            self._place(staying, longest)
        return rows, self.buckets(rows) if self._divides else 0

    def trial(self, rows: pa.RecordBatch) -> None:
        staying = self.staying(rows)
        if staying.num_rows:
            self._try(self._place(staying)[0])

    def _place(self, staying: pa.RecordBatch, longest: int | None = None) -> Placed:
        placed = super().place(staying, longest)
        for column in self.identity.compared:
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


class ChangeWriter(BufferedWriter):
    """Writes a mutation table's changes for one task. If changes do not fit into memory, they are spilled to local
    disk; or they become a step of their own, if the task has read whole partitions.

    ``superseded`` counts changes that a later change of the same key replaced. ``deleted`` counts changes that left no
    row.
    """

    def __init__(self, table: TableSpec, task: int, limits: Limits) -> None:
        layout = ChangeLayout(table, buckets=False)
        super().__init__(layout, 1 << 62)
        assert table.mutations is not None  # noqa: S101 - else rows are appended
        self._changes, self._limits = layout, limits
        self._last = LastChanges(layout.identity, table.mutations)
        self._name = table.name
        writer = uuid4()
        self._data = TableWriter(table, task, limits, writer)
        self._keys = KeyWriter(table, layout.identity, task, limits, writer)
        self._spilt: _Spilt | None = None
        self._in_steps = table.distribution == "none"
        self._files: list[DataFile] = []
        self.superseded = self.deleted = 0

    @property
    def buffered_bytes(self) -> int:
        """About how many bytes are held in memory."""
        return self._waiting.bytes + self._data.buffered_bytes + self._keys.buffered_bytes

    def flush_largest(self) -> None:
        """Flush a part of the buffered rows."""
        if self._waiting.bytes < max(self._data.buffered_bytes, self._keys.buffered_bytes):
            larger = self._data if self._data.buffered_bytes >= self._keys.buffered_bytes else self._keys
            larger.flush_largest()
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
        written = sum(file.record_count for file in self._files if file.content is FileContent.DATA)
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
        self._files += [file for file in (*self._keys.close(), *self._data.close()) if file.file_path not in known]

    def discard(self) -> None:
        """Give up, and delete the written files as far as possible."""
        if self._spilt is not None:
            self._spilt.close()
        self._waiting.clear()
        self._data.discard()
        self._keys.discard()

    def _settle(self, changes: Sequence[pa.RecordBatch]) -> None:
        """Write the last change of each key; no other changes have these keys."""
        if not changes:
            return
        self.superseded += sum(part.num_rows for part in changes)
        for last, replaces in self._last.of(changes):
            staying = self._changes.staying(last)
            self.superseded -= last.num_rows
            self.deleted += last.num_rows - staying.num_rows
            for start in range(0, staying.num_rows, _ROWS_AT_ONCE):
                self._data.write(staying.slice(start, _ROWS_AT_ONCE))
                while self._data.buffered_bytes > self._limits.buffered_bytes:
                    self._data.flush_largest()
            self._keys.write(_where(last, replaces))

    def _append(self, number: int, rows: pa.Table) -> None:
        raise AssertionError("changes wait until all of their keys have come")


class KeyWriter:
    """Writes the keys of rows to delete, with their order values, into separate Parquet files."""

    def __init__(
        self, table: TableSpec, identity: Identity, task: int, limits: Limits, writer: UUID | None = None
    ) -> None:
        schema = identity.schema(table_schema(table.schema_json))
        spec_id = PartitionSpec.model_validate_json(table.spec_json).spec_id
        self._ids = identity.ids
        self._schema = arrow_schema(schema)
        self._writer = TableWriter(
            replace(
                table,
                schema_json=schema.model_dump_json(),
                # A key file has no partition, because the row of a key may be in any partition.
                spec_json=PartitionSpec(spec_id=spec_id).model_dump_json(),
                properties=key_file_properties(table.properties),
                sort_order_json=None,
                moved_to_json=None,
            ),
            task,
            limits,
            writer,
            DELETES if table.mutations is not None and table.mutations.row_deletes == "equality" else KEYS,
        )

    @property
    def buffered_bytes(self) -> int:
        """About how many bytes are held in memory."""
        return self._writer.buffered_bytes

    def flush_largest(self) -> None:
        """Flush a part of the buffered rows."""
        self._writer.flush_largest()

    def write(self, changes: pa.RecordBatch) -> None:
        """Write the keys of these changes."""
        if changes.num_rows:
            columns = [changes.column(field.name) for field in self._schema]
            kinds = self._schema.types
            fitting = [c if c.type == kind else pruned(c, kind) for c, kind in zip(columns, kinds, strict=True)]
            self._writer.write(pa.RecordBatch.from_arrays(fitting, schema=self._schema))

    def close(self) -> list[DataFile]:
        """Finish the files."""
        return [
            replace(file, content=FileContent.EQUALITY_DELETES, equality_ids=self._ids, sort_order_id=None)
            for file in self._writer.close()
        ]

    def discard(self) -> None:
        """Give up."""
        self._writer.discard()


def key_file_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """A table's properties for key files. These are read whole, so they need no Bloom filters. Each of their columns is
    counted: by the counts a coordinator knows which columns a key file has.
    """
    counted = {
        name: "counts" if name.startswith(_METRICS) and value.lower() == "none" else value
        for name, value in properties.items()
        if not name.startswith(_BLOOM)
    }
    return {f"{_METRICS}default": "truncate(16)", **counted, "write.format.default": "parquet"}


def _where(rows: pa.RecordBatch, mask: pa.Array) -> pa.RecordBatch:
    """The rows of the mask. They are not copied if the mask selects all."""
    return rows if pc.all(mask, min_count=0).as_py() else rows.filter(mask)


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
