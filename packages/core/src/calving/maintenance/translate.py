"""Translates deleted rows of rewritten files into positions in the files that replace them (K3)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64


@dataclass(frozen=True, slots=True)
class InputRows:
    """The rows of a file that were taken: all but the ``deleted`` ones, in their order. ``first``: how many rows of
    earlier files were taken before them.
    """

    first: int
    records: int
    deleted: BitMap64

    def taken(self, positions: BitMap64) -> list[int]:
        """The numbers, among all rows that were taken, of the rows at these positions, which were not deleted."""
        gone = self.deleted.to_array()
        return [self.first + position - bisect_left(gone, position) for position in positions - self.deleted]


@dataclass(frozen=True, slots=True)
class OutputRows:
    """A file that was written: so many rows of one of the new partitions, by its number."""

    path: str
    partition: int
    records: int


class RowPlaces:
    """Where each row that was taken is now. The rows of one new partition keep their order.

    ``partitions``: the number of the new partition of each row; None if there is only one.
    """

    def __init__(self, partitions: pa.Array | None, outputs: Sequence[OutputRows]) -> None:
        self._partitions = partitions
        self._outputs: dict[int, list[OutputRows]] = {}
        for output in outputs:
            self._outputs.setdefault(output.partition, []).append(output)

    def of(self, rows: Iterable[int]) -> Mapping[str, BitMap64]:
        """The positions of these rows, by the path of their file."""
        numbers = sorted(rows)
        if not numbers:
            return {}
        if self._partitions is None:
            ((_, outputs),) = self._outputs.items()
            return _cut(numbers, outputs)
        wanted = pa.array(numbers, pa.int64())
        of_each = self._partitions.take(wanted)
        places: dict[str, BitMap64] = {}
        for number in of_each.unique().to_pylist():
            members = pc.indices_nonzero(pc.equal(self._partitions, number)).cast(pa.int64())
            own = wanted.filter(pc.equal(of_each, number))
            places |= _cut(pc.index_in(own, value_set=members).to_pylist(), self._outputs[number])
        return places


def _cut(numbers: Sequence[int], outputs: Sequence[OutputRows]) -> dict[str, BitMap64]:
    """The positions in the files of one partition of its rows with these ascending numbers."""
    places: dict[str, BitMap64] = {}
    begin = start = 0
    for output, end in zip(outputs, accumulate(output.records for output in outputs), strict=True):
        stop = bisect_left(numbers, end, begin)
        if stop > begin:
            places[output.path] = BitMap64([number - start for number in numbers[begin:stop]])
        begin, start = stop, end
    return places
