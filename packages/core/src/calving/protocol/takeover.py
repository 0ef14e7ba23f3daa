"""Decides from what a Java sink left whether calving may start in its place, and tells what then happens. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from calving.model.backfills import is_backfill
from calving.model.offsets import ControlOffsets, SourceOffsets, TopicPartition
from calving.model.sink import JAVA_TASK, WORKER
from calving.model.text import counted, listed, offsets_text

_FIRST_WITH_UUIDS = (1, 11)
"""The first Iceberg version whose Java sink can read events that name a table's UUID."""


@dataclass(frozen=True, slots=True)
class TablePlace:
    """One table. ``control``: the control offsets that the sink has committed to it."""

    exists: bool
    control: ControlOffsets = field(default_factory=dict)
    version: str | None = None
    """The Iceberg version of the last commit, if the Java sink made it."""
    others: frozenset[str] = frozenset()
    """Names, ``<control topic>.<group>``, under which other sinks have committed."""
    files: int = 0
    """Files announced on the control topic that are not in the table."""
    recreated: bool = False
    """Whether some of these files were written for a former table of the same name."""


@dataclass(frozen=True, slots=True)
class Place:
    """The state that a Java sink has left, and the present members of its consumer groups."""

    name: str
    group: str
    control_topic: str
    connector_group: str | None
    """The consumer group of the tasks of a Tabular connector."""
    members: Mapping[str, str]
    connector_members: Mapping[str, str]
    """``members`` and ``connector_members``: the client ids of the members of ``group`` and of ``connector_group``, by
    the members' ids.
    """
    stored: SourceOffsets
    announced: SourceOffsets
    """The last positions in the answers on the control topic."""
    begins: SourceOffsets
    ends: SourceOffsets
    tables: Mapping[str, TablePlace]
    has_log: bool
    """Whether the control topic exists."""
    undecodable: int
    """Entries of the control topic that cannot be read."""
    troubles: tuple[str, ...] = ()
    """The refusals of a start's checks; each says what to do."""
    ignored: Mapping[str, str] = field(default_factory=dict)
    """Keys that have no effect here, and why."""
    known_sinks: Collection[str] = ()
    start: str = "the beginning"
    """Where the first start reads from, for a sentence."""
    skips: bool = False
    """Whether records that the broker no longer has may be skipped."""
    changes_rows: bool = False


@dataclass(frozen=True, slots=True)
class TakeoverVerdict:
    """``happens``: the consequences of a start. ``refusals``: reasons not to start, each with what to do; empty if a
    start is safe.
    """

    happens: tuple[str, ...]
    refusals: tuple[str, ...]


def verdict(place: Place) -> TakeoverVerdict:
    """What happens when calving starts there."""
    refusals = [*_of_members(place), *_of_positions(place), *_of_control_topic(place), *_of_tables(place)]
    refusals += [trouble for trouble in place.troubles if trouble not in refusals]
    return TakeoverVerdict(tuple(_happens(place)), tuple(refusals))


def _strangers(members: Mapping[str, str]) -> list[str]:
    """The client ids of the members that are not calving's: tasks of the Java sink, as far as anyone can tell."""
    return sorted(client for client in members.values() if not client.startswith(WORKER))


# The refusals


def tabular_runs(name: str, group: str, members: int) -> str:
    """The refusal while tasks of a Tabular connector run."""
    return (
        f"Tabular's sink runs: group {group} has {counted(members, 'member')}. Its tasks and calving would read the"
        f" same partitions, and double their records. Stop the connector (PUT /connectors/{name}/stop)"
    )


def java_changes_no_rows(group: str, members: Mapping[str, str]) -> str | None:
    """The refusal of a sink that changes rows, if its group may have tasks of the Java sink; None if it has no member
    but calving's.
    """
    return (
        f"{_running(group, strangers)}, and a fleet that changes rows may have none. Stop the connector"
        if (strangers := _strangers(members))
        else None
    )


def _running(group: str, strangers: Sequence[str]) -> str:
    runs = "runs" if len(strangers) == 1 else "run"
    return f"{_of_the_java_sink(strangers)} {runs} in group {group}"


def _of_the_java_sink(strangers: Sequence[str]) -> str:
    tasks = f"{counted(len(strangers), 'task')} of the Java sink"
    unsure = [client for client in strangers if not client.startswith(JAVA_TASK)]
    return f"{tasks} (taken for such by a client id that is not calving's: {listed(unsure)})" if unsure else tasks


def _of_members(place: Place) -> Iterator[str]:
    if place.connector_group is not None and place.connector_members:
        yield tabular_runs(place.name, place.connector_group, len(place.connector_members))
    if not (strangers := _strangers(place.members)):
        return
    running = _running(place.group, strangers)
    if place.changes_rows and (refusal := java_changes_no_rows(place.group, place.members)) is not None:
        yield refusal
    for name, table in place.tables.items():
        if table.version is not None and _number(table.version) < _FIRST_WITH_UUIDS:
            yield (
                f"{running}, and the last commit of table {name} was by Iceberg {table.version}: the Java sink before"
                " 1.11 fails on calving's events. Stop the connector"
            )
            break


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def _of_positions(place: Place) -> Iterator[str]:
    if not place.stored:
        yield from _of_no_positions(place)
    for tp, at in sorted(place.stored.items()):
        if tp not in place.ends:
            continue
        if at > place.ends[tp]:
            yield (
                f"{tp} is stored at {at}, but ends at {place.ends[tp]}: the topic was recreated or truncated. Set the"
                f" position of group {place.group} with kafka-consumer-groups.sh --reset-offsets"
            )
        elif at < place.begins.get(tp, 0) and not place.skips:
            yield (
                f"{tp} is stored at {at}, but begins at {place.begins[tp]}: Kafka has removed records that no table"
                " holds. Set iceberg.source.on-data-loss = skip to go on without them"
            )


def _of_no_positions(place: Place) -> Iterator[str]:
    for name, table in sorted(place.tables.items()):
        if others := sorted(each for each in table.others - set(place.known_sinks) if not is_backfill(each)):
            tabular = f"{place.control_topic}.cg-control-{place.name}"
            hint = (
                "connector.class = io.tabular.iceberg.connect.IcebergSinkConnector, which this one's offsets are of"
                if tabular in others
                else "the name, iceberg.connect.group-id and iceberg.control.topic that the Java sink had"
            )
            yield (
                f"group {place.group} has no stored positions, and table {name} holds commits of {listed(others)}: if"
                f" that is this sink, set {hint}; if it is another one, set iceberg.control.other-sinks ="
                f" {','.join(others)}"
            )
            return


def _of_control_topic(place: Place) -> Iterator[str]:
    if place.undecodable:
        yield (
            f"{counted(place.undecodable, 'entry', 'entries')} of control topic '{place.control_topic}' cannot be read,"
            " and may announce files of this sink. Start the sink that wrote them once more, wait until it has"
            " committed, and stop it"
        )


def _of_tables(place: Place) -> Iterator[str]:
    for name, table in sorted(place.tables.items()):
        if not table.files or (table.exists and not table.recreated):
            continue
        what = "was recreated since" if table.exists else "does not exist"
        yield (
            f"{counted(table.files, 'file')} on the control topic {'is' if table.files == 1 else 'are'} for table"
            f" {name}, which {what}: the Java sink drops such files silently, calving keeps them and reports DEGRADED."
            f" Restore the table, or discard them: `calving release FILE --table {name}`"
        )


# The consequences of a start


def _happens(place: Place) -> Iterator[str]:
    for key, why in sorted(place.ignored.items()):
        yield f"key {key} is ignored: {why}"
    if place.connector_group is not None:
        yield (
            f"positions are those of group {place.group}, where Tabular's sink keeps them; group"
            f" {place.connector_group} has a copy that calving does not move"
        )
    yield _who_runs(place)
    yield from _from_where(place)
    for name, table in sorted(place.tables.items()):
        yield _of_table(name, table)


def _who_runs(place: Place) -> str:
    strangers = _strangers(place.members)
    if strangers:
        return (
            f"group {place.group} has {_of_the_java_sink(strangers)}: workers of calving share the"
            " partitions with them, and either side commits what both have written; stop the connector to replace them"
        )
    if place.members:
        return f"group {place.group} has {counted(len(place.members), 'member')}, which a worker of calving joins"
    return f"no task of the Java sink runs in group {place.group}"


def _from_where(place: Place) -> Iterator[str]:
    waiting = sum(max(0, end - _start(place, tp)) for tp, end in place.ends.items() if tp in place.stored)
    if not place.has_log:
        yield f"control topic '{place.control_topic}' does not exist: this is a first start"
        return
    if place.stored:
        shown = listed([f"{tp} at {place.stored[tp]}" for tp in sorted(place.stored)])
        yield f"records are read from the stored positions on: {shown}; {counted(waiting, 'record')} wait there"
    fresh = sorted(place.ends.keys() - place.stored.keys())
    if fresh:
        where = "the beginning" if place.stored else place.start
        yield f"nothing is stored for {listed(fresh)}, read from {where} on"
    if place.announced and not place.stored:
        known = listed([f"{tp} at {at}" for tp, at in sorted(place.announced.items())])
        yield f"the control topic names as the last positions {known}"


def _start(place: Place, tp: TopicPartition) -> int:
    return max(place.stored[tp], place.begins.get(tp, 0))


def _of_table(name: str, table: TablePlace) -> str:
    if not table.exists:
        return f"table {name} does not exist yet"
    holds = (
        f"table {name} holds control offsets up to {offsets_text(table.control)}"
        if table.control
        else (f"table {name} holds no commit of this sink")
    )
    if not table.files:
        return f"{holds}; no announced file is missing in it"
    return f"{holds}; {counted(table.files, 'announced file')} {'is' if table.files == 1 else 'are'} committed first"
