"""Accepts that records which nobody has read, below positions that somebody else has moved, are in no table."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from functools import partial
from uuid import uuid4

from calving.backend.interface import Cursor, Session
from calving.errors import CommandFailedError, FencedError, OutcomeUnknownError
from calving.model.offsets import Coverage, Span, TopicPartition, merged, named
from calving.model.text import counted
from calving.protocol.moves import with_ids
from calving.protocol.positions import Unread, passed_over
from calving.runtime import components
from calving.runtime.log_view import Replay, resumed
from calving.runtime.positions import unread
from calving.settings.load import Sink

_TRIES = 8


def accept(sink: Sink) -> Iterator[str]:
    """Treat the offsets as read that nobody has read; one line for each range. The sink may run: its coordinator steps
    down, and starts again later.

    :raises CommandFailedError: the sink's coordinator interfered again and again.
    """
    at_positions = _at_positions(sink)
    with contextlib.closing(components.backend(sink).open(str(uuid4()))) as session:
        unread_spans = accept_unread(session, at_positions)
    for tp, spans in sorted(unread_spans.items()):
        for span in spans:
            yield f"{named(tp)}: {counted(span.end - span.start, 'offset')} from {span.start} to {span.end}: accepted"
    if not unread_spans:
        yield "there is nothing to accept"


def _at_positions(sink: Sink) -> dict[TopicPartition, Unread]:
    """The offsets below moved positions from which the sink has not read on yet."""
    topics = components.source(sink)
    every = topics.partitions()
    identities = topics.identities({tp.topic for tp in every})
    with contextlib.closing(components.backend(sink).open(str(uuid4()))) as session:
        by_tables = partial(resumed, components.catalog(sink), sink, topics)
        by_topic = unread(session, session.committed(every), identities, by_tables)
    return with_ids(by_topic, identities)


def accept_unread(session: Session, at_positions: Mapping[TopicPartition, Unread]) -> Coverage:
    """Treat these offsets as read, and those that the control log shows as passed over; all of them.

    :raises CommandFailedError: the sink's coordinator interfered again and again.
    """
    accepted: dict[TopicPartition, tuple[Span, ...]] = {}
    for _ in range(_TRIES):  # opening the log fences the sink's coordinator, which then pauses, each time longer
        cursor = session.follow(replay=True)
        # An attempt of unknown outcome is repeated, because offsets may be accepted twice.
        with contextlib.closing(cursor), contextlib.suppress(FencedError, OutcomeUnknownError):
            _accept(cursor, at_positions, accepted)
            return accepted
    raise CommandFailedError(
        f"nothing was accepted: the sink's coordinator came in between {_TRIES} times; stop all workers, and run it"
        " again"
    )


def _accept(
    cursor: Cursor, at_positions: Mapping[TopicPartition, Unread], accepted: dict[TopicPartition, tuple[Span, ...]]
) -> None:
    """Accept these offsets, those of the log, and ``accepted`` once more. Adds them to ``accepted``."""
    replay = Replay.of(cursor)
    buffer = replay.buffer
    at_those = {tp: (each.span,) for tp, each in at_positions.items()}
    for tp, spans in (*passed_over(buffer.progress().covered).items(), *at_those.items()):
        accepted[tp] = merged((*accepted.get(tp, ()), *spans))
    if accepted:
        # The log tells from now on what only the tables tell yet.
        by_tables = {tp: each.span.start for tp, each in at_positions.items() if not each.in_log}
        buffer.accept({tp: (Span(0, start),) for tp, start in by_tables.items() if start})
        buffer.accept(accepted)
        replay.complete(cursor, uuid4())
