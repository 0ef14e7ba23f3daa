"""Cells: the places of 8 bytes that values take in columns.

An element of a list or a map takes a place in every column of its type, also where it has no value. So a record of a
few bytes may take gigabytes. A record may have ``iceberg.limits.cells`` cells: those of its own columns, and of each
element those beyond the first, for which the element's own bytes pay. So a list of simple values never has too many.
"""

from __future__ import annotations

import math
from functools import cache

import pyarrow as pa

CELL = 8
"""Bytes of a cell."""
TOGETHER = 4
"""Records that are decoded or converted together may have this many times the cells of one record."""


class TooManyCellsError(Exception):
    """A record takes too many cells: it is bad."""

    def __init__(self, most: int) -> None:
        super().__init__(f"it takes more than iceberg.limits.cells = {most} places in columns")


class FullBlockError(Exception):
    """Several records take too many cells together. Decode fewer of them at once."""


@cache
def cells_of(kind: pa.DataType) -> int:
    """Cells of one value of this type, without those of what its lists and maps hold."""
    if isinstance(kind, pa.BaseExtensionType):
        return cells_of(kind.storage_type)
    if pa.types.is_struct(kind):
        return max(1, sum(cells_of(field.type) for field in kind))
    try:
        return max(1, -(-kind.bit_width // (8 * CELL)))
    except ValueError:  # texts, lists and maps have no width
        return 1


def most_beyond(size: int, beyond: int) -> int:
    """The most cells that ``size`` bytes of JSON take, if an element has at most ``beyond`` cells beyond the first. An
    element has two bytes at least.
    """
    return size // 2 * beyond


class Together:
    """Counts the bytes of columns that stand at the same time, whatever schemas their values have."""

    def __init__(self, most: int, count: int) -> None:
        """``most``: the most cells of a record. ``count``: how many values there are; one alone is never too much."""
        self._left = most * TOGETHER * CELL if count > 1 else math.inf

    def add(self, column: pa.Array) -> None:
        """:raises FullBlockError: the columns take too much together."""
        self._left -= column.nbytes
        if self._left < 0:
            raise FullBlockError


class Cells:
    """Counts the cells of one record after the other."""

    def __init__(self, most: int) -> None:
        self.most = self._left = most

    @property
    def used(self) -> int:
        """Cells of the present record so far."""
        return self.most - self._left

    def start(self, own: int) -> None:
        """A new record begins, whose own columns take so many cells.

        :raises TooManyCellsError: they are too many.
        """
        self._left = self.most
        self.take(own)

    def elements(self, count: int, cells: int) -> None:
        """Count elements of a list or a map, of so many cells each.

        :raises TooManyCellsError: the record has too many cells.
        """
        self.take(count * (cells - 1))

    def take(self, cells: int) -> None:
        self._left -= cells
        if self._left < 0:
            raise TooManyCellsError(self.most)
