"""Decides when to retry, how long to wait before that, longer after each failure, and when to stop retrying. Pure:
failures and times are arguments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from calving.errors import (
    AccessDeniedError,
    CalvingError,
    FencedError,
    GaveUpError,
    OutcomeUnknownError,
    UnavailableError,
    UnexpectedError,
)

_DOUBLINGS = 100
"""More of them do not matter for any pause, and a float does not hold a thousand."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential back-off: the pause doubles with each failure, up to a longest one."""

    first: float
    """Seconds after the first failure."""
    longest: float
    """Seconds that no pause exceeds, but for its jitter."""

    def pause(self, failures: int, jitter: float = 0.0) -> float:
        """Seconds to wait after this many ``failures`` in a row, from 1 on. ``jitter``: the share by which the pause is
        longer, or shorter if negative, so that processes that fail together do not try again together.
        """
        return min(self.longest, self.first * 2.0 ** min(failures - 1, _DOUBLINGS)) * (1 + jitter)


def tries(most: int, pause: Callable[[int], None]) -> Iterator[bool]:
    """Whether each of ``most`` tries is the last. The caller leaves its loop with the try that succeeds.

    ``pause`` is called between two tries, with the number of tries so far.
    """
    for number in range(1, most + 1):
        yield number == most
        if number < most:
            pause(number)


_PASSES = (UnavailableError, OutcomeUnknownError, FencedError)
_STAYS = (AccessDeniedError, UnexpectedError)
_PASSING, _FAILING = Backoff(0.4, 2.0), Backoff(0.4, 10.0)
"""The pauses after errors that pass by themselves, and after others. Short pauses let the sink continue soon after a
short outage. During a pause nobody polls the group, and a rebalance waits.
"""
SAME = 8
"""After this many equal denials in a row, over more than half a minute, a denial counts as permanent."""
_CHANGING = re.compile(r"[0-9a-fA-F-]{8,}|\d+")
"""The parts of a denial's text that differ each time, such as task numbers and file names."""


def passes(error: BaseException | None) -> bool:
    """Whether the error passes by itself, because a service is away or another process was faster. Otherwise another
    try may not differ.
    """
    return isinstance(error, _PASSES) and not isinstance(error, _STAYS)


class Retries:
    """Bounds how long errors are retried that do not pass by themselves. The time from each such error to the next
    error, of whatever kind, counts. The time of an outage in between does not count, and the outage does not reset it.
    """

    def __init__(self, seconds: float) -> None:
        """``seconds``: how long; infinite means for ever (``errors.retry.timeout``)."""
        self._seconds = seconds
        self._spent = 0.0
        self._since: float | None = None
        """When the last error came, if it does not pass."""

    def succeeded(self) -> None:
        """What failed has succeeded."""
        self._spent, self._since = 0.0, None

    def failed(self, error: BaseException | None, now: float) -> None:
        """:raises GaveUpError: errors that do not pass have been retried for too long, without a success in between."""
        if self._since is not None:
            self._spent += now - self._since
        self._since = None if passes(error) else now
        if self._since is not None and self._spent >= self._seconds:
            lasted = f"retried for {self._spent:.0f} s, as errors.retry.timeout allows, without success"
            raise GaveUpError(f"{lasted}: {type(error).__name__}: {error}") from error


class Failures:
    """The failures of one process, in order."""

    def __init__(self, retries: Retries) -> None:
        self._retries = retries
        self._done = 0
        self._in_a_row = 0
        self._same = 0
        self._last = ""

    def add(self, error: CalvingError, done: int, now: float) -> float:
        """Seconds to wait before the next try. ``done``: publications that have succeeded by now.

        :raises GaveUpError: another try does not help.
        """
        if done != self._done:
            self._done, self._in_a_row, self._same = done, 0, 0
            self._retries.succeeded()
        self._in_a_row += 1
        if isinstance(error, AccessDeniedError):
            self._deny(error)
        else:
            self._same = 0
            self._retries.failed(error, now)
        return (_PASSING if passes(error) else _FAILING).pause(self._in_a_row)

    def _deny(self, error: CalvingError) -> None:
        text = _CHANGING.sub("#", str(error))
        self._same = self._same + 1 if text == self._last else 1
        self._last = text
        if self._same >= SAME:
            raise GaveUpError(f"the same denial {SAME} times in a row, retries do not help: {error}") from error
