"""Rows on their way from the task that read them to the one that writes their partition."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from calving.data.partitioning import Partition, Partitioner

_PARCEL_BYTES = 1024 * 1024
"""Arrow bytes after which the rows of a partition go on their way; small, since a receiver takes many at once."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """Rows of one partition of one table, as an Arrow stream. ``partition`` is its path."""

    table: str
    partition: str
    rows: bytes


class Outbox:
    """Takes a table's rows in the place of its writer, and packs them by partition."""

    def __init__(self, table: str, partitioner: Partitioner) -> None:
        self._table, self._partitioner = table, partitioner
        self._waiting: dict[Partition, list[pa.RecordBatch]] = {}
        self._bytes: dict[Partition, int] = {}
        self._ready: list[Parcel] = []
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

    def take(self) -> list[Parcel]:
        """The parcels that are ready."""
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
        batches = self._waiting.pop(partition)
        del self._bytes[partition]
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, batches[0].schema) as stream:
            stream.write_batch(pa.concat_batches(batches))
        self._ready.append(Parcel(self._table, partition.path, out.getvalue().to_pybytes()))


def unpack(rows: bytes) -> Iterator[pa.RecordBatch]:
    """The rows of a parcel."""
    with pa.ipc.open_stream(pa.py_buffer(rows)) as stream:
        yield from stream
