"""Rows on their way from the task that read them to the one that writes their partition."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from calving.data.layout import Layout, Placed
from calving.data.spec import TableSpec
from calving.data.waiting import Waiting

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
    """Takes a table's rows in the place of its writer, and packs them by partition; with samples, if ``ranges`` of its
    sort order are to be made of them.

    :raises ConfigError: the table cannot be written as its schema, spec, order or properties are.
    """

    def __init__(self, table: TableSpec, ranges: bool = False) -> None:
        self._table, self._layout = table.name, Layout(table)
        self._ranges = self._layout.order if ranges else None
        self._waiting = Waiting(_PARCEL_BYTES)
        self._ready: list[Parcel | Sample] = []
        self.rows = 0

    @property
    def waiting(self) -> int:
        """Bytes that are not packed yet. What is packed is taken after every block."""
        return self._waiting.bytes

    def write(self, rows: pa.RecordBatch) -> None:
        """Take all the rows.

        :raises BadRecordError: the writer at the other end could not take one of them. None of them is taken.
        """
        self.accept(self.prepare(rows))

    def prepare(self, rows: pa.RecordBatch) -> Placed:
        """Rows as ``accept`` takes them. Nothing is taken yet. :raises BadRecordError: as ``write``."""
        return self._layout.place(rows)

    def accept(self, rows: Placed) -> None:
        """Take rows that were prepared: no value can stand in their way any more."""
        placed, numbers = rows
        self.rows += placed.num_rows
        self._waiting.add(placed, numbers)
        for number, part in self._waiting.full():
            self._pack(number, part)

    def trial(self, rows: pa.RecordBatch) -> None:
        """The whole way of rows into a file that is thrown away, to find those that stand in the way of a real one.

        :raises Exception: whatever would come of writing them at the other end.
        """
        self._layout.trial(rows)

    def relieve(self) -> None:
        """Pack half of what waits, in as few parcels as possible."""
        for number, part in self._waiting.half():
            self._pack(number, part)

    def take(self) -> list[Parcel | Sample]:
        """What is ready."""
        taken, self._ready = self._ready, []
        return taken

    def finish(self) -> None:
        """Pack everything."""
        for number, part in self._waiting.all():
            self._pack(number, part)

    def discard(self) -> None:
        """Give up."""
        self._waiting.clear()
        self._ready.clear()

    def _pack(self, number: int, rows: pa.RecordBatch) -> None:
        place = self._layout.partitioner.partition(number).path
        self._ready.append(Parcel(self._table, place, pack(rows)))
        if self._ranges is not None:
            keys = self._ranges.keys(rows)
            count = min(_SAMPLED, rows.num_rows)
            places = [(2 * i + 1) * rows.num_rows // (2 * count) for i in range(count)]
            found = keys.take(self._ranges.indices(keys).take(pa.array(places, pa.int64())))
            self._ready.append(Sample(self._table, place, rows.nbytes, pack(found)))


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
