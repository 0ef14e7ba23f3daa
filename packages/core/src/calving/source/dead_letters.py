"""The dead-letter topic: rejected records with Kafka Connect's error headers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from calving.errors import UnavailableError
from calving.model.dead_letters import DeadLetter
from calving.model.sink import DeadLetterTopic, SinkIdentity
from calving.source.client import TIMEOUT, admin_client, patiently, reaching, unavailable
from calving.source.producing import Deliveries, OutRecord, producer_config

_SIZE = {"max.message.bytes": str(64 * 1024 * 1024)}
"""Dead letters are larger than their source records, because of the headers."""
_ANY_TIME = {"message.timestamp.after.max.ms": str(2**63 - 1)}
"""A dead letter has the timestamp of its record, whatever that is. Brokers before 3.6 take any without this setting."""


def records(letters: Sequence[DeadLetter], topic: DeadLetterTopic, sink: str) -> list[OutRecord]:
    """Dead letters as records of the topic, each with its source record's key, value, headers and timestamp."""
    return [
        OutRecord(
            topic.name,
            letter.key,
            letter.value,
            letter.error_headers(sink) if topic.context_headers else letter.headers,
            letter.timestamp_ms or 0,
            what=f"the dead letter of topic '{letter.topic}', partition {letter.partition}, offset {letter.offset}",
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
        try:
            _create(admin, topic, {**_SIZE, **_ANY_TIME})
        except KafkaException as error:
            if error.args[0].code() != KafkaError.INVALID_CONFIG:
                raise
            _create(admin, topic, _SIZE)


def _create(admin: AdminClient, topic: DeadLetterTopic, config: dict[str, str]) -> None:
    new = NewTopic(topic.name, 1, topic.replication or -1, config=config)
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

        :raises ConfigError: the topic will never take one of them. :raises UnavailableError: not all of them are in the
            topic; some may be.
        """
        topic = self._sink.dead_letters
        if not letters or topic is None:
            return
        if self._producer is None:
            with reaching("kafka.*"):
                self._producer = Producer(producer_config(self._sink.kafka, enable_idempotence=True))
        deliveries = Deliveries()
        for r in records(letters, topic, self._sink.name):
            self._producer.produce(
                r.topic,
                key=r.key,
                value=r.value,
                headers=list(r.headers),
                timestamp=r.timestamp_ms,
                on_delivery=deliveries.of(r),
            )
        waiting = self._producer.flush(TIMEOUT)
        if deliveries.refusal is not None:
            raise deliveries.refusal
        if deliveries.error is not None:
            raise unavailable(deliveries.error, f"dead-letter topic '{topic.name}'")
        if waiting:
            raise UnavailableError(f"dead-letter topic '{topic.name}': no answer")
