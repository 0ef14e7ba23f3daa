"""Reads offset ranges with librdkafka: no group, no commits, explicit offsets.

What ends a range is the position reached, not the records seen: transaction markers, aborted records and compacted
holes never arrive as messages. The reader hands on blocks of columns and nothing else, so another one can take its
place.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from operator import itemgetter

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from calving.data.spec import Limits, Range
from calving.errors import DataLossError, Unavailable
from calving.source.client import client_config

_CONSUMERS: dict[str, Consumer] = {}


class Block:
    """Consecutive records of one partition, as columns, which are made by ``map``: a loop costs twice as much."""

    def __init__(self, source: Range, messages: Sequence[Message]) -> None:
        self.source = source
        self._messages = messages

    def __len__(self) -> int:
        return len(self._messages)

    @cached_property
    def values(self) -> list[bytes | None]:
        return list(map(Message.value, self._messages))

    @cached_property
    def keys(self) -> list[bytes | None]:
        return list(map(Message.key, self._messages))

    @cached_property
    def offsets(self) -> list[int]:
        return list(map(Message.offset, self._messages))

    @cached_property
    def timestamps_ms(self) -> list[int | None]:
        """None where the record has no timestamp."""
        return [t if kind else None for kind, t in (m.timestamp() for m in self._messages)]

    @cached_property
    def headers(self) -> list[list[tuple[str, bytes | None]]]:
        return [m.headers() or [] for m in self._messages]

    @property
    def size(self) -> int:
        """Bytes of all values."""
        return sum(map(len, self._messages))

    @property
    def latest_ms(self) -> int | None:
        """The largest timestamp."""
        largest = max(map(itemgetter(1), map(Message.timestamp, self._messages)))
        return largest if largest >= 0 else None


class RangeReader:
    """One consumer per Python process and configuration, kept between tasks."""

    def __init__(self, kafka: Mapping[str, str], limits: Limits) -> None:
        self._limits = limits
        key = json.dumps(sorted(kafka.items()))
        if key not in _CONSUMERS:
            _CONSUMERS[key] = Consumer(_consumer_config(kafka))
        self._consumer = _CONSUMERS[key]

    def read(self, source: Range) -> Iterator[Block]:
        """Every committed record of the range, once, in order.

        :raises DataLossError: the broker no longer has the start. :raises Unavailable: no progress for too long.
        """
        position = source.start
        if position >= source.end:
            return
        self._consumer.assign([TopicPartition(source.topic, source.partition, source.start)])
        try:
            progress = time.monotonic()
            while position < source.end:
                messages, reached = self._take(source, position)
                if reached > position:
                    position, progress = reached, time.monotonic()
                elif time.monotonic() - progress > self._limits.stalled_seconds:
                    raise Unavailable(
                        f"topic '{source.topic}', partition {source.partition}: no progress at offset {position} of"
                        f" {source.end} for {self._limits.stalled_seconds:.0f} s"
                    )
                if messages:
                    yield Block(source, messages)
        finally:
            self._consumer.unassign()

    def _take(self, source: Range, position: int) -> tuple[list[Message], int]:
        """Some messages, and the position reached after them."""
        wanted = min(self._limits.block_records, source.end - position)
        try:
            found = self._consumer.consume(wanted, 0.05)
        except KafkaException as error:
            raise Unavailable(f"topic '{source.topic}', partition {source.partition}: {error}") from error
        if found and found[-1].error() is None and found[-1].offset() < source.end and not _has_errors(found):
            return found, found[-1].offset() + 1
        messages: list[Message] = []
        for message in found:
            fault = message.error()
            if fault is None and message.offset() < source.end:
                messages.append(message)
                position = message.offset() + 1
            elif fault is None:
                return messages, source.end
            else:
                position = max(position, _reached(source, message, fault))
        return messages, position


def _has_errors(messages: Sequence[Message]) -> bool:
    return any(map(Message.error, messages))


def _reached(source: Range, message: Message, error: KafkaError) -> int:
    if error.code() == KafkaError._PARTITION_EOF:
        return int(message.offset())
    if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
        raise DataLossError(
            f"topic '{source.topic}', partition {source.partition}: offset {source.start} is no longer available:"
            f" {error.str()}"
        )
    if error.fatal() or error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION):
        raise Unavailable(f"topic '{source.topic}', partition {source.partition}: {error.str()}")
    return -1  # librdkafka goes on by itself


def _consumer_config(kafka: Mapping[str, str]) -> dict[str, object]:
    tuned = {
        # A task reads a range, not a stream: what is fetched past its end is thrown away.
        "queued.min.messages": "20000",
        "queued.max.messages.kbytes": "16384",
        "fetch.message.max.bytes": "2097152",
        "fetch.wait.max.ms": "50",
        # A full queue is looked at again after a whole second by default: three quarters of the time would be waiting.
        "fetch.queue.backoff.ms": "10",
        "check.crcs": "false",
    }
    return client_config(
        {**tuned, **kafka},
        group_id="calving-range-reader",  # required by the client, never used: no commits, no membership
        enable_auto_commit=False,
        enable_auto_offset_store=False,
        enable_partition_eof=True,
        isolation_level="read_committed",
        # The default would jump to the end silently when an offset is gone.
        auto_offset_reset="error",
    )
