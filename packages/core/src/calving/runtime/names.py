"""Checks of a sink's name before a start: tables and positions keep its offsets under the name of its group and of its
control log. They refuse a start that would lose or double records because one of them was changed (W1).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from calving.errors import DataLossError
from calving.model.backfills import BEGIN_ANOTHER, is_backfill
from calving.model.offsets import SourceOffsets, TopicPartition

_REMEDY = "stop all workers and run `calving recover FILE`"


def remedy(group: str) -> str:
    """What an operator does who has lost the positions or the control log of the sink of a group."""
    return BEGIN_ANOTHER if is_backfill(group) else _REMEDY


def check_not_left(owner: str, table: str, later: str | None) -> None:
    """Refuse to write a table under a name that the sink has left: what it has committed since would be doubled, and
    another sink would count the former one's offsets as its own. ``later``: the name that has taken the table over.

    :raises DataLossError: there is one.
    """
    if later is not None:
        raise DataLossError(
            f"table {table} was taken over from the name {owner} by {later}, under which the sink goes on: to go on"
            f" here, stop all workers and run `calving recover FILE --from {later}`; another sink needs a name that no"
            " sink of the table has had"
        )


def check_names_kept(
    control_topic: str,
    group: str,
    former: Iterable[tuple[str, str, TopicPartition, int]],
    stored: SourceOffsets,
    *,
    unknown: bool,
) -> None:
    """W1: refuse to start a renamed sink (name, group or control topic): it has no positions, but this is no first
    start.

    ``unknown``: the control log of the stored positions is unknown.

    :raises DataLossError: names the command that takes over from the former name.
    """
    begun = {tp.topic for tp in stored}
    for table, owner, tp, offset in former:
        if tp.topic not in begun or (unknown and owner.endswith(f".{group}")):
            raise DataLossError(
                f"table {table} holds records of {tp} up to offset {offset} that a sink of the name {owner} has"
                f" written, and {control_topic}.{group} has no positions in its topic: if this is the same sink (name,"
                " iceberg.connect.group-id or iceberg.control.topic was changed), change the key back, or"
                f" stop all workers and run `calving recover FILE --from {owner}`; if it is another sink, and"
                f" both are to write there, set iceberg.control.other-sinks = {owner}"
            )


def check_logs(
    control_topic: str, group: str, log_id: str, logs: Mapping[TopicPartition, str], stored: SourceOffsets
) -> None:
    """W1: refuse positions of another control log, because it is unknown which of that log's entries were committed.

    :raises DataLossError: names the command that takes over from the former log.
    """
    for tp, other in logs.items():
        if other not in ("", log_id):
            raise DataLossError(
                f"{tp} is stored at {stored.get(tp)}, which was published through another control log than topic"
                f" '{control_topic}' is now: the key iceberg.control.topic was changed, or the topic was"
                " recreated, and files that were published there and not committed are in no table; change the key"
                f" back, or {remedy(group)}{_changed(group)}"
            )


def _changed(group: str) -> str:
    return "" if is_backfill(group) else f", after a change with --from <former control topic>.{group}"
