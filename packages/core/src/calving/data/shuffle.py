"""Rows on their way from the task that read them to the one that writes their partition."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from calving.data.partitioning import Partition, Partitioner
from calving.data.sorting import Sorting

_SAMPLED = 32
"""Keys in a sample."""
_PARCEL_BYTES = 1024 * 1024
"""Arrow bytes after which the rows of a partition go on their way; small, since a receiver takes many at once."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """Rows of one partition of one table, as an Arrow stream. ``partition`` is its path."""

    table: str
    partition: str
    rows: bytes


@dataclass(frozen=True, slots=True)
class Sample:
    """Evenly spaced keys, as an Arrow stream, of rows of one partition, of ``size`` bytes, that were sent."""

    table: str
    partition: str
    size: int
    keys: bytes


class Outbox:
    """Takes a table's rows in the place of its writer, and packs them by partition; with samples, if ``ranges`` of a
    sort order are to be made of them.
    """

    def __init__(self, table: str, partitioner: Partitioner, ranges: Sorting | None = None) -> None:
        self._table, self._partitioner, self._ranges = table, partitioner, ranges
        self._waiting: dict[Partition, list[pa.RecordBatch]] = {}
        self._bytes: dict[Partition, int] = {}
        self._ready: list[Parcel | Sample] = []
        self.rows = 0

    @property
    def waiting(self) -> int:
        """Bytes that are not packed yet, about. What is packed is taken after every block."""
        return sum(self._bytes.values())

    def write(self, rows: pa.RecordBatch) -> None:
        self.rows += rows.num_rows
        for partition, part in self._partitioner.split(rows):
            self._waiting.setdefault(partition, []).append(part)
            self._bytes[partition] = self._bytes.get(partition, 0) + part.nbytes
            if self._bytes[partition] >= _PARCEL_BYTES:
                self._pack(partition)

    def relieve(self) -> None:
        """Pack what holds the most memory."""
        if self._bytes:
            self._pack(max(self._bytes, key=lambda partition: self._bytes[partition]))

    def take(self) -> list[Parcel | Sample]:
        """What is ready."""
        taken, self._ready = self._ready, []
        return taken

    def finish(self) -> None:
        """Pack everything."""
        for partition in list(self._waiting):
            self._pack(partition)

    def discard(self) -> None:
        """Give up."""
        self._waiting.clear()
        self._bytes.clear()
        self._ready.clear()

    def _pack(self, partition: Partition) -> None:
        rows = pa.concat_batches(self._waiting.pop(partition))
        size = self._bytes.pop(partition)
        self._ready.append(Parcel(self._table, partition.path, pack(rows)))
        if self._ranges is not None:
            keys = self._ranges.keys(rows)
            count = min(_SAMPLED, rows.num_rows)
            places = [(2 * i + 1) * rows.num_rows // (2 * count) for i in range(count)]
            found = keys.take(self._ranges.indices(keys).take(pa.array(places, pa.int64())))
            self._ready.append(Sample(self._table, partition.path, size, pack(found)))


def pack(rows: pa.RecordBatch) -> bytes:
    """As an Arrow stream."""
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, rows.schema) as stream:
        stream.write_batch(rows)
    found: bytes = out.getvalue().to_pybytes()
    return found


def unpack(rows: bytes) -> Iterator[pa.RecordBatch]:
    """What ``pack`` has packed."""
    with pa.ipc.open_stream(pa.py_buffer(rows)) as stream:
        yield from stream
