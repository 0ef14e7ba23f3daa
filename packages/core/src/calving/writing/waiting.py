"""Rows that wait until there are enough of their partition."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from calving.writing.partitioning import divide

Part = tuple[int, pa.RecordBatch]
"""Rows of one partition, and its number."""


class Waiting:
    """Holds rows as they came, and divides them by partition only when some of them have to go: a few rows of each of
    many partitions cost no more than their bytes.
    """

    def __init__(self, enough: int) -> None:
        """``enough``: bytes of a partition."""
        self._enough = self._due = enough
        self._rows: list[pa.RecordBatch] = []
        self._numbers: list[pa.Array] = []
        self._partitions: set[int] = set()
        self.bytes = 0

    @property
    def partitions(self) -> int:
        """How many have rows here."""
        return len(self._partitions)

    def add(self, rows: pa.RecordBatch, numbers: pa.Array) -> None:
        """``numbers``: the partition of each row."""
        if rows.num_rows:
            self._rows.append(rows)
            self._numbers.append(numbers)
            self._partitions.update(numbers.unique().to_pylist())
            self.bytes += rows.nbytes

    def full(self) -> list[Part]:
        """Take the partitions that have enough."""
        return self._take(lambda parts: [p for p in parts if p[1].nbytes >= self._enough]) if self._is_due else []

    def half(self) -> list[Part]:
        """Take about half of the bytes, in as few partitions as possible."""
        return self._take(_largest_half)

    def all(self) -> Iterator[Part]:
        """Take everything."""
        return divide(*self._emptied()) if self._rows else iter(())

    @property
    def _is_due(self) -> bool:
        # Rows that were too few are looked at again when there are twice as many.
        return self.bytes >= self._due

    def _take(self, choose: Callable[[Sequence[Part]], list[Part]]) -> list[Part]:
        parts = list(self.all())
        taken = choose(parts)
        gone = {number for number, _ in taken}
        kept = [part for part in parts if part[0] not in gone]
        if kept:
            # Copied, since a slice would keep the whole batch that it was taken from.
            numbers = [pa.repeat(pa.scalar(number, pa.int32()), rows.num_rows) for number, rows in kept]
            self.add(pa.concat_batches([rows for _, rows in kept]), pa.concat_arrays(numbers))
        self._due = max(self._enough, 2 * self.bytes)
        return taken

    def _emptied(self) -> tuple[pa.RecordBatch, pa.Array]:
        rows, numbers = pa.concat_batches(self._rows), pa.concat_arrays(self._numbers)
        self.clear()
        return rows, numbers

    def clear(self) -> None:
        """Drop all rows."""
        self._rows, self._numbers, self.bytes = [], [], 0
        self._partitions.clear()
        self._due = self._enough


def _largest_half(parts: Sequence[Part]) -> list[Part]:
    sizes = sorted(((rows.nbytes, place) for place, (_, rows) in enumerate(parts)), reverse=True)
    wanted, found = sum(size for size, _ in sizes) / 2, []
    for size, place in sizes:
        if wanted <= 0:
            break
        wanted -= size
        found.append(parts[place])
    return found
