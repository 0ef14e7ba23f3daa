"""Selections: ascending indices of records. A range selects neighbours at no cost."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeVar

import pyarrow as pa

T = TypeVar("T")

Indices = Sequence[int]


def compose(outer: Indices, inner: Indices) -> Indices:
    """A selection within a selection: the entries of ``outer`` at the places ``inner``."""
    if isinstance(inner, range) and len(inner) == len(outer):
        return outer
    if outer == range(len(outer)):
        return inner
    return [outer[i] for i in inner]


def pick(values: Sequence[T], chosen: Indices) -> Sequence[T]:
    """The values at these indices."""
    return values if len(chosen) == len(values) else [values[i] for i in chosen]


def chosen(column: pa.Array, index: Indices) -> pa.Array:
    """The values of a column at these indices."""
    if isinstance(index, range):  # an array of a range's numbers would cost more than all the rest
        return column.slice(index.start, len(index))
    return column.take(pa.array(index, pa.int32()))


def without(count: int, left_out: Collection[int]) -> Indices:
    """The indices of ``count`` records, except these."""
    return [i for i in range(count) if i not in left_out] if left_out else range(count)
