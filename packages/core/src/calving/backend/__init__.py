"""Coordination backends: everything that a backend of another package imports, besides ``calving.errors``."""

from calving.backend.closing import closing_on_error
from calving.backend.cursors import EntryCursor
from calving.backend.entries import BEFORE, Encoded, LogOptions, check_starts, partition_key, stale
from calving.backend.interface import Backend, ControlLog, Cursor, Session
from calving.backend.sessions import GroupSession
from calving.model.dead_letters import DeadLetter
from calving.model.events import NOTHING_ATTACHED, Attachment, Envelope, Event, Publication, WorkerEnd
from calving.model.membership import Claim
from calving.model.offsets import ControlOffsets, SourceOffsets, Topic, TopicPartition, stored_in
from calving.model.sink import DeadLetterTopic, SinkIdentity

__all__ = [
    "BEFORE",
    "NOTHING_ATTACHED",
    "Attachment",
    "Backend",
    "Claim",
    "ControlLog",
    "ControlOffsets",
    "Cursor",
    "DeadLetter",
    "DeadLetterTopic",
    "Encoded",
    "EntryCursor",
    "Envelope",
    "Event",
    "GroupSession",
    "LogOptions",
    "Publication",
    "Session",
    "SinkIdentity",
    "SourceOffsets",
    "Topic",
    "TopicPartition",
    "WorkerEnd",
    "check_starts",
    "closing_on_error",
    "partition_key",
    "stale",
    "stored_in",
]
