"""Translates deleted rows of rewritten files into positions in the files that replace them (K3)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

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
    """A file that was written: so many rows."""

    path: str
    records: int


@dataclass(frozen=True, slots=True)
class RowPlaces:
    """Where each row that was taken is now. ``outputs``: one file after the other. ``is_ordered``: whether the rows
    have kept their order; otherwise the file ``permutation`` has their numbers in the order of the new files; None:
    nobody knows.
    """

    outputs: tuple[OutputRows, ...]
    is_ordered: bool = True
    permutation: str | None = None

    def of(
        self, rows: Iterable[int], read: Callable[[str, Sequence[int]], Sequence[int]]
    ) -> Mapping[str, BitMap64] | None:
        """The positions of these rows, by the path of their file; None if nobody knows. ``read``: finds the places of
        rows in a permutation, in order.
        """
        numbers = sorted(rows)
        if not numbers:
            return {}
        if self.is_ordered:
            return _cut(numbers, self.outputs)
        return None if self.permutation is None else _cut(read(self.permutation, numbers), self.outputs)


def _cut(numbers: Sequence[int], outputs: Sequence[OutputRows]) -> dict[str, BitMap64]:
    """The positions in their files of the rows with these ascending numbers."""
    places: dict[str, BitMap64] = {}
    begin = start = 0
    for output, end in zip(outputs, accumulate(output.records for output in outputs), strict=True):
        stop = bisect_left(numbers, end, begin)
        if stop > begin:
            places[output.path] = BitMap64([number - start for number in numbers[begin:stop]])
        begin, start = stop, end
    return places
