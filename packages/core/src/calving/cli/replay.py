"""Reads the control log as a coordinator does when it starts."""

from __future__ import annotations

from calving.backend.cursors import read_to_end
from calving.backend.interface import Cursor
from calving.protocol.buffer import Buffer
from calving.protocol.marks import Marks


def replayed(cursor: Cursor) -> tuple[Buffer, Marks]:
    """What waits for a commit, and the marks of tables, at the end that the log had when it was opened.

    :raises UnavailableError: the end was not reached within 60 s.
    """
    buffer, marks = Buffer(cursor.log.start), Marks()
    for entry in read_to_end(cursor):
        buffer.hear(entry)
        marks.hear(entry)
    return buffer, marks
