"""When the next commit cycle begins (T3, T4)."""

from __future__ import annotations

LEAST_SECONDS = 0.1
"""The shortest time from one cycle to the next. Anybody who may write into the control log can ask for cycles."""


class Pace:
    """The beginnings of cycles. Times are seconds of one clock."""

    def __init__(self, interval: float, now: float) -> None:
        """The first cycle begins at once."""
        self._interval = interval
        self.started = now - interval
        """When the last cycle began."""
        self._worked = float("-inf")
        """When the last cycle began that had something to commit."""
        self._is_wanted = False

    @property
    def due(self) -> float:
        """When the next cycle begins: an interval after the last one; if a worker asks for it, an interval after the
        last one that had something to commit.
        """
        regular = self.started + self._interval
        if not self._is_wanted:
            return regular
        return min(regular, max(self._worked + self._interval, self.started + LEAST_SECONDS))

    def begin(self, now: float) -> None:
        """A cycle begins. What workers have asked for before is what it does."""
        self.started, self._is_wanted = now, False

    def work(self) -> None:
        """The cycle that began last has something to commit."""
        self._worked = self.started

    def want(self) -> None:
        """A worker asks for a cycle."""
        self._is_wanted = True

    def trigger(self, now: float) -> None:
        """The next cycle begins at once."""
        self.started = min(self.started, now - self._interval)
