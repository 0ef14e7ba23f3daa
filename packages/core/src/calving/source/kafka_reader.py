"""Reads offset ranges with librdkafka: no group, no commits, explicit offsets.

What ends a range is the position reached, not the records seen: transaction markers, aborted records and compacted
holes never arrive as messages.

Small ranges are read all at once: one request brings what many of them have. Large ones are read one after the other,
which keeps blocks large, and what is fetched ahead small.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from functools import cached_property
from operator import itemgetter
from typing import cast

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from calving.errors import ConfigError, DataLossError, UnavailableError
from calving.model.ranges import Range
from calving.model.record_path import Limits
from calving.records.payloads import Payloads
from calving.records.values import HEADERS
from calving.source.client import REFUSED, TIMEOUT, client_config, reaching
from calving.source.reading import Block, Reader

_AHEAD_RECORDS = 40_000
"""The next range is opened once the open ones have fewer left: twice what the client holds ready."""
_WAIT_SECONDS = 0.05
_WATERMARK_SECONDS = 5.0

_DATA_LOSS = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION)
_GONE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION)

_CONSUMERS: dict[str, tuple[Consumer, set[str]]] = {}
"""By configuration, with the topics that each knows."""

Place = tuple[str | None, int | None]
"""Topic and partition, as messages tell them: every one that was consumed has both."""


class MessageBlock(Block):
    """Columns are made by ``map``: a loop costs twice as much."""

    def __init__(self, source: Range, messages: Sequence[Message]) -> None:
        self.source = source
        self._messages = messages

    def __len__(self) -> int:
        return len(self._messages)

    @cached_property
    def values(self) -> Payloads:
        return Payloads(list(map(Message.value, self._messages)))

    @cached_property
    def keys(self) -> Payloads:
        return Payloads(list(map(Message.key, self._messages)))

    @cached_property
    def offsets(self) -> pa.Int64Array:
        return pa.array(list(map(Message.offset, self._messages)), pa.int64())

    @cached_property
    def timestamps_ms(self) -> pa.Int64Array:
        return pa.array(
            [at if kind else None for kind, at in (message.timestamp() for message in self._messages)], pa.int64()
        )

    @cached_property
    def headers(self) -> pa.ListArray:
        found = cast("list[list[tuple[str, bytes | None]]]", [message.headers() or [] for message in self._messages])
        return pa.array([[{"key": name, "value": value} for name, value in each] for each in found], HEADERS)

    @property
    def size(self) -> int:
        return sum(map(len, self._messages))

    @property
    def latest_ms(self) -> int | None:
        largest = max(map(itemgetter(1), map(Message.timestamp, self._messages)))
        return largest if largest >= 0 else None


class _Open:
    """A range that is being read."""

    def __init__(self, source: Range, waited: float) -> None:
        self.source = source
        self.position = source.start
        self.moved = waited
        """How long the reader had waited, over all, when this range last got any further."""

    @property
    def left(self) -> int:
        return self.source.end - self.position

    def __str__(self) -> str:
        return f"topic '{self.source.topic}', partition {self.source.partition}"


class KafkaReader(Reader):
    """One consumer per Python process and configuration, kept between tasks with its connections and what it knows of
    the cluster, until an error.
    """

    def __init__(self, kafka: Mapping[str, str], limits: Limits) -> None:
        self._limits = limits
        self._key = json.dumps(sorted(kafka.items()))
        if self._key not in _CONSUMERS:
            _CONSUMERS[self._key] = Consumer(_consumer_config(kafka)), set()
        self._consumer, self._topics = _CONSUMERS[self._key]
        self._open: dict[Place, _Open] = {}
        self._waited = 0.0

    def read(self, sources: Sequence[Range]) -> Generator[Block]:
        waiting = deque(source for source in sources if source.start < source.end)
        try:
            while waiting or self._open:
                self._open_more(waiting)
                yield from self._take()
                self._close_ended()
        except BaseException:
            del _CONSUMERS[self._key]
            self._consumer.close()
            raise

    def _open_more(self, waiting: deque[Range]) -> None:
        fresh: list[TopicPartition] = []
        left = self._left
        while waiting and left < _AHEAD_RECORDS:
            source = waiting.popleft()
            self._open[source.topic, source.partition] = _Open(source, self._waited)
            fresh.append(TopicPartition(source.topic, source.partition, source.start))
            left += source.end - source.start
        if fresh:
            self._learn({place.topic for place in fresh})
            self._consumer.incremental_assign(fresh)

    def _learn(self, topics: set[str]) -> None:
        """The client looks for the leaders of a topic that is new to it only once a second."""
        for topic in topics - self._topics:
            with reaching(f"topic '{topic}'"):
                self._consumer.list_topics(topic, TIMEOUT)
        self._topics |= topics

    def _close_ended(self) -> None:
        ended = [each.source for each in self._open.values() if each.left <= 0]
        for source in ended:
            del self._open[source.topic, source.partition]
        if ended:
            self._consumer.incremental_unassign([TopicPartition(s.topic, s.partition) for s in ended])

    @property
    def _left(self) -> int:
        return sum(each.left for each in self._open.values())

    def _take(self) -> Iterator[Block]:
        """The fetched records: at most one block of each range."""
        started = time.monotonic()
        try:
            found = self._consumer.consume(min(self._limits.block_records, self._left), _WAIT_SECONDS)
        except KafkaException as error:
            raise UnavailableError(f"reading from Kafka: {error}") from error
        self._waited += time.monotonic() - started
        if not found:
            self._mind_stalled()
        elif len(self._open) == 1 and not any(map(Message.error, found)):
            (only,) = self._open.values()
            yield from self._advance(only, found)
        else:
            yield from self._sort(found)

    def _sort(self, found: Sequence[Message]) -> Iterator[Block]:
        """Messages of several ranges, or with errors among them."""
        messages: dict[_Open, list[Message]] = {}
        empty_up_to: dict[_Open, int] = {}
        for message in found:
            fault, each = message.error(), self._open.get((message.topic(), message.partition()))
            if fault is not None and fault.fatal():
                raise UnavailableError(f"reading from Kafka: {fault.str()}")
            if each is None:
                continue  # a broker that went away, of which librdkafka takes care
            if fault is None:
                messages.setdefault(each, []).append(message)
            elif fault.code() == KafkaError._PARTITION_EOF:
                empty_up_to[each] = _offset(message)
            elif fault.code() in _DATA_LOSS:
                raise DataLossError(self._loss(each, message.offset()))
            elif fault.code() in REFUSED:
                raise ConfigError(f"{each}: {fault.str()}; check the kafka.* settings and the privileges")
            elif fault.code() in _GONE:
                raise UnavailableError(f"{each}: {fault.str()}")
        for each, its in messages.items():
            yield from self._advance(each, its)
        for each, offset in empty_up_to.items():
            if offset > each.position:
                each.position, each.moved = offset, self._waited

    def _advance(self, each: _Open, messages: list[Message]) -> Iterator[Block]:
        end = each.source.end
        each.position, each.moved = _offset(messages[-1]) + 1, self._waited
        if each.position > end:
            messages = [message for message in messages if _offset(message) < end]
        if messages:
            yield MessageBlock(each.source, messages)

    def _mind_stalled(self) -> None:
        for each in self._open.values():
            if self._waited - each.moved > self._limits.stalled_seconds:
                raise UnavailableError(
                    f"{each}: no progress at offset {each.position} of {each.source.end} for"
                    f" {self._limits.stalled_seconds:.0f} s"
                )

    def _loss(self, each: _Open, wanted: int | None) -> str:
        try:
            at = TopicPartition(each.source.topic, each.source.partition)
            first, end = self._consumer.get_watermark_offsets(at, _WATERMARK_SECONDS)
        except KafkaException as error:
            return f"{each}: reading should continue at offset {wanted}, which is no longer available ({error})"
        return f"{each}: reading should continue at offset {wanted}, but the broker has {first} to {end}"


def _offset(message: Message) -> int:
    return cast("int", message.offset())  # every one that was consumed has one, and so has the end of a partition


def _consumer_config(kafka: Mapping[str, str]) -> dict[str, object]:
    tuned = {
        # A task reads a range, not a stream: what is fetched past its end is thrown away.
        "queued.min.messages": "20000",
        "queued.max.messages.kbytes": "16384",
        "fetch.message.max.bytes": "2097152",
        "fetch.wait.max.ms": "10",
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
