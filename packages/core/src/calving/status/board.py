"""The place of the current status: loops write it, presenters read it."""

from __future__ import annotations

import threading
from dataclasses import replace

from calving.status.values import CoordinatorStatus, LogStatus, SinkFacts, Status, WorkerStatus


class Board:
    """Each loop replaces its part of the status as a whole; reading needs no lock."""

    def __init__(self, sink: SinkFacts) -> None:
        self._lock = threading.Lock()
        self.status = Status(sink)
        self.full_at = float("-inf")
        """When a commit cycle of this process last had all answers and all tables, on the monotonic clock."""

    def worker(self, value: WorkerStatus, log: LogStatus) -> None:
        with self._lock:
            self.status = replace(self.status, worker=value, log=log)

    def coordinator(self, value: CoordinatorStatus) -> None:
        with self._lock:
            self.status = replace(self.status, coordinator=value)
