"""The records of a campaign: all known, some of which belong to no table."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from harness.sent import value

_EVERY = 40
BAD, FILTERED = "dead letters", "nowhere"
"""Where records go that no table takes."""
_APART = {13: BAD, 14: FILTERED}


def place(number: int, tables: Sequence[str]) -> tuple[str, str]:
    """The table and the proof of a record, or ``BAD`` or ``FILTERED``."""
    if (apart := _APART.get(number % _EVERY)) is not None:
        return apart, ""
    found = json.loads(value(number, tables))
    return found["route"], found["proof"]


def payload(number: int, tables: Sequence[str]) -> bytes | None:
    """The value of a record. Its key is its number."""
    apart = _APART.get(number % _EVERY)
    if apart is None:
        return value(number, tables)
    return b"this is no JSON" if apart == BAD else None


def end_in_tables(sent: int, last: int) -> bool:
    """Whether the ``last`` of the first ``sent`` records belong in tables."""
    return not any(number % _EVERY in _APART for number in range(sent - last, sent))


def with_rows(sent: int) -> npt.NDArray[np.int64]:
    """Which of the first ``sent`` records belong in a table."""
    numbers = np.arange(sent)
    return numbers[~np.isin(numbers % _EVERY, list(_APART))]
