"""How long it takes from a fault to the next full commit: one of the sink's own that brings every partition on."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence

Commit = tuple[float, str, int | None]
"""When it was made, seconds since the epoch; which cycle it belongs to; and through when it is valid, milliseconds
since the epoch, which only a commit that has news of all partitions says.
"""


def recovered(commits: Iterable[Commit], fault: float) -> float | None:
    """Seconds from ``fault`` to the first commit that holds, of every partition, records that were sent after it.

    None if there was none.
    """
    times = [at for at, _, through in commits if through is not None and through >= fault * 1000 and at >= fault]
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
