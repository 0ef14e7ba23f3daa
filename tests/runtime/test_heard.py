"""Reading the control log to its end, as ``calving status`` does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any
from uuid import UUID

import pytest

from calving.backend.interface import ControlLog, Cursor
from calving.backend.sessions import read_to_end
from calving.errors import UnavailableError
from calving.model.events import CommitComplete, Envelope

ENTRIES = [Envelope(0, offset, CommitComplete(UUID(int=offset))) for offset in range(4)]


class SlowCursor(Cursor):
    """An entry with every tenth read, and then, maybe, the end."""

    def __init__(self, *, ends: bool) -> None:
        self.log = ControlLog("log", {0: 0}, {0: len(ENTRIES) + 1})
        self._ends, self._left, self._reads = ends, list(ENTRIES), count(1)

    @property
    def has_ended(self) -> bool:
        return self._ends and not self._left

    def read(self, timeout: float) -> Sequence[Envelope]:
        return [self._left.pop(0)] if self._left and next(self._reads) % 10 == 0 else []

    def acknowledge(self, *_: Any) -> None: ...

    def rewind(self, *_: Any) -> None: ...

    def close(self) -> None: ...


def seconds() -> Iterator[float]:
    """Every look at the clock is a second later."""
    return (float(n) for n in count())


def test_a_log_that_comes_slowly_is_read_to_its_end() -> None:
    now = seconds()
    assert list(read_to_end(SlowCursor(ends=True), lambda: next(now))) == ENTRIES


def test_a_log_whose_end_does_not_come_is_an_error() -> None:
    now = seconds()
    with pytest.raises(UnavailableError, match="not read to its end within 60 s"):
        list(read_to_end(SlowCursor(ends=False), lambda: next(now)))
