"""A transactional producer whose failures say what the caller does next."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as KafkaPartition

from calving.errors import CalvingError, Fenced, OutcomeUnknown, Unavailable
from calving.model.offsets import TopicPartition
from calving.source.client import TIMEOUT, client_config
from calving.source.dead_letters import MAX_MESSAGE_BYTES, OutRecord

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


class GroupOffsets(NamedTuple):
    """Next offsets to store in the group that ``metadata`` names, with notes beside them."""

    offsets: Mapping[TopicPartition, int]
    metadata: object | None
    notes: Mapping[TopicPartition, str] = {}


class Transactions:
    """One transaction per ``write``. After an error the object is of no further use."""

    def __init__(self, kafka: Mapping[str, str], topic: str, transactional_id: str, timeout_ms: int) -> None:
        """``topic`` is what errors name."""
        self._topic = topic
        self._stuck = False
        try:
            self._producer = Producer(
                client_config(
                    kafka,
                    transactional_id=transactional_id,
                    transaction_timeout_ms=timeout_ms,
                    message_timeout_ms=timeout_ms,
                    linger_ms=0,
                    message_max_bytes=MAX_MESSAGE_BYTES,
                )
            )
            self._call(lambda: self._producer.init_transactions(TIMEOUT))
        except KafkaException as error:
            raise _verdict(error.args[0], f"transactional id '{transactional_id}'") from error

    def write(self, records: Sequence[OutRecord], *groups: GroupOffsets) -> None:
        """Append ``records`` to their topics and store the offsets of ``groups``: all, or nothing.

        :raises Fenced, Unavailable: nothing was written. :raises OutcomeUnknown: it may have been.
        """
        producer = self._producer
        try:
            producer.begin_transaction()
            for r in records:
                producer.produce(
                    r.topic, r.value, r.key, r.partition, timestamp=r.timestamp_ms, headers=list(r.headers)
                )
            for group in groups:
                if group.offsets:
                    positions = [
                        KafkaPartition(tp.topic, tp.partition, offset, group.notes.get(tp, ""))
                        for tp, offset in group.offsets.items()
                    ]
                    self._call(partial(producer.send_offsets_to_transaction, positions, group.metadata, TIMEOUT))
        except (KafkaException, BufferError) as error:
            cause = error.args[0] if isinstance(error, KafkaException) else str(error)
            self._abort()
            raise _verdict(cause, f"control topic '{self._topic}'") from error
        try:
            self._call(lambda: producer.commit_transaction(TIMEOUT))
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

    def _call(self, call: Callable[[], object]) -> None:
        """Run one call of the client, and give up on it when it outstays its own timeout.

        After a broker has come back from a crash, librdkafka can wait in ``send_offsets_to_transaction`` for ever,
        whatever timeout it was given. Nothing follows a call that was given up, so it can never commit.
        """
        done: Future[object] = Future()

        def run() -> None:
            try:
                done.set_result(call())
            except BaseException as error:  # handed over to the caller
                done.set_exception(error)

        threading.Thread(target=run, name="calving-transaction", daemon=True).start()
        try:
            done.result(TIMEOUT + 5)
        except TimeoutError as error:
            self._stuck = True
            raise OutcomeUnknown(f"control topic '{self._topic}': the client does not come back") from error

    def _abort(self) -> None:
        if self._stuck:
            return  # the client is beyond reach; the broker ends its transaction after the transaction timeout
        with contextlib.suppress(KafkaException, OutcomeUnknown):
            self._call(lambda: self._producer.abort_transaction(TIMEOUT))


def _verdict(cause: KafkaError | str, where: str) -> CalvingError:
    if isinstance(cause, KafkaError):
        if cause.code() in _FENCED:
            return Fenced(f"{where}: {cause.str()}")
        return Unavailable(f"{where}: {cause.str()}")
    return Unavailable(f"{where}: {cause}")
