"""Reads a control log to the end that it had."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from calving.backend.interface import Cursor
from calving.errors import UnavailableError
from calving.model.events import Envelope

_END_SECONDS = 60.0


def read_to_end(cursor: Cursor, clock: Callable[[], float] = time.monotonic) -> Iterator[Envelope]:
    """The entries of the control log from the cursor's start at least to the end that the log had when it was opened.

    :raises UnavailableError: the end was not reached within 60 s.
    """
    until = clock() + _END_SECONDS
    while not cursor.has_ended:
        if clock() > until:
            raise UnavailableError(
                f"the control log was not read to its end within {_END_SECONDS:.0f} s: the backend is slow or away. Try"
                " again"
            )
        yield from cursor.read(0.2)
