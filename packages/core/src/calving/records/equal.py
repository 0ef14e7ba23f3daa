"""Rows that have the same key."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc


def numbered(columns: Sequence[pa.Array]) -> pa.Array:
    """A number for each row. Rows have the same number if all their columns have the same values. Null equals null."""
    first, *more = columns
    if not more and pa.types.is_integer(first.type) and not first.null_count:
        return first
    numbers = _encoded(first)
    for column in more:
        other = _encoded(column).cast(pa.int64())
        count = (pc.max(other).as_py() or 0) + 1
        numbers = _encoded(pc.add(pc.multiply(numbers.cast(pa.int64()), count), other))
    return numbers


def are_last(numbers: pa.Array) -> pa.Array:
    """For each row whether no row after it has its number."""
    # Sorting takes a quarter of a hash table's memory, and so less time if the process has to allocate it.
    order = pc.sort_indices(numbers)  # stable
    ordered, most = numbers.take(order), max(0, len(order) - 1)
    earlier = order.slice(0, most).filter(pc.equal(ordered.slice(1), ordered.slice(0, most)))
    if not len(earlier):
        return pa.repeat(pa.scalar(True), len(numbers))
    return pc.invert(pc.is_in(pa.arange(0, len(numbers)), value_set=earlier.cast(pa.int64())))


def _encoded(column: pa.Array) -> pa.Array:
    return column.dictionary_encode(null_encoding="encode").indices
