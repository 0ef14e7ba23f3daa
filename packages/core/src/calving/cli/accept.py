"""Accepts that records which nobody has read, below positions that somebody else has moved, are in no table."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from uuid import uuid4

from calving.backend.interface import Cursor, Session
from calving.backend.reading import read_to_end
from calving.errors import CommandFailedError, FencedError
from calving.model.coverage import Coverage, merged
from calving.model.events import CommitComplete
from calving.model.offsets import named, within
from calving.model.text import counted
from calving.protocol.buffer import Buffer
from calving.protocol.marks import Marks
from calving.protocol.moved import passed_over
from calving.runtime import components
from calving.runtime.moved import moved
from calving.settings.load import Sink

_TRIES = 8


def accept(sink: Sink) -> Iterator[str]:
    """Treat the offsets as read that nobody has read; one line for each range. The sink may run: its coordinator steps
    down, and starts again later.

    :raises CommandFailedError: the sink's coordinator interfered again and again.
    :raises OutcomeUnknownError: run it again.
    """
    unread = _unread(sink)
    with contextlib.closing(components.backend(sink).open(str(uuid4()))) as session:
        found = accept_unread(session, unread)
    for tp, spans in sorted(found.items()):
        for span in spans:
            yield f"{named(tp)}: {counted(span.end - span.start, 'offset')} from {span.start} to {span.end}: accepted"
    if not found:
        yield "there is nothing to accept"


def _unread(sink: Sink) -> Coverage:
    """The offsets below moved positions from which the sink has not read on yet."""
    topics = components.source(sink)
    every = topics.partitions()
    identities = topics.identities({tp.topic for tp in every})
    with contextlib.closing(components.backend(sink).open(str(uuid4()))) as session:
        found = moved(session, session.committed(every), identities)
    return {within(tp, identities.get(tp.topic, "")): (span,) for tp, span in found.items()}


def accept_unread(session: Session, unread: Coverage) -> Coverage:
    """Treat these offsets as read, and those that the control log shows as passed over; all of them.

    :raises CommandFailedError: the sink's coordinator interfered again and again.
    :raises OutcomeUnknownError: run it again.
    """
    for _ in range(_TRIES):  # opening the log fences the sink's coordinator, which then pauses, each time longer
        with contextlib.closing(session.follow(replay=True)) as cursor, contextlib.suppress(FencedError):
            return _accept(cursor, unread)
    raise CommandFailedError(
        f"nothing was accepted: the sink's coordinator came in between {_TRIES} times; stop all workers, and run it"
        " again"
    )


def _accept(cursor: Cursor, unread: Coverage) -> Coverage:
    buffer, marks = Buffer(cursor.log.start), Marks()
    for entry in read_to_end(cursor):
        buffer.hear(entry)
        for table, mark in entry.attached.marks.items():
            marks.note(table, mark)
    found = dict(passed_over(buffer.progress().covered))
    for tp, spans in unread.items():
        found[tp] = merged((*found.get(tp, ()), *spans))
    if found:
        buffer.accept(found)
        position = buffer.position()
        cursor.acknowledge(position, (CommitComplete(uuid4()),), buffer.attachment(position, marks.known))
    return found
