"""Events as records of the control topic."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from calving.backend.entries import beside_text, payloads
from calving.backend.interface import SinkIdentity
from calving.model.events import NOTHING_ATTACHED, Attachment, Event
from calving.source.dead_letters import OutRecord
from calving_kafka.options import KafkaOptions

SPANS_HEADER = "calving-spans"
BESIDE_HEADER = "calving-beside"


def partition_of(sender: str, count: int) -> int:
    """The partition for all entries of a sender, in a topic of ``count`` partitions.

    The client would choose again when partitions are added, in the middle of a publication too, and its parts would be
    heard in any order.
    """
    return zlib.crc32(sender.encode()) % count


def records_of(
    sink: SinkIdentity,
    options: KafkaOptions,
    events: Sequence[Event],
    spans: bytes,
    sender: str,
    partition: int,
    attached: Attachment = NOTHING_ATTACHED,
) -> list[OutRecord]:
    """The records of events: several for one where its list of files has to be divided."""
    values = payloads(sink.group, events, options.max_message_bytes)
    headers = [(SPANS_HEADER, spans)] if spans else []
    headers.append((BESIDE_HEADER, beside_text(sink.group, events, values, attached)))
    return [OutRecord(sink.control_topic, sender, value, headers, partition=partition) for value in values]
