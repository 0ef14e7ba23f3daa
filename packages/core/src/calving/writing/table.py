"""Rows to data files: bounded in open files and in bytes held, at the price of as few files as possible."""

from __future__ import annotations

import uuid
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.io import FileIO, OutputStream, load_file_io
from pyiceberg.table.locations import load_location_provider

from calving.model.files import DataFile, FileContent
from calving.model.record_path import Limits
from calving.model.tables import TableSpec
from calving.writing.formats.interface import FileWriter
from calving.writing.formats.metrics import Metrics
from calving.writing.layout import Layout, Taker
from calving.writing.partitioning import Partition

_ENOUGH_BYTES = 4 * 1024 * 1024
"""Rows of a partition that are written at once."""
SORTED_SHARE = 4
"""Rows of a table with a sort order are held until their file is full: a file of so many times fewer bytes."""


@dataclass(frozen=True, slots=True)
class _OpenFile:
    location: str
    out: OutputStream
    writer: FileWriter
    metrics: Metrics

    def write(self, rows: pa.RecordBatch) -> None:
        self.writer.write(rows)
        self.metrics.add(rows)


class TableWriter(Taker):
    """Writes one table's rows for one task.

    :raises ConfigError: the table cannot be written as its schema, spec, order or properties are.
    """

    def __init__(self, table: TableSpec, task: int, limits: Limits) -> None:
        layout = Layout(table)
        enough = _ENOUGH_BYTES if layout.order is None else layout.properties.target_bytes * SORTED_SHARE
        super().__init__(layout, enough)
        self._task, self._limits = task, limits
        self._io: FileIO = load_file_io(dict(table.io_properties), table.location)
        self._locations = load_location_provider(table.location, dict(table.properties))
        self._open_files: dict[int, _OpenFile] = {}
        """By number of the partition."""
        self._id = uuid.uuid4()
        self._files = 0
        self.done: list[DataFile] = []

    @property
    def weight(self) -> int:
        """Bytes held in memory, about."""
        return self._waiting.bytes + sum(file.writer.held() for file in self._open_files.values())

    def flush_largest(self) -> None:
        """Flush a part of the buffered rows into as few files as possible."""
        waiting = self._waiting
        number = max(self._open_files, key=lambda n: self._open_files[n].writer.held(), default=None)
        largest = 0 if number is None else self._open_files[number].writer.held()
        few = waiting.partitions <= self._limits.open_files
        # With few partitions, all of what waits goes into files that are open, or stay so; else each becomes a file.
        freed = waiting.bytes if few else waiting.bytes // waiting.partitions
        if number is not None and largest >= freed:
            self._finish(number)
            return
        for number, part in waiting.half():
            is_open = number in self._open_files
            self._append(number, part)
            if not few and not is_open and number in self._open_files:
                self._finish(number)

    def end(self) -> None:
        """No more rows of the partitions come that were written so far."""
        self.close()

    def close(self) -> list[DataFile]:
        """Finish all files; more rows may follow. All files so far."""
        for number, part in self._waiting.all():
            self._append(number, part)
            if number in self._open_files:
                self._finish(number)
        for number in list(self._open_files):
            self._finish(number)
        return self.done

    def discard(self) -> None:
        """Give up: delete the written files, ignoring errors; the rest are orphan files."""
        for file in self._open_files.values():
            # Else its library would try to end it when the stream is closed already.
            with suppress(Exception):
                file.writer.close()
            file.out.close()
        opened = [file.location for file in self._open_files.values()]
        for location in [*opened, *(file.file_path for file in self.done)]:
            self._io.delete(location)
        self._open_files.clear()
        self._waiting.clear()

    def _append(self, number: int, rows: pa.RecordBatch) -> None:
        file = self._open_files.get(number) or self._open(number)
        file.write(self._layout.arrange(rows))
        if self._layout.order is not None or file.writer.size() >= self._layout.properties.target_bytes:
            self._finish(number)

    def _open(self, number: int) -> _OpenFile:
        if len(self._open_files) >= self._limits.open_files:
            self._finish(max(self._open_files, key=lambda n: self._open_files[n].writer.size()))
        self._files += 1
        path = self._layout.partitioner.partition(number).path
        name = f"{abs(self._task):05d}-0-{self._id}-{self._files:05d}.{self._layout.format.name}"
        location = self._locations.new_data_location(f"{path}/{name}" if path else name)
        out = self._io.new_output(location).create()
        file = _OpenFile(location, out, self._layout.format.open(out), self._layout.metrics())
        self._open_files[number] = file
        return file

    def _finish(self, number: int) -> None:
        file = self._open_files[number]
        self.done.append(self._described(file, self._layout.partitioner.partition(number)))
        del self._open_files[number]

    def _described(self, file: _OpenFile, partition: Partition) -> DataFile:
        ends, metrics, order = file.writer.close(), file.metrics, self._layout.order
        file.out.close()
        return DataFile(
            file_path=file.location,
            file_format=self._layout.format.name.upper(),
            record_count=metrics.records,
            file_size_in_bytes=ends.size,
            content=FileContent.DATA,
            spec_id=self._layout.partitioner.spec_id,
            partition=partition.values,
            column_sizes=ends.column_sizes,
            value_counts=metrics.value_counts(),
            null_value_counts=metrics.null_value_counts(),
            nan_value_counts=metrics.nan_value_counts(),
            lower_bounds=metrics.lower_bounds(),
            upper_bounds=metrics.upper_bounds(),
            split_offsets=ends.split_offsets,
            sort_order_id=order.order_id if order else 0,
        )
