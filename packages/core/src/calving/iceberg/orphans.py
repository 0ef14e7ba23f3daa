"""Deletes orphan files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from pyiceberg.io import FileIO


def delete_orphans(io: FileIO, paths: Iterable[str]) -> None:
    """Delete files, ignoring errors. A file that is not deleted is an orphan: it takes space, but does no other
    harm.
    """
    for path in paths:
        with contextlib.suppress(Exception):
            io.delete(path)
