"""Checks before a start. They refuse a start that would lose or double records because positions or logs were lost or
changed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from calving.backend.interface import ControlLog, Session
from calving.errors import (
    AccessDeniedError,
    ConfigError,
    DataLossError,
    NewerVersionError,
    TableTroubleError,
    UnavailableError,
)
from calving.iceberg.catalog import reaching, table_id
from calving.iceberg.commit import CommitStyle
from calving.iceberg.history import LoadedTable
from calving.iceberg.loading import find_tables
from calving.iceberg.locations import FileRules
from calving.iceberg.marks import mark_of
from calving.model.backfills import is_backfill
from calving.model.forms import NEWEST, StoredForm
from calving.model.marks import TableMark
from calving.model.offsets import TRUNCATED, Coverage, SourceOffsets, Span, TopicPartition, decode_coverage, present
from calving.model.tables import OnRollback
from calving.protocol.forms import FORM, newer_sinks, table_form
from calving.protocol.ledger import Ledger, decode_source, entry_of, errors_naming
from calving.protocol.ledger_key import LOG_ID, SETTLED_OFFSETS, SOURCE_OFFSETS, LedgerKey
from calving.protocol.recovery import AWAITED_OFFSETS, doubled, successor
from calving.protocol.restored import restored_by
from calving.runtime.names import check_logs, check_names_kept, check_not_left, remedy
from calving.runtime.positions import check_topics, refuse_lost_positions
from calving.settings.load import Sink
from calving.settings.records import branches
from calving.source.interface import Source

log = logging.getLogger(__name__)

_OF_OTHERS: Mapping[str, Callable[[str], object]] = {SOURCE_OFFSETS: decode_source, FORM: StoredForm.parse}
"""The table properties of other sinks that are read."""


class TableRecord(NamedTuple):
    """A table's record of the sink: its ledger, the control log of its last commit, the offsets left out, its mark.

    ``others``: the next source offsets that sinks of other names have written into the table, by ``<control
    topic>.<group>``.
    """

    ledger: Ledger
    log_id: str | None
    left_out: Coverage
    others: Mapping[str, SourceOffsets]
    mark: TableMark | None
    """None if the table could not be loaded now."""
    awaited: Coverage
    """The offsets that a recovery has the sink read again for the table."""
    newer: str = ""
    """A sentence on a sink of another name that writes the table in a form that this version does not know."""
    successor: str | None = None
    """The name that has taken the table over from this one."""


def commit_style(sink: Sink, log_id: str) -> CommitStyle:
    """Names and branches of this sink's commits."""
    keys = sink.keys
    return CommitStyle(
        control_topic=keys.control_topic,
        group=sink.group,
        log_id=log_id,
        task_id=f"{keys.name}-0",
        branches=branches(keys, sink.tables),
        mutations=lambda table: sink.mutations(".".join(table)),
        key_cache_bytes=keys.key_cache_bytes,
        files=file_rules(sink),
        on_rollback=lambda table: on_rollback(sink, ".".join(table)),
    )


def on_rollback(sink: Sink, table: str) -> OnRollback:
    """What becomes of a table that was rolled back, until somebody has answered (R6)."""
    own = sink.tables[table].on_rollback if table in sink.tables else None
    return own or sink.keys.on_rollback or ("continue" if sink.mutations(table) is None else "stop")


def file_rules(sink: Sink) -> FileRules:
    """Where files of the sink's tables may be."""
    return FileRules(sink.keys.allowed_locations, sink.write_properties)


def ledger_key(sink: Sink, log_id: str, name: str) -> LedgerKey:
    """The key of the sink's ledger in a table."""
    return commit_style(sink, log_id).key(table_id(name))


def owner_of(sink: Sink) -> str:
    """The sink's name in snapshot summaries and table properties."""
    return f"{sink.keys.control_topic}.{sink.group}"


def _others(sink: Sink, table: Table) -> dict[str, SourceOffsets]:
    with errors_naming(".".join(table.name())):
        return others_of(_readable(sink, table), table.metadata.refs, (owner_of(sink), *sink.keys.other_sinks))


def _readable(sink: Sink, table: Table) -> Mapping[str, str]:
    """The table's properties. Where the table is not in the settings, those of other sinks that cannot be read are left
    out: otherwise whoever may change any table of the catalog could stop a sink that has never written it.
    """
    properties, own = table.metadata.properties, owner_of(sink)
    if ".".join(table.name()) in own_tables(sink):
        return properties
    damaged: set[str] = set()
    for kind, decode in _OF_OTHERS.items():
        for name in properties:
            owner = name.removeprefix(f"{kind}.")
            if owner != name and owner != own and not owner.startswith(f"{own}@"):
                try:
                    entry_of(properties, name, decode)
                except TableTroubleError:
                    damaged.add(name)
    return {name: text for name, text in properties.items() if name not in damaged}


def others_of(
    properties: Mapping[str, str], branches: Collection[str], known: Collection[str]
) -> dict[str, SourceOffsets]:
    """The source offsets that sinks of other names than the ``known`` ones, whose branches may have been dropped, have
    written into a table's properties; none of a sink that writes in a form that this version does not know. Backfills
    are left out: they are nobody's former names, and what they have written is no sink's to go on from.

    :raises TableTroubleError: a property is not what calving writes.
    """
    offsets_of: dict[str, SourceOffsets] = {}
    for name in properties:
        if name.startswith(f"{SOURCE_OFFSETS}."):
            owner = name.removeprefix(f"{SOURCE_OFFSETS}.")
            before, _, branch = owner.rpartition("@")
            is_newer = table_form(properties, f"{FORM}.{owner}").number > NEWEST.number
            owner = before if branch in branches or before in known else owner
            if owner not in known and not is_backfill(owner):
                offsets_of[owner] = {} if is_newer else entry_of(properties, name, decode_source)
    return offsets_of


def own_tables(sink: Sink) -> tuple[str, ...]:
    """The tables in the settings."""
    letters = sink.keys.dead_letter_table
    return (*sink.keys.tables, *([letters] if letters is not None else []))


def held(
    catalog: Catalog, sink: Sink, log_id: str, names: Iterable[str], known: Mapping[str, Table] | None = None
) -> Iterator[tuple[str, TableRecord]]:
    """What these tables hold of the sink; missing tables are skipped, and so are tables that records have named, if
    their record of the sink is damaged, or the catalog denies access to them. ``known``: tables as they were loaded
    before. They stand in for tables that cannot be loaded now, because a table's content has only grown since.

    :raises ConfigError: as ``table_record``, of a table in the settings.
    :raises UnavailableError: another table cannot be loaded, or none.
    """
    loaded, troubled = find_tables(catalog, names, known or {}, partial(leave_out, sink))
    for error in troubled.values():
        log.warning("%s; what it holds is taken from when it was loaded before", error)
    for name, table in loaded.items():
        if table is not None:
            try:
                record = table_record(sink, ledger_key(sink, log_id, name), table)
            except ConfigError as error:
                leave_out(sink, name, error)
            else:
                yield name, record._replace(mark=None) if name in troubled else record


def leave_out(sink: Sink, name: str, error: ConfigError | UnavailableError) -> None:
    """Warn that a table is left out: its record of the sink is damaged, or the catalog denies access to it. It takes no
    commit, because a commit reads that record first.

    :raises ConfigError, UnavailableError: ``error``, if the table is in the settings, a later version has written it,
        or it cannot be loaded now.
    """
    may_pass = isinstance(error, UnavailableError) and not isinstance(error, AccessDeniedError)
    if name in own_tables(sink) or isinstance(error, NewerVersionError) or may_pass:
        raise error
    log.warning("%s; until then this table takes no commit, and the sink goes on with the others", error)


def table_record(sink: Sink, key: LedgerKey, table: Table) -> TableRecord:
    """Read a table's record of the sink.

    :raises ConfigError: somebody else, or a later version, has changed it, and it cannot be read.
    :raises UnavailableError: a file of the table cannot be read.
    """
    properties = table.metadata.properties
    ledger, others = ledger_of(key, table), _others(sink, table)
    with errors_naming(".".join(table.name())):
        return TableRecord(
            ledger,
            properties.get(key.of_table(LOG_ID)),
            key.left_out(properties),
            others,
            mark_of(table, key),
            entry_of(properties, key.of_table(AWAITED_OFFSETS), decode_coverage),
            newer=newer_sinks(_readable(sink, table), (owner_of(sink), *sink.keys.other_sinks)),
            successor=successor(key, properties),
        )


def ledger_of(key: LedgerKey, table: Table) -> Ledger:
    """The ledger of the table's branch. Where it may have been rolled back, files of the table are read.

    :raises ConfigError: somebody else, or a later version, has changed it, and it cannot be read.
    :raises UnavailableError: a file of the table cannot be read.
    """
    loaded = LoadedTable(table, key.branch)
    with reading(table):
        return key.read(loaded.line, loaded.properties)


@contextmanager
def reading(table: Table) -> Iterator[None]:
    """The same errors for whoever reads a ledger."""
    name = ".".join(table.name())
    with reaching(table.catalog, f"table {name}: it is unknown what it holds"), errors_naming(name):
        yield


def refuse_reused_offsets(sink: Sink, control: ControlLog, tables: Mapping[str, TableRecord]) -> None:
    """B3: refuse a ledger ahead of the log's end. With it, a commit would take new events for old ones.

    :raises DataLossError: the control log has lost entries that a table has seen.
    """
    # The log of a backfill is that of its sink.
    after_deletion = "" if is_backfill(sink.group) else ", with Kafka after deleting the topic"
    for name, record in tables.items():
        for partition, offset in record.ledger.control.items():
            end = control.end.get(partition, 0)
            if offset > end:
                raise DataLossError(
                    f"table {name} has seen control topic '{sink.keys.control_topic}', partition {partition}, up to"
                    f" offset {offset}, but it ends at {end}: the topic has lost events, and the sink would take new"
                    f" events for old ones; {remedy(sink.group)}{after_deletion}"
                )


def refuse_a_loss(
    catalog: Catalog,
    sink: Sink,
    topics: Source,
    session: Session,
    control: ControlLog,
    tables: Iterable[str],
    known: Mapping[str, Table] | None = None,
) -> None:
    """W1: refuse to start if positions are missing, or lower than a table's offsets. Refuse also if the control log was
    recreated, because publications that were not committed are lost with the old log.

    :raises DataLossError: names the command that recovers the sink.
    """
    every = topics.partitions()
    # Read the tables before the positions: other workers may publish and commit meanwhile, and positions only grow.
    records = dict(held(catalog, sink, control.identity, tables, known))
    stored = session.committed(every)
    logs = session.log_ids(every)
    identities = topics.identities({tp.topic for tp in every})
    truncated = {tp for tp, identity in session.topic_ids(every).items() if identity.endswith(TRUNCATED)}
    ledgers = {name: table.ledger.present(identities) for name, table in records.items()}
    said = {name: table.ledger for name, table in records.items()}
    check_topics(said, ledgers, every - stored.keys(), sink.group, skip=sink.keys.on_data_loss != "fail")
    refuse_lost_positions(sink, said, stored)
    for name, table in records.items():
        check_not_left(owner_of(sink), name, table.successor)
        if not stored:
            _refuse_positions_lost(sink, name, table, ledgers[name])
        if table.log_id not in (None, control.identity):
            raise DataLossError(
                f"control topic '{sink.keys.control_topic}' was recreated since table {name} was last written:"
                f" files that were published there and not committed are in no table; {remedy(sink.group)}"
            )
        for tp, spans in doubled(ledgers[name], stored, present(table.left_out, identities)).items():
            if tp in every - truncated:
                raise DataLossError(
                    f"{tp} is stored at {stored.get(tp)}, but table {name} holds its records up to {spans[-1].end}: the"
                    f" store of positions has gone back, and continuing would double them; {remedy(sink.group)}"
                )
    logs = session.log_ids(every)
    # Version 0.1.0 stored no log identity. After a change of the control topic, its sinks have positions but no ledger.
    unknown = bool(logs) and not any(logs.values()) and not any(table.ledger.source for table in records.values())
    owner = (sink.keys.control_topic, sink.group)
    check_names_kept(*owner, former_names(records, every, identities), stored, unknown=unknown)
    check_logs(*owner, control.identity, logs, stored)


def _refuse_positions_lost(sink: Sink, name: str, table: TableRecord, ledger: Ledger) -> None:
    if ledger.source:
        raise DataLossError(
            f"group {sink.group} has no stored positions, but table {name} holds records of this sink: starting"
            f" from the beginning would double them; {remedy(sink.group)}"
        )
    if table.newer:
        raise NewerVersionError(f"table {name}: {table.newer}")


def former_names(
    found: Mapping[str, TableRecord], every: Collection[TopicPartition], identities: Mapping[str, str]
) -> Iterator[tuple[str, str, TopicPartition, int]]:
    """Table, sink name, partition and next offset, for each sink of another name that has written records of these
    topics.
    """
    for table, said in found.items():
        for owner, source in said.others.items():
            for tp, offset in present(source, identities).items():
                if tp in every and offset:
                    yield table, owner, tp, offset


def before_first_commit(key: LedgerKey, table: Table) -> Coverage:
    """The offsets of which no record can be in the table, because they were settled before the first commit to it: by
    the sink's first start, for example. None if the branch is not known from its beginning, or had rows before that
    commit, which may be of these records; or began with rows of the Java sink, or with files that had been rolled back.
    """
    line, key = LoadedTable(table, key.branch).line, key.with_former(table.properties)
    snapshots = [*line.snapshots]
    first = max((at for at, each in enumerate(snapshots) if key.is_own(each)), default=None)
    if first is None or line.below() is not None:
        return {}
    summary, older = snapshots[first].summary, snapshots[first + 1 :]
    if SOURCE_OFFSETS not in summary or restored_by(summary):
        return {}
    if any(each.summary.get("total-records") != "0" for each in older):
        return {}
    settled = entry_of(summary, SETTLED_OFFSETS, decode_source)
    return {tp: (Span(0, at),) for tp, at in settled.items()}
