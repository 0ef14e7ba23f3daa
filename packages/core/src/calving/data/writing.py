"""Rows to data files: one open file per partition, bounded in number and in buffered bytes."""

from __future__ import annotations

import uuid

import pyarrow as pa
from pyiceberg.io import FileIO, OutputStream, load_file_io
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.locations import load_location_provider

from calving.data.formats.interface import FileWriter
from calving.data.formats.registry import file_format
from calving.data.partitioning import Partition, Partitioner
from calving.data.spec import Limits, TableSpec
from calving.model.files import DataFile

_FLUSH_BYTES = 4 * 1024 * 1024
_ENCODED_SHARE = 3
"""Arrow bytes in an open row group weigh about a third once they are encoded."""


class _PartitionWriter:
    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.rows: list[pa.RecordBatch] = []
        self.buffered = 0
        self.file: FileWriter | None = None
        self.out: OutputStream | None = None
        self.location = ""
        self.encoding = 0

    @property
    def weight(self) -> int:
        return self.buffered + self.encoding // _ENCODED_SHARE


class TableWriter:
    """Writes one table's rows for one task."""

    def __init__(self, table: TableSpec, task: int, limits: Limits) -> None:
        self._table, self._task, self._limits = table, task, limits
        self.schema = Schema.model_validate_json(table.schema_json)
        self._spec = PartitionSpec.model_validate_json(table.spec_json)
        self._partitioner = Partitioner(self.schema, self._spec)
        self._format = file_format(table.properties.get("write.format.default", "parquet"), table.name)
        self._target = int(table.properties.get("write.target-file-size-bytes", 512 * 1024 * 1024))
        self._io: FileIO = load_file_io(dict(table.io_properties), table.location)
        self._locations = load_location_provider(table.location, dict(table.properties))
        self._writers: dict[Partition, _PartitionWriter] = {}
        self._id = uuid.uuid4()
        self._files = 0
        self.rows = 0
        self.done: list[DataFile] = []

    @property
    def weight(self) -> int:
        """Bytes held in memory, about."""
        return sum(w.weight for w in self._writers.values())

    def write(self, rows: pa.RecordBatch) -> None:
        self.rows += rows.num_rows
        for partition, part in self._partitioner.split(rows):
            writer = self._writers.get(partition)
            if writer is None:
                writer = self._writers[partition] = _PartitionWriter(partition)
            writer.rows.append(part)
            writer.buffered += part.nbytes
            if writer.buffered >= _FLUSH_BYTES:
                self._flush(writer)

    def relieve(self) -> None:
        """Close the file of the partition that holds the most memory."""
        if self._writers:
            self._finish(max(self._writers.values(), key=lambda w: w.weight))

    def close(self) -> list[DataFile]:
        """Finish all files."""
        for writer in list(self._writers.values()):
            self._finish(writer)
        return self.done

    def discard(self) -> None:
        """Give up: what was written is deleted as far as possible, the rest are orphan files."""
        for writer in self._writers.values():
            if writer.out is not None:
                writer.out.close()
        for file in [*(w.location for w in self._writers.values() if w.location), *(f.file_path for f in self.done)]:
            self._io.delete(file)
        self._writers.clear()

    def _flush(self, writer: _PartitionWriter) -> None:
        if not writer.rows:
            return
        file = writer.file or self._open(writer)
        rows = writer.rows[0] if len(writer.rows) == 1 else pa.concat_batches(writer.rows)
        file.write(rows)
        writer.encoding += rows.nbytes
        writer.rows, writer.buffered = [], 0
        if file.size() >= self._target:
            self._finish(writer)

    def _open(self, writer: _PartitionWriter) -> FileWriter:
        open_files = [w for w in self._writers.values() if w.file is not None]
        if len(open_files) >= self._limits.open_files:
            self._finish(max(open_files, key=lambda w: w.weight))
        self._files += 1
        name = f"{self._task:05d}-0-{self._id}-{self._files:05d}.{self._format.name}"
        path = f"{writer.partition.path}/{name}" if writer.partition.path else name
        writer.location = self._locations.new_data_location(path)
        writer.out = self._io.new_output(writer.location).create()
        writer.file = self._format.open(writer.out, self.schema, self._table.properties)
        return writer.file

    def _finish(self, writer: _PartitionWriter) -> None:
        del self._writers[writer.partition]
        if writer.rows:
            self._writers[writer.partition] = writer
            self._flush(writer)
            if self._writers.pop(writer.partition, None) is None:
                return  # the flush has filled and finished it
        if writer.file is not None and writer.out is not None:
            self.done.append(writer.file.close(writer.location, self._spec.spec_id, writer.partition.values))
            writer.out.close()
