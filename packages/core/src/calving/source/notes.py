"""Offsets, each with a note, that a consumer group without members keeps in Kafka."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import closing

from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from calving.model.offsets import TopicPartition
from calving.source.client import TIMEOUT, consumer_client, patiently, reaching
from calving.source.interface import NotedOffsets


@patiently
def noted(kafka: Mapping[str, str], group: str, partitions: Collection[TopicPartition]) -> NotedOffsets:
    """The offsets and notes of those of the partitions that have one.

    :raises ConfigError: settings or privileges are wrong. :raises UnavailableError: the broker cannot be reached.
    """
    asked = [KafkaPartition(tp.topic, tp.partition) for tp in partitions]
    with closing(consumer_client(kafka, group_id=group)) as client, reaching(f"offsets of group '{group}'"):
        found = client.committed(asked, TIMEOUT) if asked else []
        for each in found:
            if each.error is not None:
                raise KafkaException(each.error)
    return {
        TopicPartition(each.topic, each.partition): (each.offset, each.metadata or "")
        for each in found
        if each.offset >= 0
    }


@patiently
def note(kafka: Mapping[str, str], group: str, offsets: NotedOffsets) -> None:
    """Store offsets with their notes.

    :raises ConfigError: settings or privileges are wrong. :raises UnavailableError: the broker cannot be reached.
    """
    stored = [KafkaPartition(tp.topic, tp.partition, at, text) for tp, (at, text) in offsets.items()]
    with closing(consumer_client(kafka, group_id=group)) as client, reaching(f"offsets of group '{group}'"):
        for each in client.commit(offsets=stored, asynchronous=False) or ():
            if each.error is not None:
                raise KafkaException(each.error)
