"""How long it takes from a fault to the next full commit, one of the sink's own that brings every partition on; and
how long tables go without a commit.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple


class Commit(NamedTuple):
    """One of the sink's own, of one table."""

    at: float
    """Seconds since the epoch, by the clock that all processes here share."""
    cycle: str
    through: int | None
    """Through when it is valid, milliseconds since the epoch; only a commit that has news of all partitions says it."""
    table: str


class Gap(NamedTuple):
    """Between two commits of a table."""

    seconds: float
    begin: float
    table: str


def longest_gap(commits: Iterable[Commit], begin: float, end: float) -> Gap:
    """The longest time, within these, in which one of the tables had no commit. Each has news all the time."""
    moments: dict[str, list[float]] = defaultdict(lambda: [begin])
    for commit in sorted(commits, key=lambda each: each.at):
        if begin < commit.at < end:
            moments[commit.table].append(commit.at)
    gaps = [
        Gap(after - before, before, table)
        for table, times in moments.items()
        for before, after in pairwise([*times, end])
    ]
    return max(gaps, default=Gap(end - begin, begin, "every table"))


def recovered(commits: Iterable[Commit], fault: float) -> float | None:
    """Seconds from ``fault`` to the first commit that holds, of every partition, records that were sent after it.

    None if there was none.
    """
    times = [c.at for c in commits if c.through is not None and c.through >= fault * 1000 and c.at >= fault]
    return min(times) - fault if times else None


def summary(taken: Mapping[str, Sequence[float]]) -> dict[str, dict[str, float]]:
    """Median, 99th percentile and maximum for each kind of fault, seconds."""
    return {
        kind: {
            "times": len(seconds),
            "p50": round(statistics.median(seconds), 1),
            "p99": round(sorted(seconds)[int(len(seconds) * 0.99)], 1),
            "max": round(max(seconds), 1),
        }
        for kind, seconds in sorted(taken.items())
        if seconds
    }
