"""Runs jobs one after the other on a daemon thread."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

from calving.runtime.watch import where

T = TypeVar("T")


class SerialThread(Generic[T]):
    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[tuple[Callable[[], T], Future[T]] | None] = queue.SimpleQueue()
        self._began: float | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], T]) -> Future[T]:
        """Run ``job`` after the earlier ones. A job that is cancelled before its turn does not run."""
        future: Future[T] = Future()
        self._jobs.put((job, future))
        return future

    @property
    def seconds(self) -> float:
        """Seconds since the running job started."""
        began = self._began
        return 0.0 if began is None else time.monotonic() - began

    @property
    def place(self) -> str:
        """Where the running job is."""
        return where(self._thread.ident)

    def close(self) -> None:
        """End after the running job; does not wait for it."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (queued := self._jobs.get()) is not None:
            job, future = queued
            if not future.set_running_or_notify_cancel():
                continue
            self._began = time.monotonic()
            try:
                future.set_result(job())
            except BaseException as error:  # raised where the result is read
                future.set_exception(error)
            finally:
                self._began = None
