"""Rows to data files: one open file per partition, bounded in number and in buffered bytes."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.io import FileIO, OutputStream, load_file_io
from pyiceberg.table.locations import load_location_provider

from calving.data.conversion.fields import table_schema
from calving.data.formats.interface import FileWriter
from calving.data.formats.metrics import Metrics, modes
from calving.data.formats.registry import file_format
from calving.data.partitioning import Partition, partitioner
from calving.data.properties import WriteProperties
from calving.data.sorting import sorting
from calving.data.spec import Limits, TableSpec
from calving.model.files import DataFile, FileContent

_FLUSH_BYTES = 4 * 1024 * 1024
SORTED_SHARE = 4
"""Rows of a table with a sort order are held until their file is full: a file of so many times fewer bytes."""
_ENCODED_SHARE = 3
"""Arrow bytes in an open row group weigh about a third once they are encoded."""


@dataclass(frozen=True, slots=True)
class _OpenFile:
    location: str
    out: OutputStream
    writer: FileWriter
    metrics: Metrics

    def write(self, rows: pa.RecordBatch) -> None:
        self.writer.write(rows)
        self.metrics.add(rows)


class _PartitionWriter:
    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.rows: list[pa.RecordBatch] = []
        self.buffered = 0
        self.file: _OpenFile | None = None
        self.encoding = 0

    @property
    def weight(self) -> int:
        return self.buffered + self.encoding // _ENCODED_SHARE


class TableWriter:
    """Writes one table's rows for one task."""

    def __init__(self, table: TableSpec, task: int, limits: Limits) -> None:
        self._table, self._task, self._limits = table, task, limits
        self.schema = table_schema(table.schema_json)
        self._partitioner = partitioner(table)
        self._order = sorting(table)
        self._properties = WriteProperties.of(table.properties, table.name)
        self._format = file_format(self._properties.file_format)
        self._modes = modes(self.schema, self._properties, self._order.columns if self._order else ())
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
            if self._order is not None:
                if writer.buffered // SORTED_SHARE >= self._properties.target_bytes:
                    self._finish(writer)
            elif writer.buffered >= _FLUSH_BYTES:
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
        opened = [writer.file for writer in self._writers.values() if writer.file is not None]
        for file in opened:
            file.out.close()
        for location in [*(file.location for file in opened), *(file.file_path for file in self.done)]:
            self._io.delete(location)
        self._writers.clear()

    def _flush(self, writer: _PartitionWriter) -> None:
        if not writer.rows:
            return
        file = writer.file = writer.file or self._open(writer.partition)
        rows = writer.rows[0] if len(writer.rows) == 1 else pa.concat_batches(writer.rows)
        file.write(rows if self._order is None else self._order.sort(rows))
        writer.encoding += rows.nbytes
        writer.rows, writer.buffered = [], 0
        if file.writer.size() >= self._properties.target_bytes:
            self._finish(writer)

    def _open(self, partition: Partition) -> _OpenFile:
        open_files = [w for w in self._writers.values() if w.file is not None]
        if len(open_files) >= self._limits.open_files:
            self._finish(max(open_files, key=lambda w: w.weight))
        self._files += 1
        name = f"{abs(self._task):05d}-0-{self._id}-{self._files:05d}.{self._format.name}"
        path = f"{partition.path}/{name}" if partition.path else name
        location = self._locations.new_data_location(path)
        out = self._io.new_output(location).create()
        writer = self._format.open(out, self.schema, self._properties)
        return _OpenFile(location, out, writer, Metrics(self.schema, self._modes))

    def _finish(self, writer: _PartitionWriter) -> None:
        del self._writers[writer.partition]
        if writer.rows:
            self._writers[writer.partition] = writer
            self._flush(writer)
            if self._writers.pop(writer.partition, None) is None:
                return  # the flush has filled and finished it
        if writer.file is not None:
            self.done.append(self._described(writer.file, writer.partition))

    def _described(self, file: _OpenFile, partition: Partition) -> DataFile:
        layout, metrics = file.writer.close(), file.metrics
        file.out.close()
        return DataFile(
            file_path=file.location,
            file_format=self._format.name.upper(),
            record_count=metrics.records,
            file_size_in_bytes=layout.size,
            content=FileContent.DATA,
            spec_id=self._partitioner.spec_id,
            partition=partition.values,
            column_sizes=layout.column_sizes,
            value_counts=metrics.value_counts(),
            null_value_counts=metrics.null_value_counts(),
            nan_value_counts=metrics.nan_value_counts(),
            lower_bounds=metrics.lower_bounds(),
            upper_bounds=metrics.upper_bounds(),
            split_offsets=layout.split_offsets,
            sort_order_id=self._order.order_id if self._order else 0,
        )
