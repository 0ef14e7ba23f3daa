"""A transactional producer whose failures say what the caller does next."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as KafkaPartition

from calving.errors import CalvingError, Fenced, OutcomeUnknown, Unavailable
from calving.model.offsets import TopicPartition
from calving.source.client import TIMEOUT, client_config

_FENCED = frozenset(
    (
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError._FENCED,
        110,  # FENCED_MEMBER_EPOCH (KIP-848)
        113,  # STALE_MEMBER_EPOCH (KIP-848)
    )
)

Record = tuple[str, bytes, list[tuple[str, bytes]]]
"""Key, value, headers."""


class Transactions:
    """One transaction per ``write``. After an error the object is of no further use."""

    def __init__(self, kafka: Mapping[str, str], topic: str, transactional_id: str, timeout_ms: int) -> None:
        self._topic = topic
        try:
            self._producer = Producer(
                client_config(
                    kafka,
                    transactional_id=transactional_id,
                    transaction_timeout_ms=timeout_ms,
                    message_timeout_ms=timeout_ms,
                    linger_ms=0,
                )
            )
            self._producer.init_transactions(TIMEOUT)
        except KafkaException as error:
            raise _verdict(error.args[0], f"transactional id '{transactional_id}'") from error

    def write(
        self, records: Sequence[Record], offsets: Mapping[TopicPartition, int], group_metadata: object | None
    ) -> None:
        """Append ``records`` to the topic and store ``offsets`` in the metadata's group: both, or neither.

        :raises Fenced, Unavailable: nothing was written. :raises OutcomeUnknown: it may have been.
        """
        producer = self._producer
        try:
            producer.begin_transaction()
            for key, value, headers in records:
                producer.produce(self._topic, key=key, value=value, headers=headers)
            if offsets:
                producer.send_offsets_to_transaction(
                    [KafkaPartition(tp.topic, tp.partition, offset) for tp, offset in offsets.items()],
                    group_metadata,
                    TIMEOUT,
                )
        except (KafkaException, BufferError) as error:
            cause = error.args[0] if isinstance(error, KafkaException) else str(error)
            self._abort()
            raise _verdict(cause, f"control topic '{self._topic}'") from error
        try:
            producer.commit_transaction(TIMEOUT)
        except KafkaException as error:
            cause = error.args[0]
            if cause.txn_requires_abort():
                self._abort()
                raise _verdict(cause, f"control topic '{self._topic}'") from error
            # Also a fatal answer may come after the broker has committed: only the record tells.
            raise OutcomeUnknown(f"control topic '{self._topic}': {cause.str()}") from error

    def close(self) -> None:
        # An open transaction hides everything behind it from read_committed readers until it times out.
        self._abort()

    def _abort(self) -> None:
        with contextlib.suppress(KafkaException):
            self._producer.abort_transaction(TIMEOUT)


def _verdict(cause: KafkaError | str, where: str) -> CalvingError:
    if isinstance(cause, KafkaError):
        if cause.code() in _FENCED:
            return Fenced(f"{where}: {cause.str()}")
        return Unavailable(f"{where}: {cause.str()}")
    return Unavailable(f"{where}: {cause}")
