"""Writes rows into data files. Open files and bytes in memory are bounded, and as few files as possible are written."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pyarrow as pa
from pyiceberg.io import FileIO, OutputStream, load_file_io
from pyiceberg.table.locations import load_location_provider

from calving.model.files import DATA, DataFile, FileContent, file_name
from calving.model.record_path import Limits
from calving.model.tables import TableSpec
from calving.storage_errors import name_file
from calving.writing.formats.interface import FileWriter
from calving.writing.formats.metrics import Metrics
from calving.writing.layout import Layout, Placed
from calving.writing.partitioning import Numbers, Partition, divide

_ENOUGH_BYTES = 16 * 1024 * 1024
"""Rows of a partition are held until they have this many bytes, and are then written together, in a row group of a
Parquet file.
"""
SORTED_SHARE = 4
"""The assumed compression: bytes of rows in memory / bytes in the file. Rows of a table with a sort order are held
until they fill a file of the target size.
"""
_LARGE_ROWS, _LARGE_BYTES = 4096, 512 * 1024
"""Batches that have so many rows, or so many bytes, on average are written one after the other. Smaller ones are
joined.
"""
Part = tuple[int, pa.Table]
"""Rows of one partition, and its number."""


class BufferedWriter(ABC):
    """Takes rows of one table, and holds them until a partition has enough of them. ``rows`` counts the rows taken."""

    def __init__(self, layout: Layout, enough_bytes: int) -> None:
        self._layout, self._waiting = layout, Waiting(enough_bytes)
        self.rows = 0

    def write(self, rows: pa.RecordBatch) -> None:
        """Take all the rows.

        :raises BadRecordError: a row has no partition, no place in the sort order, or a value that files cannot hold.
            Then no row is taken.
        """
        self.accept(self.prepare(rows))

    def prepare(self, rows: pa.RecordBatch, longest: int | None = None) -> Placed:
        """Prepare rows for ``accept``. Nothing is taken yet.

        :raises BadRecordError: as ``write``; or a partition value has more than ``longest`` bytes.
        """
        return self._layout.place(rows, longest)

    def accept(self, rows: Placed) -> None:
        """Take rows that were prepared. No value can make this fail."""
        placed, numbers = rows
        self.rows += placed.num_rows
        self._waiting.add(placed, numbers)
        for number, part in self._waiting.full():
            self._append(number, part)

    def trial(self, rows: pa.RecordBatch) -> None:
        """Write rows into a file in memory, which is thrown away, to find rows that a real file cannot take.

        :raises Exception: whatever error writing the rows would raise, at once or later.
        """
        self._layout.trial(rows)

    @abstractmethod
    def flush_largest(self) -> None:
        """Flush a part of the buffered rows."""

    @abstractmethod
    def _append(self, number: int, rows: pa.Table) -> None:
        """Write rows of the partition with this number."""


@dataclass(frozen=True, slots=True)
class _OpenFile:
    location: str
    partition: Partition
    out: OutputStream
    writer: FileWriter
    metrics: Metrics

    def write(self, rows: pa.Table) -> None:
        try:
            self.writer.write(rows)
        except OSError as error:
            name_file(error, self.location)
            raise
        self.metrics.add(rows)


class TableWriter(BufferedWriter):
    """Writes one table's rows for one task.

    :raises ConfigError: the table's schema, spec, order or properties do not allow writing it.
    """

    def __init__(
        self, table: TableSpec, task: int, limits: Limits, writer: uuid.UUID | None = None, kind: str = DATA
    ) -> None:
        """``writer`` and ``kind``: for the names of the files."""
        layout = Layout(table)
        whole_file = layout.properties.target_bytes * SORTED_SHARE
        super().__init__(layout, min(_ENOUGH_BYTES, whole_file) if layout.sorts is None else whole_file)
        self._task, self._limits = task, limits
        self._io: FileIO = load_file_io(dict(table.io_properties), table.location)
        self._locations = load_location_provider(table.location, dict(table.properties))
        self._open_files: dict[int, _OpenFile] = {}
        """The open file of each partition, by the partition's number."""
        self._id, self._kind = writer or uuid.uuid4(), kind
        self._files = 0
        self.done: list[DataFile] = []

    @property
    def buffered_bytes(self) -> int:
        """About how many bytes are held in memory."""
        return self._waiting.bytes + sum(file.writer.held() for file in self._open_files.values())

    def flush_largest(self) -> None:
        """Flush a part of the buffered rows into as few files as possible."""
        waiting = self._waiting
        number = max(self._open_files, key=lambda n: self._open_files[n].writer.held(), default=None)
        largest = 0 if number is None else self._open_files[number].writer.held()
        few = waiting.partitions <= self._limits.open_files
        # With few partitions, all waiting rows go into open files. Otherwise each partition becomes a file.
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
        """No more rows of the partitions written so far will come."""
        self.close()

    def close(self) -> list[DataFile]:
        """Finish all files. Returns all files so far; more rows may follow."""
        for number, part in self._waiting.all():
            self._append(number, part)
            if number in self._open_files:
                self._finish(number)
        for number in list(self._open_files):
            self._finish(number)
        return self.done

    def discard(self) -> None:
        """Give up, and delete the written files, ignoring errors. Files that cannot be deleted are orphan files."""
        for file in self._open_files.values():
            # Otherwise the format's library would try to finish the file after the stream is closed.
            with suppress(Exception):
                file.writer.close()
            with suppress(Exception):
                file.out.close()
        opened = [file.location for file in self._open_files.values()]
        with suppress(Exception):  # a store that refuses to delete one file refuses the others, too
            for location in [*opened, *(file.file_path for file in self.done)]:
                self._io.delete(location)
        self._open_files.clear()
        self._waiting.clear()

    def _append(self, number: int, rows: pa.Table) -> None:
        file = self._open_files.get(number) or self._open(number)
        file.write(self._layout.arrange(rows))
        if self._layout.sorts is not None or file.writer.size() >= self._layout.properties.target_bytes:
            self._finish(number)

    def _open(self, number: int) -> _OpenFile:
        if len(self._open_files) >= self._limits.open_files:
            self._finish(max(self._open_files, key=lambda n: self._open_files[n].writer.size()))
        self._files += 1
        partition = self._layout.partitioner.partition(number)
        name = file_name(self._task, self._id, self._files, self._kind, self._layout.format.name)
        location = self._locations.new_data_location(f"{partition.path}/{name}" if partition.path else name)
        try:
            out = self._io.new_output(location).create()
            file = _OpenFile(location, partition, out, self._layout.format.open(out), self._layout.metrics())
        except OSError as error:
            name_file(error, location)
            raise
        self._open_files[number] = file
        return file

    def _finish(self, number: int) -> None:
        self.done.append(self._described(self._open_files[number]))
        del self._open_files[number]

    def _described(self, file: _OpenFile) -> DataFile:
        try:
            ends = file.writer.close()
            file.out.close()
        except OSError as error:
            name_file(error, file.location)
            raise
        statistics = file.metrics.end(ends)
        return DataFile(
            file_path=file.location,
            file_format=self._layout.format.name.upper(),
            record_count=statistics.records,
            file_size_in_bytes=ends.size,
            content=FileContent.DATA,
            spec_id=self._layout.partitioner.spec_id,
            partition=file.partition.values,
            column_sizes=ends.column_sizes,
            value_counts=statistics.value_counts,
            null_value_counts=statistics.null_value_counts,
            nan_value_counts=statistics.nan_value_counts,
            lower_bounds=statistics.lower_bounds,
            upper_bounds=statistics.upper_bounds,
            split_offsets=ends.split_offsets,
            sort_order_id=self._layout.order.order_id if self._layout.order else 0,
        )


class Waiting:
    """Rows that wait until their partition has enough rows.

    The rows are held as they came, and divided by partition only when some of them are taken. So a few rows of each of
    many partitions cost no more than their bytes.
    """

    def __init__(self, enough: int) -> None:
        """``enough``: a partition with this many bytes is full."""
        self._enough = self._due = enough
        self._rows: list[pa.RecordBatch] = []
        self._numbers: list[Numbers] = []
        self._partitions: set[int] = set()
        self.bytes = 0

    @property
    def partitions(self) -> int:
        """How many partitions have rows here."""
        return len(self._partitions)

    def add(self, rows: pa.RecordBatch, numbers: Numbers) -> None:
        """Add rows with their partitions."""
        if rows.num_rows:
            self._rows.append(rows)
            self._numbers.append(numbers)
            self._partitions.update([numbers] if isinstance(numbers, int) else numbers.unique().to_pylist())
            self.bytes += rows.nbytes

    def full(self) -> list[Part]:
        """Take the partitions that have enough."""
        # If no partition was full, look again when there are twice as many bytes.
        return self._take(self._with_enough) if self.bytes >= self._due else []

    def half(self) -> list[Part]:
        """Take about half of the bytes, in as few partitions as possible."""
        return self._take(_largest_half)

    def all(self) -> Iterator[Part]:
        """Take everything."""
        return ((number, _together(pieces)) for number, pieces in self._emptied().items())

    def taken(self) -> list[pa.RecordBatch]:
        """Take everything as it came."""
        rows = self._rows
        self.clear()
        return rows

    def _with_enough(self, sizes: Mapping[int, int]) -> set[int]:
        return {number for number, size in sizes.items() if size >= self._enough}

    def _take(self, choose: Callable[[Mapping[int, int]], set[int]]) -> list[Part]:
        came = {id(rows) for rows in self._rows}
        by_partition = self._emptied()
        chosen = choose({number: _bytes(pieces) for number, pieces in by_partition.items()})
        taken = [(number, _together(by_partition.pop(number))) for number in chosen]
        slices: list[tuple[int, pa.RecordBatch]] = []
        for number, pieces in by_partition.items():
            if came.issuperset(map(id, pieces)):
                for rows in pieces:
                    self.add(rows, number)
            else:
                slices += ((number, rows) for rows in pieces)
        if slices:
            # Copy the rows, because a slice would keep its whole batch in memory.
            self.add(pa.concat_batches([rows for _, rows in slices]), _joined(slices))
        self._due = max(self._enough, 2 * self.bytes)
        return taken

    def _emptied(self) -> dict[int, list[pa.RecordBatch]]:
        """All rows by partition, in the order in which they came. A batch of one partition is not copied; neighbours
        of several partitions are joined before they are divided.
        """
        by_partition: dict[int, list[pa.RecordBatch]] = {}
        came = zip(self._numbers, self._rows, strict=True)
        for kind, group in groupby(came, key=lambda part: type(part[0])):
            parts: list[tuple[Any, pa.RecordBatch]] = list(group)
            divided = parts if kind is int else divide(pa.concat_batches([rows for _, rows in parts]), _joined(parts))
            for number, rows in divided:
                by_partition.setdefault(number, []).append(rows)
        self.clear()
        return by_partition

    def clear(self) -> None:
        """Drop all rows."""
        self._rows, self._numbers, self.bytes = [], [], 0
        self._partitions.clear()
        self._due = self._enough


def _joined(parts: Iterable[tuple[Numbers, pa.RecordBatch]]) -> pa.Array:
    """The numbers of rows that follow each other."""
    return pa.concat_arrays(
        pa.repeat(pa.scalar(numbers, pa.int32()), rows.num_rows) if isinstance(numbers, int) else numbers
        for numbers, rows in parts
    )


def _together(pieces: Sequence[pa.RecordBatch]) -> pa.Table:
    """The rows as one table. Joining batches copies their rows, and each batch costs as much to write as a few hundred
    rows; so only small batches are joined.
    """
    count = len(pieces)
    are_large = sum(rows.num_rows for rows in pieces) >= _LARGE_ROWS * count or _bytes(pieces) >= _LARGE_BYTES * count
    return pa.Table.from_batches(pieces if count == 1 or are_large else [pa.concat_batches(pieces)])


def _bytes(pieces: Iterable[pa.RecordBatch]) -> int:
    return sum(rows.nbytes for rows in pieces)


def _largest_half(sizes: Mapping[int, int]) -> set[int]:
    wanted, chosen = sum(sizes.values()) / 2, set()
    for number in sorted(sizes, key=lambda n: sizes[n], reverse=True):
        if wanted <= 0:
            break
        wanted -= sizes[number]
        chosen.add(number)
    return chosen
