"""Coordination backends: everything that a backend of another package imports, besides ``calving.errors``.

A backend keeps the control log and the source positions of a sink. A worker opens a session, publishes files and
positions as one, and follows the log. The backend in memory does the same as those in Kafka, Redis and ZooKeeper:

    >>> from calving.backend.memory import MemoryBackend
    >>> session = MemoryBackend(SinkIdentity("sink", "group", "control")).open("worker-1")
    >>> cursor, partition = session.follow(replay=True), TopicPartition("orders", 0)
    >>> from calving.model.offsets import Advance, Span
    >>> from uuid import UUID
    >>> from calving.model.events import DataComplete, PartitionProgress
    >>> answer = DataComplete(UUID(int=1), (PartitionProgress(partition, 5),))
    >>> answer = Publication((answer,), {partition: Advance(None, 5)}, {partition: (Span(0, 5),)})
    >>> session.publish(answer, Claim("worker-1", None))
    >>> session.committed([partition])[partition]
    5
    >>> [str(envelope.event) for envelope in cursor.read(0)]
    ['DataComplete 00000000 orders-0 to 5']

A publication that starts at another position than the stored one is refused, here and in every backend (B2):

    >>> session.publish(answer, Claim("worker-1", None))
    Traceback (most recent call last):
        ...
    calving.errors.StaleError: ...
"""

from calving.backend.entries import BEFORE, Encoded, check_starts, partition_key, stale
from calving.backend.interface import Backend, ControlLog, Cursor, Session
from calving.backend.sessions import EntryCursor, GroupSession, LogOptions, closing_on_error
from calving.model.dead_letters import DeadLetter
from calving.model.events import NOTHING_ATTACHED, Attachment, Envelope, Event, Publication, WorkerEnd
from calving.model.offsets import ControlOffsets, SourceOffsets, Topic, TopicPartition, stored_in
from calving.model.sink import Claim, DeadLetterTopic, SinkIdentity

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
