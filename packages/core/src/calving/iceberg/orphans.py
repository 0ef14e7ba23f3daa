"""Files that no snapshot names."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from pyiceberg.io import FileIO


def delete_orphans(io: FileIO, paths: Iterable[str]) -> None:
    """Delete files as far as possible. One that stays is an orphan file: it takes space, and harms nobody."""
    for path in paths:
        with contextlib.suppress(Exception):
            io.delete(path)
