"""Stored positions that do not fit: those that somebody else has moved, those whose records the broker no longer has,
and those that a Java sink has left.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping, Set

from calving.backend.interface import ControlLog, Session
from calving.backend.sessions import read_to_end
from calving.errors import DataLossError
from calving.model.backfills import is_backfill
from calving.model.offsets import SourceOffsets, TopicPartition, named
from calving.protocol.ledger import Ledger
from calving.protocol.positions import ReadOffsets, Unread
from calving.protocol.takeover import java_changes_no_rows, tabular_runs
from calving.settings.load import Sink
from calving.source.interface import Bounds, Source

log = logging.getLogger(__name__)

_SKIP = "set iceberg.source.on-data-loss = skip to skip the missing records"
Resumed = Callable[[ControlLog], SourceOffsets]
"""Where the sink reads on by its tables (``protocol.recovery.resumed``)."""


def skipping(group: str) -> str:
    """What an operator does about records that the broker no longer has. A backfill never skips any."""
    return _SKIP if not is_backfill(group) else "to read what is there, begin another backfill with another --id"


def recreated_text(tp: TopicPartition, stored: int) -> str:
    return (
        f"topic '{tp.topic}' was recreated after partition {tp.partition} was read up to offset"
        f" {stored}: records that the former topic held from there on are lost, if it had any"
    )


def check_topics(
    said: Mapping[str, Ledger], now: Mapping[str, Ledger], unread: Set[TopicPartition], group: str, *, skip: bool
) -> None:
    """W7: Kafka deletes a topic's positions with the topic. The tables' ledgers show that the topic was recreated.

    ``said``, ``now``: the ledgers by table, of all topics and of the present ones. ``unread``: partitions without a
    position. ``skip``: whether to read the new topic.

    :raises DataLossError: a topic was recreated, and the settings do not say to go on.
    """
    known = {tp for ledger in now.values() for tp in ledger.source}
    reached: dict[TopicPartition, int] = {}
    for ledger in said.values():
        for tp, offset in ledger.source.items():
            reached[named(tp)] = max(offset, reached.get(named(tp), 0))
    for tp in sorted(reached.keys() & unread - known):
        text = recreated_text(tp, reached[tp])
        if not skip:
            raise DataLossError(f"{text}; {skipping(group)}")
        log.error("%s; reading the new topic", text)


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


def refuse_a_running_connector(sink: Sink, topics: Source) -> None:
    """:raises DataLossError: tasks of Tabular's sink run; they and the workers would read the same partitions. Or the
    sink changes rows, and tasks of the Java sink run; their files come in no order.
    """
    group = sink.connector_group
    if group is not None and (running := topics.members(group)):
        raise DataLossError(tabular_runs(sink.keys.name, group, len(running)))
    if sink.changes_rows and (refusal := java_changes_no_rows(sink.group, topics.members(sink.group))) is not None:
        raise DataLossError(refusal)


def refuse_lost_positions(sink: Sink, ledgers: Mapping[str, Ledger], stored: SourceOffsets) -> None:
    """:raises DataLossError: no positions are stored, but the Java sink has committed to a table. calving cannot
    recover from its ledgers, because they hold no source offsets.
    """
    for name, ledger in ledgers.items():
        if ledger.control and not (ledger.source or stored):
            raise DataLossError(
                f"group {sink.group} has no stored positions, but the Java sink has committed to table {name} in its"
                " name: starting from the beginning would double its records; set the positions with"
                " kafka-consumer-groups.sh --reset-offsets (`calving takeover FILE` shows what is known of them)"
            )
