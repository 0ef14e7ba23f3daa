"""Reads offset ranges with librdkafka: no group, no commits, explicit offsets.

A range ends when the position reaches its end, whatever records were seen: transaction markers, aborted records and
compacted offsets never arrive as messages.

Small ranges are read all at once, so that one request fetches records of many ranges. Large ranges are read one after
the other, so that blocks are large, and few records are fetched ahead.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from calving.errors import ConfigError, DataLossError, UnavailableError, UnexpectedError
from calving.model.offsets import Range
from calving.model.record_path import Limits
from calving.source.client import REFUSED, client_config, reaching, unavailable
from calving.source.kafka_columns import Arrived, Client, PartitionKey, Position, absence
from calving.source.reading import Block, Reader

_AHEAD_RECORDS = 40_000
"""The next range is opened once the open ranges have fewer records left than this. It is twice the number of records
that the client fetches ahead.
"""
_WAIT_SECONDS = 0.05
_WATERMARK_SECONDS = 5.0

_DATA_LOSS = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION)
_UNREADABLE = (KafkaError._BAD_COMPRESSION, KafkaError._BAD_MSG)
"""Errors of a batch that the client cannot read. It tries the batch for ever, or goes on behind it."""
_GONE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION)


_CLIENTS: dict[str, tuple[Client, set[str]]] = {}
"""The clients by configuration, each with the topics that it knows."""


class _Open:
    """A range that is being read."""

    def __init__(self, source: Range, waited: float) -> None:
        self.source = source
        self.position = source.start
        self.moved = waited
        """The total waiting time of the reader when this range last made progress."""
        self.fault: KafkaError | None = None
        """The last fault since then."""

    def advance(self, position: int, waited: float) -> None:
        self.position, self.moved, self.fault = position, waited, None

    @property
    def left(self) -> int:
        return self.source.end - self.position

    def __str__(self) -> str:
        return f"topic '{self.source.topic}', partition {self.source.partition}"


class KafkaReader(Reader):
    """Reads ranges with one client per Python process and configuration. The client is kept from task to task, with its
    connections and its metadata of the cluster, until an error.
    """

    def __init__(self, kafka: Mapping[str, str], limits: Limits, *, headers: bool) -> None:
        self._limits, self._headers = limits, headers
        self._key = json.dumps([absence(), *sorted(kafka.items())])
        if self._key not in _CLIENTS:
            with reaching("kafka.*", kafka):
                _CLIENTS[self._key] = Client(_consumer_config(kafka)), set()
        self._client, self._topics = _CLIENTS[self._key]
        self._open: dict[PartitionKey, _Open] = {}
        self._waited = 0.0

    def read(self, sources: Sequence[Range]) -> Generator[Block]:
        waiting = deque(source for source in sources if source.start < source.end)
        try:
            while waiting or self._open:
                self._open_more(waiting)
                yield from self._take()
                self._close_ended()
        except BaseException:
            del _CLIENTS[self._key]
            self._client.close()
            raise

    def _open_more(self, waiting: deque[Range]) -> None:
        fresh: list[Position] = []
        left = self._left
        while waiting and left < _AHEAD_RECORDS:
            source = waiting.popleft()
            self._open[source.topic, source.partition] = _Open(source, self._waited)
            fresh.append((source.topic, source.partition, source.start))
            left += source.end - source.start
        if fresh:
            self._learn({topic for topic, _, _ in fresh})
            self._client.assign(fresh)

    def _learn(self, topics: set[str]) -> None:
        """Tell the client about new topics. By itself it would look for the leaders of a new topic only once a
        second.
        """
        for topic in topics - self._topics:
            with reaching(f"topic '{topic}'"):
                self._client.learn(topic)
        self._topics |= topics

    def _close_ended(self) -> None:
        ended = [each.source for each in self._open.values() if each.left <= 0]
        for source in ended:
            del self._open[source.topic, source.partition]
        if ended:
            self._client.unassign([(source.topic, source.partition) for source in ended])

    @property
    def _left(self) -> int:
        return sum(each.left for each in self._open.values())

    def _take(self) -> Iterator[Block]:
        """The fetched records: a block for each range with new records."""
        started = time.monotonic()
        try:
            most = min(self._limits.block_records, self._left)
            arrivals = self._client.take(most, _WAIT_SECONDS, headers=self._headers)
        except KafkaException as error:
            raise unavailable(error.args[0], "reading from Kafka") from error
        self._waited += time.monotonic() - started
        if not arrivals:
            self._check_progress()
        for arrived in arrivals:
            self._raise_fault(arrived)
        for arrived in arrivals:
            each = self._open.get(arrived.partition)
            # Other records are late, because their range has ended.
            if arrived.fault is None and each is not None:
                yield from self._advance(each, arrived.offset, arrived.records)
        # The end of a partition comes after all records that arrived with it.
        for arrived in arrivals:
            each = self._open.get(arrived.partition)
            if each is not None and arrived.is_end and arrived.offset > each.position:
                each.advance(arrived.offset, self._waited)

    def _raise_fault(self, arrived: Arrived) -> None:
        fault, each = arrived.fault, self._open.get(arrived.partition)
        if fault is None:
            return
        if fault.fatal():
            raise unavailable(fault, "reading from Kafka")
        if each is None:
            return  # a broker went away: librdkafka handles that
        if fault.code() in _DATA_LOSS:
            raise DataLossError(self._loss(each, arrived.offset))
        if fault.code() in _UNREADABLE:
            raise ConfigError(
                f"{each}: the batch at offset {arrived.offset} is unreadable ({fault.str()}); if zstd makes more than"
                " kafka.receive.message.max.bytes of it, raise that key; else copy the partition's other records from"
                f" offset {each.source.start} on to another topic. To delete the topic's records up to the end of the"
                " batch, see iceberg.source.on-data-loss, loses those before it, too"
            )
        if fault.code() in REFUSED:
            raise ConfigError(f"{each}: {fault.str()}; check the kafka.* settings and the privileges")
        if fault.code() in _GONE:
            raise UnavailableError(f"{each}: {fault.str()}")
        if not arrived.is_end:
            each.fault = fault

    def _advance(self, each: _Open, last: int, records: Any) -> Iterator[Block]:
        each.advance(last + 1, self._waited)
        block = self._client.block(each.source, records, cut=each.position > each.source.end)
        if block is not None:
            yield block

    def _check_progress(self) -> None:
        for each in self._open.values():
            if self._waited - each.moved > self._limits.stalled_seconds:
                stalled = (
                    f"{each}: no progress at offset {each.position} of {each.source.end} for"
                    f" {self._limits.stalled_seconds:.0f} s"
                )
                if each.fault is not None:
                    raise unavailable(each.fault, stalled)
                raise UnexpectedError(f"{stalled}: can the tasks reach the partition's broker?")

    def _loss(self, each: _Open, wanted: int) -> str:
        try:
            first, end = self._client.watermarks(each.source.topic, each.source.partition, _WATERMARK_SECONDS)
        except KafkaException as error:
            return f"{each}: reading should continue at offset {wanted}, which is no longer available ({error})"
        return f"{each}: reading should continue at offset {wanted}, but the broker has {first} to {end}"


def _consumer_config(kafka: Mapping[str, str]) -> dict[str, Any]:
    tuned = {
        # A task reads a range, not a stream: records fetched beyond the range's end are thrown away.
        "queued.min.messages": "20000",
        "queued.max.messages.kbytes": "16384",
        "fetch.message.max.bytes": "2097152",
        "fetch.wait.max.ms": "10",
        # By default librdkafka checks a full queue again only after a second, and a task would wait for three quarters
        # of its time; with 10 ms, for a fifth.
        "fetch.queue.backoff.ms": "3",
        "check.crcs": "false",
    }
    return client_config(
        {**tuned, **kafka},
        group_id="calving-range-reader",  # required by the client, never used: no commits, no membership
        enable_auto_commit=False,
        enable_auto_offset_store=False,
        enable_partition_eof=True,
        isolation_level="read_committed",
        # By default the client would silently jump to the end if an offset is gone.
        auto_offset_reset="error",
    )
