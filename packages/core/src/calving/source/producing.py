"""How records are produced: the settings of producers, what a topic refuses, and the dead-letter topic: rejected
records with Kafka Connect's error headers.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from calving.errors import ConfigError, UnavailableError
from calving.model.dead_letters import LEFT_OUT, DeadLetter
from calving.model.sink import DeadLetterTopic, SinkIdentity
from calving.source.client import TIMEOUT, admin_client, client_config, patiently, reaching, unavailable

log = logging.getLogger(__name__)

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
    errors. ``smaller`` makes the record to send if the topic takes none so large; None if there is none.
    """

    topic: str
    key: bytes | str | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    timestamp_ms: int = 0
    partition: int = -1
    what: str = "an event"
    smaller: Callable[[], OutRecord | None] = lambda: None

    @property
    def size(self) -> int:
        """The bytes of key, value and headers."""
        size = len(self.value or b"") + len(self.key or b"")
        return size + sum(len(name.encode()) + len(value or b"") for name, value in self.headers)


class TooLargeError(ConfigError):
    """A topic will never take a record so large."""

    def __init__(self, text: str, record: OutRecord) -> None:
        super().__init__(text)
        self.record = record


_SIZES = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE)


def without_too_large(records: Sequence[OutRecord], error: TooLargeError) -> list[OutRecord]:
    """The records to send instead, after a topic has refused one of them. Others that it would refuse next, because
    they are as large in compressed form, are replaced by smaller ones, too.

    :raises TooLargeError: there is no smaller record.
    """
    refused = error.record
    instead, least = refused.smaller(), _compressed(refused)
    if instead is None:
        raise error

    def fitting(record: OutRecord) -> OutRecord:
        if record.topic != refused.topic or record.size < least or _compressed(record) < least:
            return record
        return record.smaller() or record

    return [instead if record is refused else fitting(record) for record in records]


def _compressed(record: OutRecord) -> int:
    """About how many bytes the record has when it is compressed."""
    parts = [record.key or b"", record.value or b"", *(value or b"" for _, value in record.headers)]
    return len(zlib.compress(b"".join(part.encode() if isinstance(part, str) else part for part in parts)))


def producer_config(kafka: Mapping[str, str], *, alone: bool = False, **ours: str | int | bool) -> dict[str, Any]:
    """The user's librdkafka properties and ``ours``, for a producer that refuses no record itself: only its topic
    decides. ``alone``: each record is sent in a request of its own. Otherwise a topic with a low limit refuses small
    records because of those that are sent with them.

    Records are compressed, unless the user says otherwise: a bad record may have come in few bytes, and a topic's limit
    is for compressed records. Every broker and every client knows gzip.
    """
    says = {"compression.type", "compression.codec"} & kafka.keys()
    return client_config(
        kafka if says else {"compression.type": "gzip", **kafka},
        linger_ms=0,
        message_max_bytes=1_000_000_000,
        queue_buffering_max_messages=0,  # no limit
        queue_buffering_max_kbytes=2_147_483_647,
        # A topic's limit is for all records of a request together. A larger record goes in a request of its own.
        batch_size=65_536,
        **({"batch_num_messages": 1} if alone else {}),
        **ours,
    )


class Deliveries:
    """Hands records to a producer, and has the broker's answers to them."""

    def __init__(self) -> None:
        self.error: KafkaError | None = None
        """The first error of a record that says why it was not taken, apart from its size."""
        self._record: OutRecord | None = None
        self._too_large: list[tuple[OutRecord, KafkaError]] = []

    def produce(self, producer: Producer, records: Iterable[OutRecord]) -> None:
        """:raises KafkaException: the producer takes no more records."""
        for r in records:
            producer.produce(
                r.topic,
                key=r.key,
                value=r.value,
                headers=list(r.headers),
                partition=r.partition,
                timestamp=r.timestamp_ms,
                on_delivery=self.of(r),
            )

    def of(self, record: OutRecord) -> Callable[[KafkaError | None, object], None]:
        """The callback for the record's delivery."""

        def answered(error: KafkaError | None, _: object) -> None:
            if error is None:
                return
            # Records that wait behind a failed one are purged.
            if error.code() in _SIZES:
                self._too_large.append((record, error))
            elif self.error is None and error.code() not in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT):
                self.error, self._record = error, record

        return answered

    @property
    def refusal(self) -> ConfigError | None:
        """The error to raise if a topic has refused a record for good; None otherwise."""
        refused = refusal(self._record, self.error) if self.error is not None and self._record is not None else None
        return refusal(*self._too_large[0]) if refused is None and self._too_large else refused

    @property
    def too_large(self) -> list[OutRecord]:
        """The records that are too large, by themselves or with those of their request."""
        return [record for record, _ in self._too_large]

    def smaller(self) -> list[OutRecord]:
        """The records to send instead of those that are too large.

        :raises TooLargeError: there is none for one of them.
        """
        made: list[OutRecord] = []
        for record, error in self._too_large:
            made += without_too_large([record], TooLargeError(_refused(record, error), record))
        return made


def refusal(record: OutRecord, error: KafkaError) -> ConfigError | None:
    """The error to raise if the record's topic will never take it; None if it may take it later."""
    if error.code() not in _REMEDIES:
        return None
    text = _refused(record, error)
    return TooLargeError(text, record) if error.code() in _SIZES else ConfigError(text)


def _refused(record: OutRecord, error: KafkaError) -> str:
    at = f", timestamp {record.timestamp_ms}" if record.timestamp_ms else ""
    return (
        f"topic '{record.topic}' refuses {record.what} ({record.size} bytes{at}): {error.str()};"
        f" {_REMEDIES[error.code()]}, and start the sink again"
    )


_SIZE = {"max.message.bytes": str(64 * 1024 * 1024)}
"""Dead letters are larger than their source records, because of the headers."""
_ANY_TIME = {"message.timestamp.after.max.ms": str(2**63 - 1)}
"""A dead letter has the timestamp of its record, whatever that is. Brokers before 3.6 take any without this setting."""


_MOST_BYTES = 100_000_000
"""A dead letter with more bytes is sent without its value. A broker closes the connection to a client that sends it
more than its socket.request.max.bytes, by default 100 MiB, and does not say why.
"""


def records(letters: Sequence[DeadLetter], topic: DeadLetterTopic, sink: str) -> list[OutRecord]:
    """Dead letters as records of the topic, each with its source record's key, value, headers and timestamp. If the
    topic refuses one as too large, the record's ``smaller`` has a part of the letter, and says so.
    """
    return [_record(letter, topic, sink) for letter in letters]


def _record(letter: DeadLetter, topic: DeadLetterTopic, sink: str) -> OutRecord:
    while letter.size > _MOST_BYTES and (smaller := letter.smaller()) is not None:
        letter = smaller
    return OutRecord(
        topic.name,
        letter.key,
        letter.value,
        letter.error_headers(sink) if topic.context_headers else letter.headers,
        letter.timestamp_ms or 0,
        what=f"the dead letter of topic '{letter.topic}', partition {letter.partition}, offset {letter.offset}",
        smaller=partial(_smaller, letter, topic, sink),
    )


def _smaller(letter: DeadLetter, topic: DeadLetterTopic, sink: str) -> OutRecord | None:
    smaller = letter.smaller()
    if smaller is None:
        return None
    record = _record(smaller, topic, sink)
    text = "topic '%s' takes no record of %d bytes: %s is written without a part, which its header %s names"
    log.warning(text, topic.name, letter.size, record.what, LEFT_OUT)
    return record


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
        self._alone = False
        """Whether the topic has refused records that were sent together."""

    def write(self, letters: Sequence[DeadLetter]) -> None:
        """Write these dead letters.

        :raises ConfigError: the topic will never take one of them. :raises UnavailableError: not all of them are in the
            topic; some may be.
        """
        topic = self._sink.dead_letters
        if not letters or topic is None:
            return
        waiting = records(letters, topic, self._sink.name)
        while waiting:
            waiting = self._send(waiting)

    def _connected(self) -> Producer:
        if self._producer is None:
            with reaching("kafka.*", self._sink.kafka):
                config = producer_config(self._sink.kafka, alone=self._alone, enable_idempotence=True)
                self._producer = Producer(config)
        return self._producer

    def _send(self, sent: Sequence[OutRecord]) -> list[OutRecord]:
        """Send these records. Returns those to send now, instead of records that are too large."""
        producer, deliveries = self._connected(), Deliveries()
        deliveries.produce(producer, sent)
        waiting = producer.flush(TIMEOUT)
        if deliveries.error is not None:
            raise deliveries.refusal or unavailable(deliveries.error, f"dead-letter topic '{sent[0].topic}'")
        if waiting:
            raise UnavailableError(f"dead-letter topic '{sent[0].topic}': no answer")
        if deliveries.too_large and not self._alone:
            self._alone, self._producer = True, None
            return deliveries.too_large
        return deliveries.smaller()
