"""Measures the steps of a table's commit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Stopwatch:
    """Seconds by step, added up over all tries. Steps do not nest, and pauses between tries belong to no step."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._started = clock()
        self.steps: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        started = self._clock()
        try:
            yield
        finally:
            self.add(name, self._clock() - started)

    def add(self, name: str, seconds: float) -> None:
        """Add seconds that were measured elsewhere."""
        self.steps[name] = self.steps.get(name, 0.0) + seconds

    @property
    def seconds(self) -> float:
        """Seconds since the stopwatch was made."""
        return self._clock() - self._started
