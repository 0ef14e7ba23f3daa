"""The one form of a selection: ascending indices of records. A range stands for neighbours and costs nothing."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeVar

T = TypeVar("T")

Indices = Sequence[int]


def compose(outer: Indices, inner: Indices) -> Indices:
    """Of the records at ``outer``, those at ``inner``: their indices where ``outer`` counts."""
    if isinstance(inner, range) and len(inner) == len(outer):
        return outer
    if outer == range(len(outer)):
        return inner
    return [outer[i] for i in inner]


def pick(values: Sequence[T], chosen: Indices) -> Sequence[T]:
    """The values at these indices."""
    return values if len(chosen) == len(values) else [values[i] for i in chosen]


def without(count: int, left_out: Collection[int]) -> Indices:
    """All of ``count`` records but these."""
    return [i for i in range(count) if i not in left_out] if left_out else range(count)
