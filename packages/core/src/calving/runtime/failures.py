"""When to try again, and when to stop trying: pure, it is told what failed."""

from __future__ import annotations

import re

from calving.errors import CalvingError, Fenced, OutcomeUnknown, Unavailable

_PASSES = (Unavailable, OutcomeUnknown, Fenced)
_SECONDS, _FAILING_SECONDS = (0.2, 2.0), (0.2, 10.0)
"""The first pause and the longest. What is away for a moment should not be waited for when it is back."""
SAME = 8
"""The same failure so often in a row does not pass by itself: over more than half a minute."""
_CHANGING = re.compile(r"[0-9a-fA-F-]{8,}|\d+")
"""Of a failure's text: what differs from one time to the next, such as numbers of tasks and names of files."""


class Failures:
    """Of one process, in the order in which they came."""

    def __init__(self) -> None:
        self._done = 0
        self._in_a_row = 0
        self._same = 0
        self._last = ""

    def add(self, error: CalvingError, done: int) -> float:
        """Seconds to wait before the next try. ``done``: batches that have succeeded by now.

        :raises CalvingError: this came too often in a row, and nothing succeeded meanwhile: the same records fail in
            the same way, and will again.
        """
        if done != self._done:
            self._done, self._in_a_row, self._same = done, 0, 0
        self._in_a_row += 1
        first, longest = _SECONDS
        if isinstance(error, _PASSES):
            self._same = 0
        else:
            first, longest = _FAILING_SECONDS
            text = _CHANGING.sub("#", str(error))
            self._same = self._same + 1 if text == self._last else 1
            self._last = text
            if self._same >= SAME:
                raise CalvingError(
                    f"the same failure {SAME} times in a row does not pass by itself: {error}"
                ) from error
        return min(longest, first * 2.0 ** min(self._in_a_row, 10))
