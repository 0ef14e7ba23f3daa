"""Rows by their keys: a number for each key, and the rows that have it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

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
    return KeyRuns.of(numbers).are_last


def _encoded(column: pa.Array) -> pa.Array:
    return column.dictionary_encode(null_encoding="encode").indices


@dataclass(frozen=True, slots=True)
class KeyRuns:
    """Rows by their keys. ``order``: their places, so that the rows of a key follow each other in their order.
    ``numbers``: the key of each. ``starts``, ``ends``: for each key, where its rows are in ``order``.
    """

    order: pa.Array
    numbers: pa.Array
    starts: pa.Array
    ends: pa.Array

    @staticmethod
    def of(numbers: pa.Array) -> KeyRuns:
        """``numbers``: the key of each row."""
        # Sorting takes a quarter of a hash table's memory, and so less time if the process has to allocate it.
        order = pc.sort_indices(numbers).cast(pa.int64())  # stable
        ordered, count = numbers.take(order), len(numbers)
        if not count:
            return KeyRuns(order, ordered, order, order)
        others = pc.not_equal(ordered.slice(1), ordered.slice(0, count - 1))
        before = pc.indices_nonzero(others).cast(pa.int64())
        starts = pa.concat_arrays([pa.array([0], pa.int64()), pc.add(before, 1)])
        return KeyRuns(order, ordered, starts, pa.concat_arrays([before, pa.array([count - 1], pa.int64())]))

    @property
    def are_last(self) -> pa.Array:
        """For each row whether it is the last one of its key."""
        places = self.order.take(self.ends)
        if len(places) == len(self.order):
            return pa.repeat(pa.scalar(True), len(places))
        last = pc.scatter(pa.repeat(pa.scalar(True), len(places)), places, max_index=len(self.order) - 1)
        return pc.fill_null(last, False)

    def chosen(self, index: pa.Array) -> KeyRuns:
        """The keys at these places, in this order."""
        return replace(self, starts=self.starts.take(index), ends=self.ends.take(index))

    def last(self, which: pa.Array) -> pa.Array:
        """For each key, where in ``order`` the last one of its rows is that is one of ``which``; null if none is."""
        places = pc.if_else(which, pa.arange(0, len(self.order)), None)
        last = pc.fill_null_forward(places).take(self.ends)
        return pc.if_else(pc.greater_equal(last, self.starts), last, None)
