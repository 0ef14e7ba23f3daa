"""Rows on their way from the task that read them to the task that writes their partition, or its part of the sort
order: the tables in ``range`` distribution are divided so that the key ranges of a batch's files do not overlap.

The ranges are made from the batch itself. If the sort order follows time, the ranges of the previous batch would be
useless: all new rows would be in the last range.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from calving.model.tables import TableSpec
from calving.records.arrays import joined
from calving.tasks.spec import TaskSpec
from calving.writing.layout import Layout, Placed, Sorting, sorting
from calving.writing.mutations import ChangeLayout
from calving.writing.properties import WriteProperties
from calving.writing.table import SORTED_SHARE, BufferedWriter

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


TablePartition = tuple[str, str]
"""A table and one of its partitions, or a range of a partition."""


@dataclass(frozen=True, slots=True)
class RangeBounds:
    """``bounds``: for each partition, the lowest key of each range but the first, in order. ``receivers``: the number
    of the receiver that writes a range. All receivers get about equal amounts.
    """

    bounds: Mapping[TablePartition, bytes]
    receivers: Mapping[TablePartition, int]


def range_bounds(spec: TaskSpec, samples: Iterable[Sample], slots: int) -> RangeBounds:
    """The ranges for ``slots`` receivers. Each range is small enough to be sorted as a whole, and to become one
    file.
    """
    by_partition: dict[TablePartition, list[Sample]] = {}
    for sample in samples:
        by_partition.setdefault((sample.table, sample.partition), []).append(sample)
    total = sum(sample.size for own in by_partition.values() for sample in own)
    bounds: dict[TablePartition, bytes] = {}
    receivers: dict[TablePartition, int] = {}
    before = 0.0
    for partition in sorted(by_partition):
        own, table = by_partition[partition], spec.tables[partition[0]]
        size = sum(sample.size for sample in own)
        at_most = min(total / slots, _one_file(table), spec.path.limits.buffered_bytes)
        count = -int(-size // at_most)
        if count > 1:
            bounds[partition] = pack(_bounds(_sorting(table), own, count))
        for i in range(count):
            receivers[_range(partition, i)] = min(int((before + size / count / 2) * slots / total), slots - 1)
            before += size / count
    return RangeBounds(bounds, receivers)


class RangeSplitter:
    """Divides the blocks that tasks have sent into ranges."""

    def __init__(self, spec: TaskSpec, bounds: RangeBounds) -> None:
        self._spec = spec
        self._bounds = {partition: next(unpack(keys)) for partition, keys in bounds.bounds.items()}
        self._sortings = {table: _sorting(spec.tables[table]) for table in {table for table, _ in bounds.bounds}}

    def split(self, block: ShuffleBlock) -> Iterator[ShuffleBlock]:
        """The block's rows, divided by range. The block is unchanged if its table has no ``range`` distribution."""
        table = self._spec.tables[block.table]
        partition = (block.table, block.partition)
        if table.distribution != "range":
            yield block
        elif partition not in self._bounds:
            yield ShuffleBlock(*_range(partition, 0), block.rows)
        else:
            order = self._sortings[block.table]
            for rows in unpack(block.rows):
                for i, part in enumerate(_split(order, rows, self._bounds[partition])):
                    if part.num_rows:
                        yield ShuffleBlock(*_range(partition, i), pack(part))


def _bounds(order: Sorting, samples: Iterable[Sample], count: int) -> pa.RecordBatch:
    """The bounds of ``count`` ranges of about equal size: one less than there are ranges."""
    keys: list[pa.RecordBatch] = []
    weights: list[float] = []
    chosen: list[int] = []
    for sample in samples:
        batch = next(unpack(sample.keys))
        keys.append(batch)
        weights += [sample.size / batch.num_rows] * batch.num_rows
    all_keys = pa.concat_batches(keys)
    size, reached = sum(weights), 0.0
    for i in order.indices(all_keys).to_pylist():
        while len(chosen) < count - 1 and reached >= size * (len(chosen) + 1) / count:
            chosen.append(i)
        reached += weights[i]
    return all_keys.take(pa.array(chosen, pa.int64()))


def _split(order: Sorting, rows: pa.RecordBatch, bounds: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows of each range, sorted. Equal keys keep their order when they are sorted, and bounds come before rows; so
    a row that equals a bound comes after the bound.
    """
    places = order.indices(pa.concat_batches([bounds, order.keys(rows)])).cast(pa.int64())
    mixed = pc.subtract(places, bounds.num_rows)
    ends = [-1, *pc.indices_nonzero(pc.less(mixed, 0)).to_pylist(), len(mixed)]
    for start, end in pairwise(ends):
        yield rows.take(mixed[start + 1 : end])


def _range(partition: TablePartition, number: int) -> TablePartition:
    return partition[0], f"{partition[1]}#{number:06d}"


def _one_file(table: TableSpec) -> int:
    return WriteProperties.of(table.properties, table.name).target_bytes * SORTED_SHARE


def _sorting(table: TableSpec) -> Sorting:
    order = sorting(table)
    if order is None:
        raise TypeError(f"table {table.name} has no sort order")
    return order
