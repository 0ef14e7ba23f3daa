"""Positions that somebody else has moved, from the backend and the control log."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping

from calving.backend.interface import ControlLog, Session
from calving.backend.reading import read_to_end
from calving.model.offsets import SourceOffsets, TopicPartition
from calving.protocol.moved import ReadOffsets, Unread

Resumed = Callable[[ControlLog], SourceOffsets]
"""Where the sink reads on by its tables (``protocol.recovery.resumed``)."""


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
