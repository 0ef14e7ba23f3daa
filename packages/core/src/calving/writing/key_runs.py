"""Rows by the keys that they change."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc


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
        order = pc.sort_indices(numbers).cast(pa.int64())  # stable
        ordered, count = numbers.take(order), len(numbers)
        if not count:
            return KeyRuns(order, ordered, order, order)
        others = pc.not_equal(ordered.slice(1), ordered.slice(0, count - 1))
        before = pc.indices_nonzero(others).cast(pa.int64())
        starts = pa.concat_arrays([pa.array([0], pa.int64()), pc.add(before, 1)])
        return KeyRuns(order, ordered, starts, pa.concat_arrays([before, pa.array([count - 1], pa.int64())]))

    def chosen(self, index: pa.Array) -> KeyRuns:
        """The keys at these places, in this order."""
        return replace(self, starts=self.starts.take(index), ends=self.ends.take(index))

    def last(self, which: pa.Array) -> pa.Array:
        """For each key, where in ``order`` the last one of its rows is that is one of ``which``; null if none is."""
        places = pc.if_else(which, pa.arange(0, len(self.order)), None)
        last = pc.fill_null_forward(places).take(self.ends)
        return pc.if_else(pc.greater_equal(last, self.starts), last, None)
