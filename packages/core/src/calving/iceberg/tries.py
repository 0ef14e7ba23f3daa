"""Tries that pause in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator


def tries(most: int, pause: Callable[[int], None]) -> Iterator[bool]:
    """Whether each of ``most`` tries is the last. The caller leaves its loop with the try that succeeds.

    ``pause`` is called between two tries, with the number of tries so far.
    """
    for number in range(1, most + 1):
        yield number == most
        if number < most:
            pause(number)
