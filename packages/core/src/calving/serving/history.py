"""Samples of the last hour, for the charts of the page."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator
from itertools import takewhile
from math import isnan, nan

from calving.serving.cardinality import partitions_of, tables_of
from calving.status.values import Status

SECONDS = 10.0
"""The time from one sample to the next."""
_SAMPLES = 360


class History:
    """Samples of several series. One thread writes them, others read them. A series that appears later is empty before
    that.
    """

    def __init__(self) -> None:
        self._times = array("d")
        self._series: dict[tuple[str, str], array[float]] = {}
        self._seen = ""

    def sample(self, status: Status, now: float) -> None:
        current = dict(self._values(status, now))
        times = array("d", [*self._times[-_SAMPLES + 1 :], now])
        series = {}
        for key in self._series.keys() | current.keys():
            before = self._series.get(key, array("f"))[-len(times) + 1 :] if len(times) > 1 else array("f")
            padding = array("f", [nan]) * (len(times) - 1 - len(before))
            series[key] = padding + before + array("f", [current.get(key, nan)])
        # Replace both at once, so that a reader finds series and times of equal length.
        self._times, self._series = times, {k: s for k, s in series.items() if not all(map(isnan, s))}

    def series(self, kind: str, names: Collection[str]) -> dict[str, list[float | None]]:
        """``age``, ``commit``, ``lag`` or ``waiting`` of these tables or partitions; None for a sample without a
        value.
        """
        series = self._series
        return {n: [None if isnan(v) else round(v, 3) for v in series[kind, n]] for n in names if (kind, n) in series}

    @property
    def times(self) -> list[float]:
        return list(self._times)

    def _values(self, status: Status, now: float) -> Iterator[tuple[tuple[str, str], float]]:
        for name, table in tables_of(status).items():
            through = table.valid_through_us
            since = through / 1e6 if through is not None else table.committed_at
            if since is not None:
                yield ("age", name), max(0.0, now - since)
        for (topic, partition), lag in partitions_of(status, now):
            yield ("lag", f"{topic}-{partition}"), lag.source_lag
            yield ("waiting", f"{topic}-{partition}"), max(lag.source_lag, lag.commit_lag or 0)
        recent = status.coordinator.recent
        new = list(takewhile(lambda cycle: cycle.commit_id != self._seen, recent))
        self._seen = recent[0].commit_id if recent else ""
        for commit in (table for cycle in reversed(new) for table in cycle.tables):
            if commit.outcome == "done":
                yield ("commit", commit.table), commit.seconds
