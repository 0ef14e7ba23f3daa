"""Closes a connection that its session or cursor could not be made of."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Protocol, TypeVar


class Closable(Protocol):
    def close(self) -> object: ...


C = TypeVar("C", bound=Closable)


@contextlib.contextmanager
def closing_on_error(opened: C) -> Iterator[C]:
    """Close ``opened`` if the block raises an error."""
    try:
        yield opened
    except BaseException:
        opened.close()
        raise
