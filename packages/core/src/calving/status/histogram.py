"""A histogram as a value."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, replace

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
RECORDS = (1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6, 1e7)
BYTES = (2.0**14, 2.0**17, 2.0**20, 2.0**22, 2.0**24, 2.0**25, 2.0**26, 2.0**27, 2.0**28, 2.0**29, 2.0**30)


@dataclass(frozen=True, slots=True)
class Histogram:
    """For each of ``bounds``: how many observations were at most this bound, and above the previous one. The last count
    has no upper bound.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float = 0.0

    @staticmethod
    def of(bounds: tuple[float, ...]) -> Histogram:
        return Histogram(bounds, (0,) * (len(bounds) + 1))

    def observe(self, values: Iterable[float]) -> Histogram:
        """A histogram with these values added."""
        counts, total = list(self.counts), self.sum
        for value in values:
            counts[bisect_left(self.bounds, value)] += 1
            total += value
        return replace(self, counts=tuple(counts), sum=total)

    @property
    def count(self) -> int:
        return sum(self.counts)
