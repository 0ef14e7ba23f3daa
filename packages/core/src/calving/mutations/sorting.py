"""Sorted key columns: a few keys are found in them by binary search, without comparing every row (L6)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

_ROWS_OF_A_SEARCH = 12
"""The number of rows that can be compared in the time of a search for one key. It was measured with keys of numbers and
of text.
"""
KEY, ROW = "key", "row"
"""The columns of sorted keys: a key, and the row that has it."""
_KINDS = (pa.int32(), pa.int64(), pa.string(), pa.binary())


def is_searchable(keys: pa.Array) -> bool:
    """Whether these keys of one column can be searched for."""
    has_search = hasattr(pc, "search_sorted")  # older releases of Arrow do not have it
    return has_search and keys.type in _KINDS and not keys.null_count


def pays(keys: int, rows: int) -> bool:
    """Whether searching for this many keys is cheaper than comparing this many rows."""
    return keys * _ROWS_OF_A_SEARCH < rows


def in_order(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The keys of a file, sorted, and the row of each key. A row whose key is null is left out."""
    column = pa.Table.from_batches(batches).column(0).combine_chunks()
    order = pc.sort_indices(column)
    order = order.slice(0, len(column) - column.null_count)  # null comes last
    yield pa.RecordBatch.from_arrays([column.take(order), order.cast(pa.int64())], [KEY, ROW])


@dataclass(frozen=True, slots=True)
class Sorted:
    """Sorted keys, and the place of each key before sorting."""

    keys: pa.Array
    places: pa.Array

    @staticmethod
    def of(keys: pa.Array) -> Sorted:
        places = pc.sort_indices(keys)
        return Sorted(keys.take(places), places.cast(pa.int32()))

    def between(self, ends: pa.Array) -> Sorted:
        """The keys from the first of two values up to and including the second."""
        first = pc.search_sorted(self.keys, ends[0], side="left").as_py()
        end = pc.search_sorted(self.keys, ends[1], side="right").as_py()
        return Sorted(self.keys.slice(first, end - first), self.places.slice(first, end - first))


def search(wanted: Sorted, found: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
    """The rows of ``found`` that have one of the wanted keys, and the place of that wanted key."""
    column = found.column(KEY)
    if not len(column):
        return pa.array([], pa.int64()), pa.array([], pa.int32())
    wanted = wanted.between(column.take(pa.array([0, len(column) - 1])))
    first = pc.search_sorted(column, wanted.keys, side="left").cast(pa.int64())  # in range: none exceeds all
    has = pc.equal(column.take(first), wanted.keys)
    keys, places, first = wanted.keys.filter(has), wanted.places.filter(has), first.filter(has)
    end = pc.search_sorted(column, keys, side="right").cast(pa.int64())
    counts = pc.subtract(end, first)
    if pc.sum(counts).as_py() != len(counts):
        firsts, ends, numbers = first.to_pylist(), end.to_pylist(), places.to_pylist()
        first = pa.array(chain.from_iterable(map(range, firsts, ends)), pa.int64())
        places = pa.array(
            [place for place, count in zip(numbers, counts.to_pylist(), strict=True) for _ in range(count)], pa.int32()
        )
    return found.column(ROW).take(first), places
