"""Events as records of the control topic. What calving adds travels in a header: Java refuses new fields."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from uuid import uuid4

from calving.backend.interface import SinkIdentity
from calving.model.events import DataWritten, Event
from calving.model.offsets import Spans
from calving.source.dead_letters import OutRecord
from calving.wire.codec import Message, divide, encode
from calving_kafka.options import KafkaOptions

SPANS_HEADER = "calving-spans"


def records_of(sink: SinkIdentity, options: KafkaOptions, event: Event, spans: Spans, sender: str) -> list[OutRecord]:
    """The records of one event: several where the list of files has to be divided."""
    parts: list[Event] = list(divide(event, options.max_message_bytes)) if isinstance(event, DataWritten) else [event]
    headers = [(SPANS_HEADER, json.dumps(_spans(spans), separators=(",", ":")).encode())] if spans else []
    now_us = time.time_ns() // 1000
    return [
        OutRecord(sink.control_topic, sender, encode(Message(uuid4(), now_us, sink.group, part)), headers)
        for part in parts
    ]


def _spans(spans: Spans) -> Mapping[str, Mapping[str, list[int]]]:
    out: dict[str, dict[str, list[int]]] = {}
    for tp, span in spans.items():
        out.setdefault(tp.topic, {})[str(tp.partition)] = [span.start, span.end]
    return out
