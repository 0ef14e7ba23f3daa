"""Stored positions that do not fit: those that somebody else has moved, and those whose records the broker no longer
has.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping

from calving.backend.cursors import read_to_end
from calving.backend.interface import ControlLog, Session
from calving.model.offsets import SourceOffsets, TopicPartition
from calving.protocol.moved import ReadOffsets, Unread
from calving.source.interface import Bounds

Resumed = Callable[[ControlLog], SourceOffsets]
"""Where the sink reads on by its tables (``protocol.recovery.resumed``)."""


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


def moved(
    session: Session, stored: SourceOffsets, topic_ids: Mapping[str, str], resumed: Resumed
) -> dict[TopicPartition, Unread]:
    """The offsets below the ``stored`` positions that nobody has read, because somebody else moved the positions. The
    control log is read only if there is a position that the sink has not stored, and the tables only if the log tells
    nothing of its partition.

    :raises DataLossError, UnavailableError: the control log or a table cannot be read.
    """
    foreign = session.moved_by_others(stored.keys())
    if not foreign:
        return {}
    with contextlib.closing(session.watch()) as cursor:
        reading = ReadOffsets(cursor.log.start)
        reading.hear(read_to_end(cursor))
    positions = {tp: stored[tp] for tp in foreign}
    by_tables = resumed(cursor.log) if reading.unheard(positions, topic_ids) else {}
    return reading.unread(positions, topic_ids, by_tables)


def unread(
    session: Session, stored: SourceOffsets, topic_ids: Mapping[str, str], resumed: Resumed
) -> dict[TopicPartition, Unread]:
    """Of ``moved``, the partitions in which there are offsets that nobody has read."""
    return {tp: each for tp, each in moved(session, stored, topic_ids, resumed).items() if each.offsets}
