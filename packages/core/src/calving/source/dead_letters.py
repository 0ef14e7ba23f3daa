"""The dead-letter topic: rejected records with Kafka Connect's error headers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import NewTopic

from calving.errors import UnavailableError
from calving.model.dead_letters import DeadLetter
from calving.model.sink import DeadLetterTopic, SinkIdentity
from calving.source.client import TIMEOUT, admin_client, client_config, patiently, reaching

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""The size limit of the topic's messages. Dead letters are larger than their source records, because of the headers."""


class OutRecord(NamedTuple):
    """A record to produce. ``timestamp_ms`` 0 means now; with ``partition`` -1 the client chooses."""

    topic: str
    key: bytes | str | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    timestamp_ms: int = 0
    partition: int = -1


def records(letters: Sequence[DeadLetter], topic: DeadLetterTopic, sink: str) -> list[OutRecord]:
    """Dead letters as records of the topic, each with its source record's key, value, headers and timestamp."""
    return [
        OutRecord(
            topic.name,
            letter.key,
            letter.value,
            letter.error_headers(sink) if topic.context_headers else letter.headers,
            letter.timestamp_ms or 0,
        )
        for letter in letters
    ]


@patiently
def provision(kafka: Mapping[str, str], topic: DeadLetterTopic) -> None:
    """Create the topic if it is missing. :raises ConfigError: privileges. :raises UnavailableError: try again."""
    with reaching(f"dead-letter topic '{topic.name}'"):
        admin = admin_client(kafka)
        if topic.name in admin.list_topics(timeout=TIMEOUT).topics:
            return
        new = NewTopic(topic.name, 1, topic.replication or -1, config={"max.message.bytes": str(MAX_MESSAGE_BYTES)})
        try:
            admin.create_topics([new], request_timeout=TIMEOUT)[topic.name].result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise


class DeadLetterWriter:
    """For backends whose log is not in Kafka: writes dead letters before the positions advance, so each is written at
    least once.

    The writer connects when it writes the first dead letter. Without a dead-letter topic nothing is written.
    """

    def __init__(self, sink: SinkIdentity) -> None:
        self._sink = sink
        self._producer: Producer | None = None

    def write(self, letters: Sequence[DeadLetter]) -> None:
        """Write these dead letters.

        :raises UnavailableError: not all of them are in the topic; some may be.
        """
        topic = self._sink.dead_letters
        if not letters or topic is None:
            return
        if self._producer is None:
            self._producer = Producer(
                client_config(
                    self._sink.kafka, enable_idempotence=True, linger_ms=0, message_max_bytes=MAX_MESSAGE_BYTES
                )
            )
        failed: list[KafkaError] = []
        for r in records(letters, topic, self._sink.name):
            self._producer.produce(
                r.topic,
                key=r.key,
                value=r.value,
                headers=list(r.headers),
                timestamp=r.timestamp_ms,
                on_delivery=lambda error, _: failed.append(error) if error is not None else None,
            )
        if self._producer.flush(TIMEOUT) or failed:
            raise UnavailableError(f"dead-letter topic '{topic.name}': {failed[0].str() if failed else 'no answer'}")
