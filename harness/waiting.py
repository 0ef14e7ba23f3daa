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
