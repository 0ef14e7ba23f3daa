"""The sink's names in Kafka, and a member's proof that it belongs to the consumer group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

WORKER = "calving"
"""The beginning of the client id of every worker in a consumer group."""

JAVA_TASK = "connector-consumer-"
"""The prefix that Kafka Connect gives to the client id of a task's consumer, unless the connector overrides it."""


class ClientProperties(dict[str, str]):
    """librdkafka properties. ``written``: the key of the configuration for each."""

    def __init__(self, properties: Mapping[str, str], written: Mapping[str, str]) -> None:
        super().__init__(properties)
        self.written = dict(written)


def key_of(kafka: Mapping[str, str], name: str) -> str:
    """The key of the configuration that sets, or would set, a property of a client."""
    written = kafka.written if isinstance(kafka, ClientProperties) else {}
    return written.get(name, f"kafka.{name}")


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


def strangers(members: Mapping[str, str]) -> list[str]:
    """The client ids of the members that are neither calving's nor, as far as their client ids tell, tasks of the Java
    sink. ``members``: the client ids by the members' ids.
    """
    return sorted(client for client in members.values() if not client.startswith((WORKER, JAVA_TASK)))


@dataclass(frozen=True, slots=True)
class Claim:
    """One member's proof that it is in the consumer group, taken from the live consumer just before it is used.

    ``member_id`` is empty for a consumer outside the group. Only a backend looks at ``token``.
    """

    member_id: str
    token: object
