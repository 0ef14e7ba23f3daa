"""CPU time by step of a task."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Timings:
    """Counts the CPU seconds of this thread by step. Steps do not nest."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.last = ""
        """The step that was entered last."""

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        self.last = name
        started = time.thread_time()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.thread_time() - started
