"""How records are produced: the settings of producers, and what a topic refuses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from confluent_kafka import KafkaError

from calving.errors import ConfigError
from calving.source.client import client_config

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
