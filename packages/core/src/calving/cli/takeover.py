"""Looks at the state that a Java sink has left, running or stopped, and says what happens when calving starts in its
place.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import uuid4

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from calving.backend.interface import ControlLog, Session
from calving.backend.sessions import read_to_end
from calving.errors import CalvingError, ConfigError, DataLossError, UnavailableError
from calving.iceberg.catalog import find_table, table_id
from calving.iceberg.history import LoadedTable
from calving.iceberg.loading import look_for
from calving.model.events import DataComplete, DataWritten, Envelope, TableId
from calving.model.offsets import ControlOffsets, SourceOffsets, Topic, TopicPartition
from calving.model.text import listed
from calving.protocol.ledger import errors_naming
from calving.protocol.ledger_key import OFFSETS, SOURCE_OFFSETS
from calving.protocol.takeover import Place, TablePlace, TakeoverVerdict, verdict
from calving.runtime import components
from calving.runtime.checks import check_settings, refuse_missing_tables
from calving.runtime.preflight import (
    held,
    ledger_key,
    ledger_of,
    others_of,
    own_tables,
    owner_of,
    refuse_a_loss,
    refuse_reused_offsets,
)
from calving.runtime.routed import routed_tables
from calving.settings.keys import TAKEN_OVER
from calving.settings.load import Sink
from calving.source.interface import Source
from calving.source.opening import open_source
from calving.source.start import place_text

_VERSION = re.compile(r"Apache Iceberg (\S+)")
_OPEN_SECONDS = 5.0
"""The time within which running workers end their transactions."""


def takeover(sink: Sink) -> TakeoverVerdict:
    """Find out what a start of the sink would do and refuse, without writing anything or joining the group.

    :raises ConfigError: the sink's backend is not Kafka, or a topic or the catalog cannot be read.
    :raises UnavailableError: a transaction of a killed worker still hides the end of the control topic.
    """
    if sink.keys.backend != "kafka":
        raise ConfigError(
            f"iceberg.control.backend = {sink.keys.backend}: only the Kafka backend takes over the place of a Java sink"
        )
    check_settings(sink)
    return verdict(_look(sink, components.source(sink)))


@dataclass(slots=True)
class _ControlTopic:
    """The present control topic, and the refusals of a start. ``control``: None if the topic cannot be read."""

    has_log: bool
    control: ControlLog | None = None
    entries: list[Envelope] = field(default_factory=list)
    """The entries from the saved position on, and some before it."""
    undecodable: int = 0
    stored: SourceOffsets = field(default_factory=dict)
    troubles: list[str] = field(default_factory=list)

    def check(self, act: Callable[[], object]) -> None:
        try:
            act()
        except (ConfigError, DataLossError) as error:
            self.troubles.append(str(error))

    @property
    def announced(self) -> dict[TopicPartition, int]:
        """The last positions that workers have published."""
        answers = [e.event.assignments for e in self.entries if isinstance(e.event, DataComplete)]
        return {a.source: a.offset for answer in answers for a in answer if a.offset is not None}

    def files_of(self, table: TableId, held: ControlOffsets) -> list[DataWritten]:
        """The entries with files for a table that the table lacks, if it holds all entries below ``held``."""
        starts = self.control.start if self.control is not None else {}
        return [
            e.event
            for e in self.entries
            if isinstance(e.event, DataWritten)
            and e.event.table.identifier == table
            and e.offset >= max(held.get(e.partition, 0), starts.get(e.partition, 0))
        ]


def _look(sink: Sink, source: Source) -> Place:
    keys = sink.keys
    every = source.partitions()
    bounds = source.bounds(every)
    catalog = components.catalog(sink)
    routed = routed_tables(catalog, sink, {tp.topic for tp in every})
    unreadable: dict[str, CalvingError] = {
        **_unreadable(catalog, [*own_tables(sink), *routed.names]),
        **routed.unreadable,
    }
    names = [name for name in (*own_tables(sink), *routed.names) if name not in unreadable]
    topic = _hear(sink, source, catalog, names)
    topic.check(lambda: list(refuse_missing_tables(catalog, sink, unreadable)))
    announced = sorted({str(e.event.table) for e in topic.entries if isinstance(e.event, DataWritten)} - {*names})
    unreadable |= _unreadable(catalog, [name for name in announced if name not in unreadable])
    names += [name for name in announced if name not in unreadable]
    topic.troubles += map(str, unreadable.values())
    return Place(
        name=keys.name,
        group=sink.group,
        control_topic=keys.control_topic,
        connector_group=sink.connector_group,
        members=source.members(sink.group),
        connector_members=source.members(sink.connector_group) if sink.connector_group is not None else {},
        stored=topic.stored,
        announced=topic.announced,
        begins=bounds.begins,
        ends=bounds.ends,
        tables={name: _table(sink, catalog, name, topic) for name in dict.fromkeys(names)},
        has_log=topic.has_log,
        undecodable=topic.undecodable,
        troubles=tuple(topic.troubles),
        ignored={key: TAKEN_OVER[key] for key in TAKEN_OVER.keys() & sink.given.keys()},
        known_sinks=keys.other_sinks,
        start=place_text(keys.start),
        skips=keys.on_data_loss == "skip",
        changes_rows=sink.changes_rows,
    )


def _unreadable(catalog: Catalog, names: Iterable[str]) -> dict[str, UnavailableError]:
    """Those of these tables that cannot be loaded, and why. What they hold of the sink is unknown."""
    return {name: each for name, each in look_for(catalog, names).items() if isinstance(each, UnavailableError)}


def _hear(sink: Sink, source: Source, catalog: Catalog, names: Sequence[str]) -> _ControlTopic:
    name = sink.keys.control_topic
    log = open_source(sink.control_kafka, (name,), None)
    if log.unknown((Topic(name),)):
        return _ControlTopic(has_log=False, troubles=list(_without_log(sink, catalog, names)))
    _wait_for_transactions(log)
    topic = _ControlTopic(has_log=True)
    backend = components.backend(sink)
    topic.check(backend.provision)  # checks how the topic is configured
    session = backend.open(str(uuid4()))
    try:
        topic.stored = session.committed(source.partitions())
        topic.check(lambda: _read(session, topic))
        if (control := topic.control) is not None:
            topic.check(lambda: refuse_a_loss(catalog, sink, source, session, control, names))
            tables = dict(held(catalog, sink, control.identity, names))
            topic.check(lambda: refuse_reused_offsets(sink, control, tables))
    finally:
        session.close()
    return topic


def _wait_for_transactions(log: Source) -> None:
    """:raises UnavailableError: a transaction that is open on the control topic does not end."""
    every = log.partitions()
    highs = log.highs(every)
    until = time.monotonic() + _OPEN_SECONDS
    while held_back := [f"{tp} above {end}" for tp, end in sorted(log.bounds(every).ends.items()) if end < highs[tp]]:
        if time.monotonic() > until:
            raise UnavailableError(
                f"an open transaction hides the end of the control topic ({listed(held_back)}), and with it files and"
                " positions: a task that was killed has probably left it. Kafka ends it after transaction.timeout.ms of"
                " the task's producer, a minute by default, and up to ten seconds more: wait that long, and try again"
            )
        time.sleep(0.2)


def _read(session: Session, found: _ControlTopic) -> None:
    """Read the control topic.

    :raises DataLossError: the control topic no longer has the saved position.
    """
    cursor = session.watch()
    try:
        found.entries = list(read_to_end(cursor))
        found.control, found.undecodable = cursor.log, len(cursor.unreadable)
    finally:
        cursor.close()


def _without_log(sink: Sink, catalog: Catalog, names: Iterable[str]) -> Iterable[str]:
    for name in names:
        table = find_table(catalog, table_id(name))
        if table is not None and ledger_of(ledger_key(sink, "", name), table).control:
            yield (
                f"control topic '{sink.keys.control_topic}' does not exist, but table {name} holds its offsets: files"
                " that were announced there and not committed are lost with it. Correct iceberg.control.topic or the"
                " brokers; or give the sink a control topic of another name, after you have checked that nothing is"
                " missing"
            )
            return


def _table(sink: Sink, catalog: Catalog, name: str, found: _ControlTopic) -> TablePlace:
    table = find_table(catalog, table_id(name))
    if table is None:
        return TablePlace(exists=False, files=_count(found.files_of(table_id(name), {})))
    key = ledger_key(sink, found.control.identity if found.control is not None else "", name)
    control = ledger_of(key, table).control
    announced = found.files_of(table_id(name), control)
    summaries = list(LoadedTable(table, key.branch).ancestry)
    return TablePlace(
        exists=True,
        control=control,
        version=_version(summaries, key.offsets),
        others=frozenset(_other_names(sink, table, summaries)),
        files=_count(announced),
        recreated=any(event.table.table_uuid not in (None, table.metadata.table_uuid) for event in announced),
    )


def _count(announced: Iterable[DataWritten]) -> int:
    return sum(len(event.data_files) + len(event.delete_files) for event in announced)


def _version(summaries: Iterable[Mapping[str, str]], offsets: str) -> str | None:
    last = next((summary for summary in summaries if offsets in summary), {})
    if SOURCE_OFFSETS in last:
        return None
    match = _VERSION.search(last.get("iceberg-version", ""))
    return match[1] if match else None


def _other_names(sink: Sink, table: Table, summaries: Iterable[Mapping[str, str]]) -> Iterable[str]:
    with errors_naming(".".join(table.name())):
        yield from others_of(table.metadata.properties, table.metadata.refs, (owner_of(sink), *sink.keys.other_sinks))
    for summary in summaries:
        for name in summary:
            if name.startswith(OFFSETS) and (owner := name.removeprefix(OFFSETS)) != owner_of(sink):
                yield owner
