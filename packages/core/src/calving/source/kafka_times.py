"""The timestamps of single records, such as the oldest that no table holds."""

from __future__ import annotations

import time
from collections.abc import Mapping

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE
from confluent_kafka import TopicPartition as KafkaPartition

from calving.model.offsets import SourceOffsets, TopicPartition, is_moment
from calving.source.client import consumer_client, reaching

_SECONDS = 3.0
_FETCH_BYTES = 16 * 1024
"""Of a partition; a longer record comes all the same."""


def first_times(kafka: Mapping[str, str], positions: SourceOffsets) -> dict[TopicPartition, int]:
    """The timestamps, in ms, of the first records at or above these offsets, of those partitions that answer within
    three seconds and have such a record that can be read, and has a timestamp that is a moment.
    """
    first: dict[TopicPartition, int] = {}
    if not positions:
        return first
    until = time.monotonic() + _SECONDS
    with reaching("reading the oldest records that are in no table yet"):
        consumer = consumer_client(
            kafka,
            group_id="calving-bounds",  # the client requires a group, but never joins it
            isolation_level="read_committed",
            enable_auto_commit=False,
            enable_auto_offset_store=False,
            auto_offset_reset="error",
            enable_partition_eof=True,
            queued_min_messages=1,
            max_partition_fetch_bytes=_FETCH_BYTES,
        )
        try:
            consumer.assign([KafkaPartition(tp.topic, tp.partition, at) for tp, at in positions.items()])
            waiting = set(positions)
            while waiting and (left := until - time.monotonic()) > 0:
                for message in consumer.consume(min(len(waiting), 500), left):
                    tp = TopicPartition(str(message.topic()), int(message.partition() or 0))
                    if tp not in waiting:
                        continue
                    kind, at = message.timestamp()
                    if message.error() is None and kind != TIMESTAMP_NOT_AVAILABLE and is_moment(at):
                        first[tp] = at
                    waiting.discard(tp)
                    consumer.pause([KafkaPartition(tp.topic, tp.partition)])
        finally:
            consumer.close()
    return first
