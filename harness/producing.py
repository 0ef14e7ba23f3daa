"""Records for as long as somebody watches what becomes of them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from harness.run import Run


class Producing(threading.Thread):
    """Sends records, from ``start`` until ``stop``."""

    def __init__(self, run: Run, per_second: int = 300) -> None:
        super().__init__(daemon=True)
        self._run, self._per_second, self._end = run, per_second, threading.Event()
        self._wanted, self._sending = threading.Event(), threading.Lock()
        self._wanted.set()

    def run(self) -> None:
        while not self._end.is_set():
            if self._wanted.wait(0.1):
                with self._sending:
                    self._run.produce(100, self._per_second)

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """None are sent meanwhile."""
        self._wanted.clear()
        try:
            with self._sending:
                yield
        finally:
            self._wanted.set()

    def stop(self) -> None:
        self._end.set()
        if self.is_alive():
            self.join()
