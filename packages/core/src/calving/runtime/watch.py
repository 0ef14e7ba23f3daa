"""Detects that the process makes no progress, logs where it hangs, and ends it."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import PurePath

log = logging.getLogger(__name__)

EXIT_CODE = 75
"""Exit code of a process that ended itself: a supervisor should restart it (EX_TEMPFAIL)."""


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
