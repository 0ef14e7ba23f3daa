"""Z-order: rows are sorted along a curve on which neighbours have similar values of several columns.

Each column is cut into ranges of about equally many rows, by a sample of all files. So it does not matter how large or
how evenly spread its values are. The bits of the numbers of a row's ranges are interleaved.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform

from calving.writing.keys import key

_BITS = 12
"""Of the number of a range. Four columns have 48 bits, which fit into one number."""
_MOST = 2**_BITS
_ZERO = pa.array([0], pa.int64())
SAMPLED = 40_000
"""About how many rows a sample has."""


class ZOrder:
    """The z-order of some columns, after a sample of their values."""

    sort_keys = (("z", "ascending"),)

    def __init__(self, schema: Schema, columns: Sequence[int], sample: Iterable[pa.RecordBatch]) -> None:
        """``columns``: their ids. ``sample``: batches of keys, by ``column_keys``.

        :raises ConfigError: a column cannot be sorted.
        """
        self._schema, self._columns = schema, columns
        batches = list(sample)
        places = range(len(columns) if batches else 0)  # without a row, there is nothing to place
        self._ranges = [_Ranges.of([batch.column(place) for batch in batches]) for place in places]

    def keys(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The place of each row on the curve."""
        keys = column_keys(self._schema, self._columns, rows)
        numbers = [ranges.place(column) for column, ranges in zip(keys.columns, self._ranges, strict=True)]
        return pa.RecordBatch.from_pydict({"z": interleaved(numbers)})


def column_keys(schema: Schema, columns: Sequence[int], rows: pa.RecordBatch) -> pa.RecordBatch:
    """The values of these columns, in types that Arrow sorts.

    :raises ConfigError: a column cannot be sorted.
    """
    arrays = [key(schema, each, IdentityTransform())(rows) for each in columns]
    return pa.RecordBatch.from_arrays(arrays, names=[str(each) for each in columns])


def interleaved(numbers: Sequence[pa.Array]) -> pa.Array:
    """One number of each row, with the bits of its numbers in turn, the highest first."""
    found = pa.repeat(pa.scalar(0, pa.int64()), len(numbers[0]))
    for bit in range(_BITS):
        for place, own in enumerate(reversed(numbers)):
            one = pc.bit_wise_and(pc.shift_right(own, bit), 1)
            found = pc.bit_wise_or(found, pc.shift_left(one, bit * len(numbers) + place))
    return found


@dataclass(frozen=True, slots=True)
class _Ranges:
    """``bounds``: the least values of the ranges but the first, distinct and in order. ``numbers``: of the ranges; a
    range with more rows has more numbers for itself.
    """

    bounds: pa.Array
    numbers: pa.Array

    @staticmethod
    def of(sampled: Sequence[pa.Array]) -> _Ranges:
        values = pa.concat_arrays(sampled).drop_null()
        values = values.take(pc.sort_indices(values))
        places = [number * len(values) // _MOST for number in range(1, _MOST)] if len(values) else []
        ends = values.take(pa.array(places, pa.int64()))
        changes = ends.dictionary_encode().indices
        firsts = pc.indices_nonzero(pc.not_equal(changes, pa.concat_arrays([changes[:1], changes[:-1]])))
        return _Ranges(ends.take(firsts), pa.concat_arrays([_ZERO, pc.add(firsts.cast(pa.int64()), 1)]))

    def place(self, column: pa.Array) -> pa.Array:
        """The number of the range of each value; null is in the first."""
        # A value comes after the bounds that are not above it, because the sort is stable.
        order = pc.sort_indices(pa.concat_arrays([self.bounds, column]))
        passed = pc.cumulative_sum(pc.less(order, len(self.bounds)).cast(pa.int64()))
        numbers = self.numbers.take(passed.take(pc.sort_indices(order)).slice(len(self.bounds)))
        return pc.if_else(column.is_valid(), numbers, 0)
