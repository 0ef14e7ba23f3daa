"""Rows on their way from the task that read them to the task that writes their partition."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from calving.model.tables import TableSpec
from calving.records.arrays import joined
from calving.writing.layout import Layout, Placed
from calving.writing.mutations import ChangeLayout
from calving.writing.table import BufferedWriter

_SAMPLED = 32
"""The number of keys in a sample."""
_BLOCK_BYTES = 1024 * 1024
"""The Arrow bytes at which a partition's rows are sent. The number is small, because a receiver holds many such blocks
at once.
"""
_CHANGES_BYTES = 32 * _BLOCK_BYTES
"""The Arrow bytes at which changes are sent, all buckets together. Keys are spread evenly over buckets, and waiting for
full buckets would mean copying the other ones.
"""


@dataclass(frozen=True, slots=True)
class ShuffleBlock:
    """Rows of one partition of one table, as an Arrow stream. ``partition`` is the partition's path; for a mutation
    table, a bucket of its keys.
    """

    table: str
    partition: str
    rows: bytes


@dataclass(frozen=True, slots=True)
class Sample:
    """Evenly spaced sort keys, as an Arrow stream, of rows that were sent. The rows are of one partition, and have
    ``size`` bytes.
    """

    table: str
    partition: str
    size: int
    keys: bytes


class ShuffleWriter(BufferedWriter):
    """Takes a table's rows instead of a writer, and packs them by partition for other tasks. With ``ranges``, it adds
    samples of the rows' sort keys.

    :raises ConfigError: the table's schema, spec, order or properties do not allow writing it.
    """

    def __init__(self, table: TableSpec, ranges: bool = False) -> None:
        if table.mutations is None:
            super().__init__(Layout(table), _BLOCK_BYTES)
        else:
            super().__init__(ChangeLayout(table, buckets=True), 1 << 62)
        self._changes = table.mutations is not None
        self._table = table.name
        self._ranges = self._layout.order if ranges else None
        self._ready: list[ShuffleBlock | Sample] = []

    def accept(self, rows: Placed) -> None:
        super().accept(rows)
        if self._changes and self._waiting.bytes >= _CHANGES_BYTES:
            self.finish()

    @property
    def waiting(self) -> int:
        """The bytes that are not packed yet. Packed blocks are removed after every block of records."""
        return self._waiting.bytes

    def flush_largest(self) -> None:
        """Pack about half of the waiting bytes, in as few blocks as possible."""
        for number, part in self._waiting.half():
            self._append(number, part)

    def take(self) -> list[ShuffleBlock | Sample]:
        """Remove and return the packed blocks."""
        taken, self._ready = self._ready, []
        return taken

    def finish(self) -> None:
        """Pack everything."""
        for number, part in self._waiting.all():
            self._append(number, part)

    def discard(self) -> None:
        """Give up."""
        self._waiting.clear()
        self._ready.clear()

    def _append(self, number: int, part: pa.Table) -> None:
        place, rows = self._layout.path(number), joined(part)
        self._ready.append(ShuffleBlock(self._table, place, pack(rows)))
        if self._ranges is not None:
            keys = self._ranges.keys(rows)
            count = min(_SAMPLED, rows.num_rows)
            places = [(2 * i + 1) * rows.num_rows // (2 * count) for i in range(count)]
            sampled = keys.take(self._ranges.indices(keys).take(pa.array(places, pa.int64())))
            self._ready.append(Sample(self._table, place, rows.nbytes, pack(sampled)))


def pack(rows: pa.RecordBatch) -> bytes:
    """The rows as an Arrow stream."""
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, rows.schema) as stream:
        stream.write_batch(rows)
    packed: bytes = out.getvalue().to_pybytes()
    return packed


def unpack(rows: bytes) -> Iterator[pa.RecordBatch]:
    """The rows that ``pack`` has packed."""
    with pa.ipc.open_stream(pa.py_buffer(rows)) as stream:
        yield from stream
