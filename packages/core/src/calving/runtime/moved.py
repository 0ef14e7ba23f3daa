"""Positions that somebody else has moved, from the backend and the control log."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from calving.backend.interface import Session
from calving.backend.reading import read_to_end
from calving.model.offsets import SourceOffsets, Span, TopicPartition
from calving.protocol.moved import Reading


def moved(session: Session, stored: SourceOffsets, topic_ids: Mapping[str, str]) -> dict[TopicPartition, Span]:
    """The offsets below the ``stored`` positions that nobody has read, because somebody else moved the positions. The
    control log is read only if there is a position that the sink has not stored.

    :raises DataLossError, UnavailableError: the control log cannot be read.
    """
    foreign = session.moved_by_others(stored.keys())
    if not foreign:
        return {}
    with contextlib.closing(session.watch()) as cursor:
        reading = Reading(cursor.log.start)
        reading.hear(read_to_end(cursor))
    return reading.unread({tp: stored[tp] for tp in foreign}, topic_ids)
