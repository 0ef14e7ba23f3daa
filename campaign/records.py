"""The records of a campaign: all known, some of which belong to no table."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from harness.sent import value

_EVERY = 40
_MICROS, _NANOS = 1_000, 1_000_000
_YEAR_10000 = 253_402_300_800_000
_POISON = (
    b"this is no JSON",
    b"[" * 5_000,
    b'{"id": ' * 40 + b"1" + b"}" * 40,
    b'{"id": 1, "route": "\xff"}',
    b'{"id": 1, "route": "no table"}',
    b"x" * 100_000,
    b"",
)
BAD, FILTERED = "dead letters", "nowhere"
"""Where records go that no table takes."""
_APART = {13: BAD, 14: FILTERED}


def place(number: int, tables: Sequence[str]) -> tuple[str, str]:
    """The table and the proof of a record, or ``BAD`` or ``FILTERED``."""
    if (apart := _APART.get(number % _EVERY)) is not None:
        return apart, ""
    found = json.loads(value(number, tables))
    return found["route"], found["proof"]


def payload(number: int, tables: Sequence[str], *, poisoned: bool = True) -> bytes | None:
    """The value of a record. Its key is its number. ``poisoned``: bad values are of every kind, not only no JSON."""
    apart = _APART.get(number % _EVERY)
    if apart is None:
        return value(number, tables)
    return _POISON[number // _EVERY % len(_POISON) if poisoned else 0] if apart == BAD else None


def timestamp(number: int, now_ms: int) -> int:
    """The timestamp of a record, milliseconds: that of a few is microseconds, nanoseconds or beyond every calendar."""
    if not has_odd_timestamp(number):
        return now_ms
    return (now_ms * _MICROS, now_ms * _NANOS, _YEAR_10000)[number // _EVERY % 3]


def has_odd_timestamp(number: int) -> bool:
    return number % _EVERY in (3, 13)


def headers(number: int) -> list[tuple[bytes, bytes | None]]:
    """The headers of a record: most have none, and the names of a few are no text."""
    return [(b"a", None), (b"\xff\xfe", b"1"), (b"", b"")] if number % _EVERY in (13, 23) else []


def end_in_tables(sent: int, last: int) -> bool:
    """Whether the ``last`` of the first ``sent`` records belong in tables."""
    return not any(number % _EVERY in _APART for number in range(sent - last, sent))


def with_rows(sent: int) -> npt.NDArray[np.int64]:
    """Which of the first ``sent`` records belong in a table."""
    numbers = np.arange(sent)
    return numbers[~np.isin(numbers % _EVERY, list(_APART))]
