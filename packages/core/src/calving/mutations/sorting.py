"""Key columns in their own order: few keys are searched for in them, instead of comparing every row (L6)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

_ROWS_OF_A_SEARCH = 12
"""Rows that are compared in the time that the search for one key takes; measured, with keys of numbers and of text."""
_KINDS = (pa.int32(), pa.int64(), pa.string(), pa.binary())


def is_searchable(keys: pa.Array) -> bool:
    """Whether these keys of one column can be searched for."""
    has_search = hasattr(pc, "search_sorted")  # older releases of Arrow have none
    return has_search and keys.type in _KINDS and not keys.null_count


def pays(keys: int, rows: int) -> bool:
    """Whether to search for so many keys is cheaper than to compare so many rows."""
    return keys * _ROWS_OF_A_SEARCH < rows


def in_order(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The keys of a file, sorted, and the row of each; one without a key is left out."""
    column = pa.Table.from_batches(batches).column(0).combine_chunks()
    order = pc.sort_indices(column)
    order = order.slice(0, len(column) - column.null_count)  # null comes last
    yield pa.RecordBatch.from_arrays([column.take(order), order.cast(pa.int64())], ["key", "row"])


def search(keys: pa.Array, found: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
    """The rows of sorted keys that have one of ``keys``, and the place in ``keys`` of each."""
    order = pc.sort_indices(keys)  # neighbours are found in the same pages
    wanted, column = keys.take(order), found.column("key")
    first = pc.search_sorted(column, wanted, side="left").cast(pa.int64())
    end = pc.search_sorted(column, wanted, side="right").cast(pa.int64())
    counts = pc.subtract(end, first)
    once, often = pc.equal(counts, 1), pc.greater(counts, 1)
    spans = zip(first.filter(often).to_pylist(), end.filter(often).to_pylist(), strict=True)
    places = list(chain.from_iterable(range(start, stop) for start, stop in spans))
    repeated = [
        key
        for key, count in zip(order.filter(often).to_pylist(), counts.filter(often).to_pylist(), strict=True)
        for _ in range(count)
    ]
    rows = found.column("row").take(pa.concat_arrays([first.filter(once), pa.array(places, pa.int64())]))
    return rows, pa.concat_arrays([order.filter(once).cast(pa.int32()), pa.array(repeated, pa.int32())])
