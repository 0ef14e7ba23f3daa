"""Offsets of partitions, as their brokers know them."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from calving.model.offsets import SourceOffsets, TopicPartition
from calving.source.client import TIMEOUT, patiently, reaching
from calving.source.interface import Bounds
from calving.source.start import Start

_TOGETHER = 100
"""The most partitions in one request, because the client compares each partition with every other."""


def bounds_of(consumer: Consumer, partitions: Collection[TopicPartition], read_up_to: SourceOffsets) -> Bounds:
    # Ask for the ends first: records that are removed between the two requests must not look like a truncation.
    ends = offsets_of(consumer, partitions, OFFSET_END)
    asked = [tp for tp, end in ends.items() if read_up_to.get(tp) != end]
    return Bounds(offsets_of(consumer, asked, OFFSET_BEGINNING), ends)


@patiently
def offsets_of(consumer: Consumer, partitions: Collection[TopicPartition], which: int) -> dict[TopicPartition, int]:
    """The first or the last stable offsets, or the first ones of a time in ms (below 0: there are none), by one request
    to each broker. An admin client would make an object with
    locks for every partition. For a thousand partitions that takes longer than the request.
    """
    if not partitions:
        return {}
    with reaching("asking for the topics' offsets"):
        requests = _requests(frozenset(partitions), which)
        answers = [each for asked in requests for each in consumer.offsets_for_times(asked, TIMEOUT)]
        for each in answers:
            if each.error is not None:
                raise KafkaException(each.error)
    return {TopicPartition(each.topic, each.partition): each.offset for each in answers}


@lru_cache(maxsize=4)
def _requests(partitions: frozenset[TopicPartition], which: int) -> list[list[KafkaPartition]]:
    """The requests for these partitions. They are cached, because a worker sends them every second."""
    asked = [KafkaPartition(tp.topic, tp.partition, which) for tp in partitions]
    return [asked[start : start + _TOGETHER] for start in range(0, len(asked), _TOGETHER)]


def starts_of(consumer: Consumer, bounds: Bounds, start: Start) -> SourceOffsets:
    if isinstance(start.place, str):
        return bounds.ends if start.place == "latest" else {**bounds.begins, **dict(start.offsets)}
    found = offsets_of(consumer, bounds.ends.keys(), start.place)
    return {tp: bounds.ends[tp] if at < 0 else at for tp, at in found.items()}
