"""Sentences on records that the broker no longer has."""

from __future__ import annotations

from calving.model.offsets import TopicPartition
from calving.source.interface import Bounds


def recreated_text(tp: TopicPartition, stored: int) -> str:
    return (
        f"topic '{tp.topic}' was recreated after partition {tp.partition} was read up to offset"
        f" {stored}: records that the former topic held from there on are lost, if it had any"
    )


def truncated_text(tp: TopicPartition, wanted: int, bounds: Bounds) -> str:
    return (
        f"topic '{tp.topic}', partition {tp.partition}, was truncated: reading should continue at offset {wanted}, but"
        f" it ends at {bounds.ends[tp]} (an unclean leader election, or a broker that lost acknowledged records); the"
        " tables keep the records that were read from it"
    )


def data_loss_text(tp: TopicPartition, wanted: int, bounds: Bounds) -> str:
    return (
        f"topic '{tp.topic}', partition {tp.partition}: reading should continue at offset {wanted}, but the broker has"
        f" {bounds.begins[tp]} to {bounds.ends[tp]} (retention, or the topic was recreated)"
    )
