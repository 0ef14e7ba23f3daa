"""Waiting for what other threads and processes do."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_for(done: Callable[[], object], seconds: float = 180, step: float = 0.2) -> None:
    """Ask ``done`` every ``step`` seconds until it is true.

    :raises AssertionError: it is still false after ``seconds``.
    """
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, f"it did not happen within {seconds} s"
        time.sleep(step)


def happens_within(seconds: float, done: Callable[[], bool]) -> bool:
    """Ask ``done`` twice a second; whether it is true before ``seconds`` are over."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if done():
            return True
        time.sleep(0.5)
    return False
