"""Jobs one after the other, beside whoever hands them in, on a thread that does not hold up the end of the process."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

from calving.runtime.watch import where

T = TypeVar("T")


class Serial(Generic[T]):
    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[tuple[Callable[[], T], Future[T]] | None] = queue.SimpleQueue()
        self._began: float | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], T]) -> Future[T]:
        """Runs once those that came before have ended. One that is cancelled until then does not run."""
        future: Future[T] = Future()
        self._jobs.put((job, future))
        return future

    @property
    def seconds(self) -> float:
        """For how long the job has been running that runs now."""
        began = self._began
        return 0.0 if began is None else time.monotonic() - began

    @property
    def place(self) -> str:
        """Where it is."""
        return where(self._thread.ident)

    def close(self) -> None:
        """End after the job that runs, without waiting for it."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (found := self._jobs.get()) is not None:
            job, future = found
            if not future.set_running_or_notify_cancel():
                continue
            self._began = time.monotonic()
            try:
                future.set_result(job())
            except BaseException as error:  # handed over to whoever asks for the result
                future.set_exception(error)
            finally:
                self._began = None
