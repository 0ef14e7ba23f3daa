"""Measures the steps of a table's commit."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stopwatch:
    """Seconds by step, added up over all tries; steps do not nest."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self.steps: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            self.add(name, time.monotonic() - started)

    def add(self, name: str, seconds: float) -> None:
        """Add seconds that were measured elsewhere."""
        self.steps[name] = self.steps.get(name, 0.0) + seconds

    @property
    def seconds(self) -> float:
        """Seconds since the stopwatch was made."""
        return time.monotonic() - self._started
