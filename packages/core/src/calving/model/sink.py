"""The sink's names in Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class DeadLetterTopic:
    """The dead-letter topic. ``replication`` is used if the topic has to be created; None is the broker's default."""

    name: str
    context_headers: bool
    replication: int | None = None


@dataclass(frozen=True, slots=True)
class SinkIdentity:
    """The sink's names in Kafka, and the librdkafka properties that reach its cluster."""

    name: str
    group: str
    control_topic: str
    kafka: Mapping[str, str] = field(default_factory=dict)
    transactional_prefix: str = ""
    dead_letters: DeadLetterTopic | None = None
