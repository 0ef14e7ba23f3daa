"""Events as records of the control topic."""

from __future__ import annotations

from collections.abc import Iterable

from calving.backend.entries import payloads, spans_text
from calving.backend.interface import SinkIdentity
from calving.model.coverage import Coverage
from calving.model.events import Event
from calving.source.dead_letters import OutRecord
from calving_kafka.options import KafkaOptions

SPANS_HEADER = "calving-spans"


def records_of(
    sink: SinkIdentity, options: KafkaOptions, events: Iterable[Event], spans: Coverage | None, sender: str
) -> list[OutRecord]:
    """The records of events: several for one where its list of files has to be divided."""
    headers = [(SPANS_HEADER, spans_text(spans))] if spans else []
    return [
        OutRecord(sink.control_topic, sender, value, headers)
        for value in payloads(sink.group, events, options.max_message_bytes)
    ]
