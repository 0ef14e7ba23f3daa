"""Reads records as Arrow columns, with ``calving-native`` and confluent-kafka's librdkafka, without an object for each
record. Where there is no calving-native, the columns are made of message objects.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from calving.converters import native
from calving.model.dead_letters import Headers
from calving.model.offsets import Range
from calving.records.values import Payloads
from calving.source.client import TIMEOUT, headers_of, log
from calving.source.reading import Block, has_header, header_column

_NO_TIME = -1
"""The timestamp that a producer writes if it knows no time."""


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
        return pa.array([at if kind and at != _NO_TIME else None for kind, at in times], pa.int64())

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


_LEVELS = (logging.CRITICAL,) * 3 + (logging.ERROR, logging.WARNING, logging.INFO, logging.INFO, logging.DEBUG)
"""Python's log level for each level of syslog."""
_MAPS = Path("/proc/self/maps")

PartitionKey = tuple[str | None, int | None]
"""A topic and the number of a partition. Both are None only for a fault that is of no partition."""
Position = tuple[str, int, int]
"""Topic, partition and offset."""


def absence() -> str | None:
    """The reason why there is no reader in Rust; None if there is one."""
    if (reason := native.absence()) is not None:
        return reason
    return None if _library() is not None else "the librdkafka of confluent-kafka was not found"


@cache
def _library() -> str | None:
    """The file of the library that confluent_kafka has loaded."""
    if _MAPS.exists():
        paths = {line.split(maxsplit=5)[-1].strip() for line in _MAPS.read_text().splitlines() if "librdkafka" in line}
    else:
        package = Path(confluent_kafka.__file__).parent
        beside = (package / ".dylibs", package.with_name("confluent_kafka.libs"))
        paths = {str(path) for folder in beside for path in folder.glob("librdkafka*")}
    # A library whose package has been replaced meanwhile cannot be found again by its name.
    paths = {path for path in paths if Path(path).exists()}
    return paths.pop() if len(paths) == 1 else None


class Arrived(NamedTuple):
    """The arrivals of one partition: records, or a fault."""

    partition: PartitionKey
    offset: int
    """The offset of the last record; or the end of the partition; or the offset that a fault is about."""
    records: Any
    """The argument for the client's ``block``, if there is no fault."""
    fault: KafkaError | None

    @property
    def is_end(self) -> bool:
        """Whether this arrival says where the partition ends."""
        return self.fault is not None and self.fault.code() == KafkaError._PARTITION_EOF


class ColumnBlock(Block):
    def __init__(self, source: Range, records: Any, count: int | None = None) -> None:
        """``count``: take only this many of the records."""
        self.source, self._records, self._count = source, records, count

    def __len__(self) -> int:
        return len(self.offsets)

    @cached_property
    def values(self) -> Payloads:
        return Payloads(self._column(self._records.values()))

    @cached_property
    def keys(self) -> Payloads:
        return Payloads(self._column(self._records.keys()))

    @cached_property
    def offsets(self) -> pa.Array:
        return self._column(self._records.offsets())

    @cached_property
    def timestamps_ms(self) -> pa.Array:
        return self._column(self._records.timestamps())

    @cached_property
    def headers(self) -> pa.ListArray:
        return header_column(self._headers)

    def with_header(self, name: str, places: Iterable[int]) -> Collection[int]:
        headers = self._headers
        return {i for i in places if headers[i] and has_header(headers[i], name)}

    @cached_property
    def _headers(self) -> Sequence[Headers | None]:
        headers: Sequence[Headers | None] = self._records.headers()[: self._count]
        return headers

    def _column(self, made: Any) -> pa.Array:
        return pa.array(made)[: self._count]


class Client:
    """A consumer that is in no group: of calving-native, or of confluent-kafka where there is none. Its methods raise
    KafkaException.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        """:raises LookupError: librdkafka cannot be used."""
        self._config = config
        self._logged: Callable[[], Sequence[tuple[int, str]]] = tuple  # confluent-kafka logs by itself
        if absence() is not None:
            self._consumer: Any = MessageConsumer(config)
            return
        native, properties = importlib.import_module("calving_native"), _properties(config)
        self._logged = native.logged
        try:
            self._consumer = native.Consumer(_library() or "", confluent_kafka.libversion()[1], properties)
        except ValueError as error:
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, str(error))) from error

    def learn(self, topic: str) -> None:
        """Find out who leads the partitions of a topic."""
        _check(self._consumer.learn(topic, int(TIMEOUT * 1000)))

    def assign(self, positions: Sequence[Position]) -> None:
        """Begin to read these partitions, too."""
        _check(self._consumer.assign(list(positions)))

    def unassign(self, partitions: Sequence[tuple[str, int]]) -> None:
        """Stop reading these partitions."""
        _check(self._consumer.unassign([(*partition, 0) for partition in partitions]))

    def take(self, most: int, seconds: float, *, headers: bool) -> list[Arrived]:
        """At most ``most`` records, which arrive within ``seconds``; fewer if they are large. Records of one partition
        are in order. ``headers``: whether the headers of these records will be read.
        """
        arrived = self._consumer.take(most, int(seconds * 1000), headers)
        self._tell()
        return [
            Arrived((topic, partition), offset, records, None if fault is None else KafkaError(*fault))
            for topic, partition, offset, records, fault in arrived
        ]

    def block(self, source: Range, records: Any, *, cut: bool) -> Block | None:
        """The block of records that arrived. With ``cut``, only the records below the range's end; None if there are
        none.
        """
        if not cut:
            return ColumnBlock(source, records)
        count = pc.sum(pc.less(pa.array(records.offsets()), source.end)).as_py()
        return ColumnBlock(source, records, count) if count else None

    def watermarks(self, topic: str, partition: int, seconds: float) -> tuple[int, int]:
        """The first offset and the end of the partition on the broker."""
        consumer = confluent_kafka.Consumer(dict(self._config))
        try:
            return consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, partition), seconds)
        finally:
            consumer.close()

    def close(self) -> None:
        self._consumer.close()
        self._tell()

    def _tell(self) -> None:
        for level, line in self._logged():
            log.log(_LEVELS[min(level, len(_LEVELS) - 1)], "%s", line)


def _properties(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(name, _text(value)) for name, value in config.items() if name != "logger"]


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check(fault: tuple[int, str] | None) -> None:
    if fault is not None:
        raise KafkaException(KafkaError(*fault))
