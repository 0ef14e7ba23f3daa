"""How a worker listens to the control log."""

from __future__ import annotations

from collections.abc import Callable

from calving.backend.interface import Cursor
from calving.model.events import Envelope, StartCommit

_SHORTEST_SECONDS = 0.005
"""The shortest wait: clients count in milliseconds, and do not wait at all for a part of one."""


def read_until_cycle(cursor: Cursor, timeout: float, clock: Callable[[], float]) -> list[Envelope]:
    """The next entries: all that come within ``timeout`` seconds, or until a StartCommit. Only that one gives a worker
    something to do; if every entry woke it, an idle worker would cost more.
    """
    heard: list[Envelope] = []
    left, end = timeout, clock() + timeout
    while True:
        found = cursor.read(left)
        heard += found
        left = end - clock()
        if left <= _SHORTEST_SECONDS or any(isinstance(each.event, StartCommit) for each in found):
            return heard
