"""Reads records with confluent-kafka where there is no reader in Rust, by the methods of calving-native's consumer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, Message, TopicPartition

from calving.model.dead_letters import Headers
from calving.source.client import headers_of


class MessageRecords:
    """Consecutive records of one partition, as columns of equal length. ``map`` makes them, because a loop would take
    twice as long.
    """

    def __init__(self, messages: Sequence[Message], *, headers: bool) -> None:
        self._messages, self._headers = messages, headers

    def values(self) -> pa.Array:
        return pa.array(list(map(Message.value, self._messages)), pa.binary())

    def keys(self) -> pa.Array:
        return pa.array(list(map(Message.key, self._messages)), pa.binary())

    def offsets(self) -> pa.Array:
        return pa.array(list(map(Message.offset, self._messages)), pa.int64())

    def timestamps(self) -> pa.Array:
        times = map(Message.timestamp, self._messages)
        return pa.array([at if kind else None for kind, at in times], pa.int64())

    def headers(self) -> list[Headers | None]:
        """:raises RuntimeError: the records were taken without their headers."""
        if not self._headers:
            raise RuntimeError("the records were taken without their headers")
        return list(map(headers_of, self._messages))


class MessageConsumer:
    """A consumer in no group. Its methods raise KafkaException."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._consumer = Consumer(dict(config))

    def learn(self, topic: str, timeout_ms: int) -> None:
        self._consumer.list_topics(topic, timeout_ms / 1000)

    def assign(self, partitions: Sequence[tuple[str, int, int]]) -> None:
        self._consumer.incremental_assign([TopicPartition(*each) for each in partitions])

    def unassign(self, partitions: Sequence[tuple[str, int, int]]) -> None:
        self._consumer.incremental_unassign([TopicPartition(*each) for each in partitions])

    def take(
        self, most: int, timeout_ms: int, headers: bool
    ) -> list[tuple[str | None, int | None, int | None, MessageRecords | None, tuple[int, str, bool] | None]]:
        """Faults, and the records of each partition with the offset of the last one."""
        arrived: list[Any] = []
        groups: dict[tuple[str | None, int | None], list[Message]] = {}
        for message in self._consumer.consume(most, timeout_ms / 1000):
            fault = message.error()
            if fault is None:
                groups.setdefault((message.topic(), message.partition()), []).append(message)
            else:
                told = fault.code(), fault.str(), fault.fatal()
                arrived.append((message.topic(), message.partition(), message.offset(), None, told))
        for place, messages in groups.items():
            arrived.append((*place, messages[-1].offset(), MessageRecords(messages, headers=headers), None))
        return arrived

    def close(self) -> None:
        self._consumer.close()
