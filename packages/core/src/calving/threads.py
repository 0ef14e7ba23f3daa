"""Threads: a time limit for calls that have none or do not keep it, jobs one after the other, and a watchdog that ends
a process which makes no progress.
"""

from __future__ import annotations

import logging
import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import PurePath
from typing import Generic, TypeVar

T = TypeVar("T")
log = logging.getLogger(__name__)

EXIT_CODE = 75
"""Exit code of a process that ended itself: a supervisor should restart it (EX_TEMPFAIL)."""


class LateError(Exception):
    """A call has not come back in time."""


def in_thread(name: str, call: Callable[[], T]) -> Future[T]:
    """Run ``call`` on a daemon thread called ``name``; the future has its result or error."""
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(call())
        except BaseException as error:  # handed over to the caller
            done.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return done


def within(seconds: float, name: str, call: Callable[[], T]) -> T:
    """Run ``call`` on a separate thread, as ``beside`` does. Returns the call's result or raises its error.

    :raises LateError: the call has not ended after ``seconds``. It runs on, and its result is ignored.
    """
    done = in_thread(name, call)
    if not _ended(done, seconds):
        raise LateError(f"no answer within {seconds:.0f} s")
    return done.result()


def _ended(done: Future[T], seconds: float) -> bool:
    """Whether the call has ended in time. The call itself may raise a TimeoutError, which does not mean that it is
    late.
    """
    try:
        done.exception(seconds)
    except TimeoutError:
        return done.done()
    return True


def where(thread: int | None) -> str:
    """Where a thread is: its innermost call in calving, and its innermost call in any code."""
    frame = sys._current_frames().get(thread or 0)
    if frame is None:
        return "nowhere: its thread has ended"
    stack = traceback.extract_stack(frame)
    ours = [f for f in stack if any(part.startswith("calving") for part in PurePath(f.filename).parts[-5:-1])]
    inner, last = (ours or stack)[-1], stack[-1]
    text = f"in {inner.name} ({'/'.join(PurePath(inner.filename).parts[-2:])}, line {inner.lineno})"
    return text if last is inner else f"{text}, in {last.name} ({PurePath(last.filename).name}, line {last.lineno})"


class Watchdog:
    """Ends the process as soon as ``stalled`` returns a reason. A hanging thread cannot be ended alone."""

    def __init__(
        self,
        stalled: Callable[[], str | None],
        report: Callable[[str], None],
        end: Callable[[int], None] = os._exit,
    ) -> None:
        """``report`` gets the reason before the process ends. It must return in time, and raise nothing."""
        self._stalled, self._report, self._end_process = stalled, report, end
        self._end = threading.Event()
        threading.Thread(target=self._run, name="calving-watchdog", daemon=True).start()

    def stop(self) -> None:
        self._end.set()

    def _run(self) -> None:
        while not self._end.wait(1.0):
            reason = self._stalled()
            if reason is not None:
                log.critical("this process ends itself: %s", reason)
                self._report(reason)
                logging.shutdown()
                self._end_process(EXIT_CODE)
                return


class Steps:
    """The time of one thread's last step."""

    def __init__(self, what: str, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._what, self._seconds, self._clock = what, seconds, clock
        self._thread = threading.get_ident()
        self._last = clock()

    def done(self) -> None:
        self._last = self._clock()

    def stalled(self) -> str | None:
        """The reason to end the process; None if it should go on."""
        stood = self._clock() - self._last
        if stood <= self._seconds:
            return None
        return f"{self._what} has stood still for {stood:.0f} s: it is {where(self._thread)}"


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
