"""How records are produced: the settings of producers, what a topic refuses, and the dead-letter topic: rejected
records with Kafka Connect's error headers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from calving.errors import ConfigError, UnavailableError
from calving.model.dead_letters import DeadLetter
from calving.model.sink import DeadLetterTopic, SinkIdentity
from calving.source.client import TIMEOUT, admin_client, client_config, patiently, reaching, unavailable

_REMEDIES = {
    KafkaError.MSG_SIZE_TOO_LARGE: "raise its max.message.bytes",
    KafkaError.RECORD_LIST_TOO_LARGE: "raise its segment.bytes",
    KafkaError.INVALID_TIMESTAMP: "raise its message.timestamp.after.max.ms, and message.timestamp.before.max.ms if it"
    " is set",
    KafkaError.INVALID_RECORD: "its cleanup.policy must not be compact, and it must take records of any schema",
    KafkaError.POLICY_VIOLATION: "change the brokers' policy",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "give the sink's user the right to write to it",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "give the sink's user the right to write to it",
    KafkaError.UNSUPPORTED_COMPRESSION_TYPE: "change kafka.compression.type",
    KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT: "its messages must have headers: raise its message.format.version",
    KafkaError.TOPIC_EXCEPTION: "correct its name",
}
"""Answers of a broker to a record that it will never take, and what an operator can do."""


class OutRecord(NamedTuple):
    """A record to produce. ``timestamp_ms`` 0 means now; with ``partition`` -1 the client chooses. ``what`` names it in
    errors.
    """

    topic: str
    key: bytes | str | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    timestamp_ms: int = 0
    partition: int = -1
    what: str = "an event"


def producer_config(kafka: Mapping[str, str], **ours: str | int | bool) -> dict[str, Any]:
    """The user's librdkafka properties and ``ours``, for a producer that refuses no record itself: only its topic
    decides, and its answer to a record does not depend on the records that are sent with it.
    """
    return client_config(
        kafka,
        linger_ms=0,
        message_max_bytes=1_000_000_000,
        queue_buffering_max_messages=0,  # no limit
        queue_buffering_max_kbytes=2_147_483_647,
        # A topic's limit is for all records of a request together. A larger record goes in a request of its own.
        batch_size=65_536,
        **ours,
    )


class Deliveries:
    """The broker's answers to records that are being produced."""

    def __init__(self) -> None:
        self.error: KafkaError | None = None
        """The first error of a record that says why it was not taken."""
        self._record: OutRecord | None = None

    def of(self, record: OutRecord) -> Callable[[KafkaError | None, object], None]:
        """The callback for the record's delivery."""

        def answered(error: KafkaError | None, _: object) -> None:
            # Records that wait behind a failed one are purged.
            is_told = error is not None and error.code() not in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
            if is_told and self.error is None:
                self.error, self._record = error, record

        return answered

    @property
    def refusal(self) -> ConfigError | None:
        """The error to raise if a topic has refused a record for good; None otherwise."""
        if self.error is None or self._record is None:
            return None
        return refusal(self._record, self.error)


def refusal(record: OutRecord, error: KafkaError) -> ConfigError | None:
    """The error to raise if the record's topic will never take it; None if it may take it later."""
    remedy = _REMEDIES.get(error.code())
    if remedy is None:
        return None
    size = len(record.value or b"") + len(record.key or b"")
    size += sum(len(name) + len(value or b"") for name, value in record.headers)
    at = f", timestamp {record.timestamp_ms}" if record.timestamp_ms else ""
    return ConfigError(
        f"topic '{record.topic}' refuses {record.what} ({size} bytes{at}): {error.str()}; {remedy}, and start the sink"
        " again"
    )


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
            with reaching("kafka.*", self._sink.kafka):
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
