"""An engine that starts on another thread, while its users do other work."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from calving.deadline import beside
from calving.engine.interface import Engine, Function
from calving.tasks.result import TaskResult
from calving.tasks.spec import TaskSpec


class OpeningEngine(Engine):
    """An engine that is opened once: by ``begin``, or by the first call that needs it, which waits."""

    def __init__(self, open_it: Callable[[], Engine]) -> None:
        self._open = open_it
        self._opening: Future[Engine] | None = None
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Begin to open the engine, if that has not begun.

        :raises ConfigError: opening has failed: the engine does not start.
        """
        opening = self._begun()
        if opening.done():
            opening.result()

    @property
    def slots(self) -> int:
        return self._begun().result().slots

    def map(self, function: Function, payloads: Sequence[str]) -> list[str]:
        return self._begun().result().map(function, payloads)

    def run(self, tasks: Sequence[TaskSpec]) -> list[TaskResult]:
        return self._begun().result().run(tasks)

    def for_other_jobs(self) -> Engine | None:
        return self._begun().result().for_other_jobs()

    def close(self) -> None:
        """Close the engine. An engine that is still being opened is left alone: it ends with the process."""
        if self._opening is not None and self._opening.done() and self._opening.exception() is None:
            self._opening.result().close()

    def _begun(self) -> Future[Engine]:
        with self._lock:
            if self._opening is None:
                self._opening = beside("calving-engine", self._open)
            return self._opening
