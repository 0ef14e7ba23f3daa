"""Coordination backends: everything that a backend of another package imports, in this one place."""

from calving.backend.closing import closing_on_error
from calving.backend.cursors import EntryCursor
from calving.backend.entries import BEFORE, Encoded, LogOptions, check_starts, partition_key, stale
from calving.backend.interface import Backend, ControlLog, Cursor, Session
from calving.backend.sessions import GroupSession
from calving.model.sink import DeadLetterTopic, SinkIdentity

__all__ = [
    "BEFORE",
    "Backend",
    "ControlLog",
    "Cursor",
    "DeadLetterTopic",
    "Encoded",
    "EntryCursor",
    "GroupSession",
    "LogOptions",
    "Session",
    "SinkIdentity",
    "check_starts",
    "closing_on_error",
    "partition_key",
    "stale",
]
