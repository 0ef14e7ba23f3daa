"""Tries, and how long to wait before the next one: longer after each failure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

_DOUBLINGS = 100
"""More of them do not matter for any pause, and a float does not hold a thousand."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential back-off: the pause doubles with each failure, up to a longest one."""

    first: float
    """Seconds after the first failure."""
    longest: float
    """Seconds that no pause exceeds, but for its jitter."""

    def pause(self, failures: int, jitter: float = 0.0) -> float:
        """Seconds to wait after this many ``failures`` in a row, from 1 on. ``jitter``: the share by which the pause is
        longer, or shorter if negative, so that processes that fail together do not try again together.
        """
        return min(self.longest, self.first * 2.0 ** min(failures - 1, _DOUBLINGS)) * (1 + jitter)


def tries(most: int, pause: Callable[[int], None]) -> Iterator[bool]:
    """Whether each of ``most`` tries is the last. The caller leaves its loop with the try that succeeds.

    ``pause`` is called between two tries, with the number of tries so far.
    """
    for number in range(1, most + 1):
        yield number == most
        if number < most:
            pause(number)
