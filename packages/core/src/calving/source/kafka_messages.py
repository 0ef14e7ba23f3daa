"""Reads records with confluent-kafka, as one message object each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from operator import itemgetter
from typing import Any, cast

import pyarrow as pa
from confluent_kafka import Consumer, Message, TopicPartition

from calving.model.ranges import Range
from calving.model.timestamps import is_moment
from calving.records.payloads import Payloads
from calving.source.client import TIMEOUT, headers_of
from calving.source.kafka_reader import Arrived, Client, PartitionKey, Position
from calving.source.reading import Block, header_column


class MessageBlock(Block):
    """A block of message objects. ``map`` makes the columns, because a loop would take twice as long."""

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
    def offsets(self) -> pa.Array:
        return pa.array(list(map(Message.offset, self._messages)), pa.int64())

    @cached_property
    def timestamps_ms(self) -> pa.Array:
        return pa.array(
            [at if kind else None for kind, at in (message.timestamp() for message in self._messages)], pa.int64()
        )

    @cached_property
    def headers(self) -> pa.ListArray:
        return header_column(list(map(headers_of, self._messages)))

    @property
    def size(self) -> int:
        return sum(map(len, self._messages))

    @property
    def latest_ms(self) -> int | None:
        largest = max(map(itemgetter(1), map(Message.timestamp, self._messages)))
        return largest if is_moment(largest) else super().latest_ms


class MessageClient(Client):
    def __init__(self, config: Mapping[str, Any]) -> None:
        self._consumer = Consumer(dict(config))
        self._assigned: dict[PartitionKey, None] = {}

    def learn(self, topic: str) -> None:
        self._consumer.list_topics(topic, TIMEOUT)

    def assign(self, positions: Sequence[Position]) -> None:
        self._consumer.incremental_assign([TopicPartition(*each) for each in positions])
        self._assigned |= {(topic, partition): None for topic, partition, _ in positions}

    def unassign(self, partitions: Sequence[tuple[str, int]]) -> None:
        self._consumer.incremental_unassign([TopicPartition(*partition) for partition in partitions])
        for partition in partitions:
            del self._assigned[partition]

    def take(self, most: int, seconds: float, *, headers: bool) -> list[Arrived]:
        found = self._consumer.consume(most, seconds)
        if found and len(self._assigned) == 1 and not any(map(Message.error, found)):
            (partition,) = self._assigned
            return [Arrived(partition, _offset(found[-1]), found, None)]
        return _by_partition(found)

    def block(self, source: Range, records: Any, *, cut: bool) -> Block | None:
        found = [message for message in records if _offset(message) < source.end] if cut else records
        return MessageBlock(source, found) if found else None

    def watermarks(self, topic: str, partition: int, seconds: float) -> tuple[int, int]:
        return self._consumer.get_watermark_offsets(TopicPartition(topic, partition), seconds)

    def close(self) -> None:
        self._consumer.close()


def _by_partition(found: Sequence[Message]) -> list[Arrived]:
    """The records of each partition in order, and faults at their place among them."""
    arrived: list[Arrived] = []
    groups: dict[PartitionKey, list[Message]] = {}
    for message in found:
        partition, fault = (message.topic(), message.partition()), message.error()
        if fault is not None:
            arrived.append(Arrived(partition, _offset(message), None, fault))
        else:
            groups.setdefault(partition, []).append(message)
    return arrived + [Arrived(partition, _offset(its[-1]), its, None) for partition, its in groups.items()]


def _offset(message: Message) -> int:
    return cast("int", message.offset())  # every consumed message has an offset
