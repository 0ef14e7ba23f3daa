"""Events as entries of a control log, and back: what backends share."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable
from typing import Literal
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field

from calving.errors import DataLossError
from calving.model.coverage import Coverage, decode_coverage, encode_coverage
from calving.model.events import DataWritten, Envelope, Event
from calving.model.offsets import TopicPartition
from calving.wire.codec import Message, UndecodableError, decode, divide, encode

log = logging.getLogger(__name__)


class LogOptions(BaseModel):
    """Keys that every backend has."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    on_truncation: Literal["fail", "continue"] = Field(
        "fail",
        alias="iceberg.control.on-truncation",
        description="What a coordinator does when the control log no longer has the saved position.",
    )
    max_message_bytes: int = Field(
        900_000,
        ge=20_000,
        alias="iceberg.control.max-message-bytes",
        description="Largest control event, bytes; the lists of files are divided to fit. Keep it below what the store"
        " takes: with Kafka the topic's max.message.bytes.",
    )


def payloads(group: str, events: Iterable[Event], max_bytes: int) -> list[bytes]:
    """Events as the bytes of entries: several for one where its list of files has to be divided."""
    parts: list[Event] = []
    for event in events:
        parts += divide(event, max_bytes) if isinstance(event, DataWritten) else [event]
    now_us = time.time_ns() // 1000
    return [encode(Message(uuid4(), now_us, group, part)) for part in parts]


def partition_key(tp: TopicPartition) -> str:
    """A source partition as stores name it; a topic's name has no colon."""
    return f"{tp.topic}:{tp.partition}"


def replay_start(saved: int | None, end: int, options: LogOptions, log_name: str) -> int:
    """Where a replay of a log starts that begins at 1 and ends at ``end``: at the saved position, else at the earliest.

    :raises DataLossError: the log ends before the saved position, and the settings do not say to go on.
    """
    if saved is None or saved <= end:
        return saved or 1
    text = f"{log_name}: the saved position {saved} is beyond the end of the log, {end}: it lost events"
    if options.on_truncation == "fail":
        raise DataLossError(f"{text}; set iceberg.control.on-truncation = continue to go on with what there is")
    log.error("%s; going on from the earliest", text)
    return 1


def spans_text(spans: Coverage | None) -> bytes:
    """What goes beside events, because Java refuses new fields in them. Empty for nothing."""
    return encode_coverage(spans).encode() if spans else b""


class Entries:
    """Decodes the entries of one group. What cannot be decoded is skipped, counted, and logged once per sender."""

    def __init__(self, group: str, log_name: str) -> None:
        self._group, self._log_name = group, log_name
        self.undecodable: Counter[str] = Counter()

    def envelope(
        self, partition: int, offset: int, sender: bytes, value: bytes, spans: bytes | None
    ) -> Envelope | None:
        """None for an entry of another group, or of none that can be read."""
        try:
            decoded = decode(value)
        except UndecodableError as reason:
            name = sender.decode(errors="replace")
            self.undecodable[name] += 1
            if self.undecodable[name] == 1:
                log.warning(
                    "%s, partition %d, offset %d: an entry of sender '%s' cannot be decoded and is skipped, as will be"
                    " its others: %s",
                    self._log_name,
                    partition,
                    offset,
                    name,
                    reason,
                )
            return None
        if decoded.group != self._group:
            return None
        return Envelope(partition, offset, decoded.event, decode_coverage(spans.decode()) if spans else {})
