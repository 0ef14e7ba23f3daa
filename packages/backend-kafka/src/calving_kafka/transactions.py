"""A transactional producer whose errors name the caller's next move."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as KafkaPartition

from calving.backend import SinkIdentity, TopicPartition
from calving.errors import CalvingError, ConfigError, FencedError, OutcomeUnknownError
from calving.source.client import REFUSED, TIMEOUT, reaching, unavailable
from calving.source.producing import Deliveries, OutRecord, producer_config
from calving.threads import LateError, within
from calving_kafka.options import KafkaOptions

_FENCED = frozenset(
    (
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
        110,  # FENCED_MEMBER_EPOCH (KIP-848)
        113,  # STALE_MEMBER_EPOCH (KIP-848)
    )
)
_REPLACED = frozenset((KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED, KafkaError._FENCED))

_REMEDIES = dict.fromkeys(REFUSED, "check the kafka.* settings and the privileges") | {
    KafkaError.INVALID_TRANSACTION_TIMEOUT: "lower iceberg.control.transaction-timeout-ms, or raise the brokers'"
    " transaction.max.timeout.ms",
    KafkaError.OFFSET_METADATA_TOO_LARGE: "raise the brokers' offset.metadata.max.bytes",
}
"""Answers of a broker that no further try changes, and what an operator can do."""

_CONNECTIONS = 2
_GRACE = 0.5
_LOOK_SECONDS = 0.1
_ABORT_SECONDS = 2.0


class ProducerFencedError(FencedError):
    """Another producer has taken the transactional id. Nothing was written."""


class GroupOffsets(NamedTuple):
    """Next offsets to store, with their notes, in the group that ``metadata`` names."""

    offsets: Mapping[TopicPartition, int]
    metadata: object | None
    notes: Mapping[TopicPartition, str] = {}


class Transactions:
    """One transaction per ``write``. After an error the object cannot be used again.

    The constructor ends an open transaction of the previous producer with this transactional id, and fences that
    producer.
    """

    def __init__(self, sink: SinkIdentity, options: KafkaOptions, name: str, *, alone: bool = False) -> None:
        """``name``: the writer's name, from which its transactional id is made. The control topic has to exist.
        ``alone``: as ``producer_config`` takes it.
        """
        topic, timeout_ms = sink.control_topic, options.transaction_timeout_ms
        transactional_id = f"{sink.transactional_prefix}calving-{name}"
        self._where = f"control topic '{topic}'"
        self._stuck = False
        self.spoiled = False
        """Whether a connection broke since the producer was made. After a broker's crash such a producer may never
        recover.
        """
        # The broker aborts the transaction after ``timeout_ms``; until then it hides all later entries from readers.
        self._patience = timeout_ms / 2000
        config = producer_config(
            sink.kafka,
            alone=alone,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            message_timeout_ms=timeout_ms,
        )
        with reaching("iceberg.kafka.*", sink.kafka):
            self._producer = Producer(config | {"error_cb": self._on_error})
        try:
            self._call(lambda: self._connect(topic), _CONNECTIONS * TIMEOUT)
            self._call(lambda: self._producer.init_transactions(TIMEOUT), TIMEOUT)
        except KafkaException as error:
            raise _verdict(error.args[0], f"transactional id '{transactional_id}'") from error

    def _connect(self, topic: str) -> None:
        """A client without a connection fails to find its coordinator, and tries again after 0.5 s. That to a bootstrap
        server does not count: it ends once it has told of the brokers. The next question goes to one of these.
        """
        for _ in range(_CONNECTIONS):
            if self._producer.list_topics(topic, TIMEOUT).orig_broker_id >= 0:
                return

    def write(self, records: Sequence[OutRecord], *groups: GroupOffsets) -> None:
        """Append ``records`` to their topics and store the offsets of ``groups``, all or nothing.

        :raises ConfigError: a topic will never take one of the records. Nothing was written.
        :raises FencedError, UnavailableError: nothing was written. :raises OutcomeUnknownError: it may have been.
        """
        producer, deliveries = self._producer, Deliveries()
        try:
            producer.begin_transaction()
            deliveries.produce(producer, records)
            for group in groups:
                if group.offsets:
                    self._store(group)
            self._call(lambda: self._deliver(deliveries), self._patience + _LOOK_SECONDS)
        except KafkaException as error:
            raise self._failed(error.args[0], deliveries) from error
        if (refusal := deliveries.refusal) is not None:
            self._abort()
            raise refusal
        self._commit(deliveries)

    def _store(self, group: GroupOffsets) -> None:
        positions = [
            KafkaPartition(tp.topic, tp.partition, offset, group.notes.get(tp, ""))
            for tp, offset in group.offsets.items()
        ]
        seconds = self._patience
        self._call(partial(self._producer.send_offsets_to_transaction, positions, group.metadata, seconds), seconds)

    def _deliver(self, deliveries: Deliveries) -> None:
        """Wait until the records are delivered, or a topic has refused one for good: the client keeps what it has not
        sent by then, so a commit would wait for it in vain.
        """
        deadline = time.monotonic() + self._patience
        while self._producer.flush(_LOOK_SECONDS) and deliveries.refusal is None and time.monotonic() < deadline:
            pass

    def _commit(self, deliveries: Deliveries) -> None:
        try:
            self._call(lambda: self._producer.commit_transaction(self._patience), self._patience)
        except KafkaException as error:
            cause = error.args[0]
            if cause.txn_requires_abort():
                raise self._failed(cause, deliveries) from error
            # Even a fatal error may come after the broker has committed: only the stored positions show it.
            raise OutcomeUnknownError(f"{self._where}: {cause.str()}") from error

    def _failed(self, cause: KafkaError, deliveries: Deliveries) -> CalvingError:
        """Abort the transaction. Returns the error to raise. After a record that made the transaction fail, all that
        follows fails with an erroneous state, and the error of the record says why.
        """
        with contextlib.suppress(KafkaException):  # a fatal error comes again
            self._producer.poll(0)  # brings the answers that have come
        self._abort()
        if cause.code() not in _FENCED | _REPLACED and deliveries.refusal is not None:
            return deliveries.refusal
        return _verdict((cause.code() == KafkaError._STATE and deliveries.error) or cause, self._where)

    def close(self) -> None:
        # An open transaction hides all later entries from read_committed readers until it times out.
        self._abort()

    def look(self) -> bool:
        """Whether the producer can be used, as far as the client knows."""
        try:
            self._producer.poll(0)
        except KafkaException:  # it is fatal
            return False
        return not self.spoiled

    def _on_error(self, error: KafkaError) -> None:
        self.spoiled = True

    def _call(self, call: Callable[[], object], seconds: float) -> None:
        """Run one call of the client, and abandon it if it exceeds its own timeout.

        After a broker's crash and restart, librdkafka can wait in ``send_offsets_to_transaction`` for ever, whatever
        its timeout. No call follows an abandoned one, so its transaction cannot commit.
        """
        try:
            within(seconds + _GRACE, "calving-transaction", call)
        except LateError as error:
            self._stuck = True
            raise OutcomeUnknownError(f"{self._where}: the client does not answer") from error

    def _abort(self) -> None:
        if self._stuck:
            return  # the client does not answer; the next producer with its transactional id ends its transaction
        with contextlib.suppress(KafkaException, OutcomeUnknownError):
            self._call(lambda: self._producer.abort_transaction(_ABORT_SECONDS), _ABORT_SECONDS)


def _verdict(cause: KafkaError, where: str) -> CalvingError:
    if cause.code() in _REPLACED:
        return ProducerFencedError(f"{where}: {cause.str()}")
    if cause.code() in _FENCED:
        return FencedError(f"{where}: {cause.str()}")
    if (remedy := _REMEDIES.get(cause.code())) is not None:
        return ConfigError(f"{where}: {cause.str()}; {remedy}")
    return unavailable(cause, where)
