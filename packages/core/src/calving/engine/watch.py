"""Watches a Spark job. A job that gets no resources, or takes too long, is cancelled with an error that says why."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType

from calving.engine.registry import Patience

log = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0


class Watch:
    """A context around one job. ``cancel`` ends the job from another thread. ``began`` tells whether a task of the job
    runs or has run.
    """

    def __init__(self, patience: Patience, began: Callable[[], bool], cancel: Callable[[], object]) -> None:
        self._patience, self._began, self._cancel = patience, began, cancel
        self._ended = threading.Event()
        self.no_resources = self.too_long = False

    def __enter__(self) -> Watch:
        threading.Thread(target=self._look, name="calving-watch", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()

    def _look(self) -> None:
        started, began = time.monotonic(), False
        while not self._ended.wait(_LOOK_SECONDS):
            took = time.monotonic() - started
            try:
                began = began or self._began()
                self.no_resources |= not began and took > self._patience.resources
                self.too_long |= took > self._patience.job
                if self.no_resources or self.too_long:
                    self._cancel()  # and again until the job ends: Spark does not cancel tasks that it has not begun
            except Exception as error:  # Spark's errors while the driver ends: the job reports them
                log.debug("the Spark job cannot be watched: %s", error)
