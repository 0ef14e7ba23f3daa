"""Decides when to retry, and when to stop retrying. Pure: failures are arguments."""

from __future__ import annotations

import re

from calving.errors import (
    AccessDeniedError,
    CalvingError,
    FencedError,
    GaveUpError,
    OutcomeUnknownError,
    UnavailableError,
)

_PASSES = (UnavailableError, OutcomeUnknownError, FencedError)
_SECONDS, _FAILING_SECONDS = (0.2, 2.0), (0.2, 10.0)
"""The first pause and the longest. Short pauses let the sink continue soon after a short outage."""
SAME = 8
"""After this many equal failures in a row, over more than half a minute, a failure counts as permanent."""
_CHANGING = re.compile(r"[0-9a-fA-F-]{8,}|\d+")
"""The parts of a failure's text that differ each time, such as task numbers and file names."""


class Failures:
    """The failures of one process, in order."""

    def __init__(self) -> None:
        self._done = 0
        self._in_a_row = 0
        self._same = 0
        self._last = ""

    def add(self, error: CalvingError, done: int) -> float:
        """Seconds to wait before the next try. ``done``: batches that have succeeded by now.

        :raises GaveUpError: the same failure came too often in a row without a success: a retry does not help.
        """
        if done != self._done:
            self._done, self._in_a_row, self._same = done, 0, 0
        self._in_a_row += 1
        first, longest = _SECONDS
        if isinstance(error, _PASSES) and not isinstance(error, AccessDeniedError):
            self._same = 0
        else:
            first, longest = _FAILING_SECONDS
            text = _CHANGING.sub("#", str(error))
            self._same = self._same + 1 if text == self._last else 1
            self._last = text
            if self._same >= SAME:
                raise GaveUpError(f"the same failure {SAME} times in a row, retries do not help: {error}") from error
        return min(longest, first * 2.0 ** min(self._in_a_row, 10))
