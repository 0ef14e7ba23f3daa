"""Deletes orphan files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from pyiceberg.io import FileIO


def delete_orphans(io: FileIO, paths: Iterable[str]) -> None:
    """Delete files, ignoring errors: a file that stays is an orphan, which takes space and does no other harm."""
    for path in paths:
        with contextlib.suppress(Exception):
            io.delete(path)
