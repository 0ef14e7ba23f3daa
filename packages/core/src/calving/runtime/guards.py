"""Checks before a start: situations that look like a first start, or like old events, and are not."""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from calving.backend.interface import ControlLog, Session
from calving.errors import ConfigError, DataLossError
from calving.iceberg.catalog import find_table, table_id
from calving.iceberg.commit import CommitStyle, LoadedTable
from calving.model.events import TableId
from calving.protocol.ledger import Ledger, LedgerKey
from calving.settings.load import Sink
from calving.source.kafka import Topics


def commit_style(sink: Sink, log_id: str) -> CommitStyle:
    """Names and branches of this sink's commits."""
    keys = sink.keys
    default = keys.default_branch or "main"
    return CommitStyle(
        keys.control_topic,
        sink.group,
        log_id,
        f"{keys.name}-0",
        {table_id(name): t.commit_branch or default for name, t in sink.tables.items()},
        default,
    )


def ledgers(catalog: Catalog, sink: Sink, log_id: str) -> Iterator[tuple[str, Ledger]]:
    """What the sink's static tables hold of it; tables that do not exist are left out."""
    style = commit_style(sink, log_id)
    for name in sink.keys.tables:
        table = find_table(catalog, table_id(name))
        if table is not None:
            yield name, ledger_of(style, table_id(name), table)


def ledger_of(style: CommitStyle, identifier: TableId, table: Table) -> Ledger:
    """What the table's branch holds of the sink."""
    branch = style.branch(identifier)
    loaded = LoadedTable(table, branch)
    key = LedgerKey(style.control_topic, style.group, style.log_id, branch)
    return key.read(loaded.ancestry, loaded.properties)


def refuse_reused_offsets(catalog: Catalog, sink: Sink, log: ControlLog) -> None:
    """B3: a ledger ahead of the log's end would take new events for old ones.

    :raises DataLossError: the control log has lost entries that a table has seen.
    """
    for name, ledger in ledgers(catalog, sink, log.identity):
        for partition, offset in ledger.control.items():
            end = log.end.get(partition, 0)
            if offset > end:
                raise DataLossError(
                    f"table {name} has seen control topic '{sink.keys.control_topic}', partition {partition}, up to"
                    f" offset {offset}, but it ends at {end}: it has lost events, and new ones would be taken for old"
                )


def refuse_lost_positions(catalog: Catalog, sink: Sink, session: Session, log: ControlLog) -> None:
    """W1: positions that are missing, or behind what a table already holds of this sink, are no start.

    :raises ConfigError: no positions; names the command that adopts them. :raises DataLossError: they have gone back.
    """
    every = Topics(sink.kafka, sink.keys.topics, sink.keys.topics_regex).partitions()
    stored = session.committed(every)
    for name, ledger in ledgers(catalog, sink, log.identity):
        if ledger.source and not stored:
            raise ConfigError(
                f"group {sink.group} has no stored positions, but table {name} holds records of this sink: starting"
                " from the beginning would double them. Run `calving offsets FILE --adopt tables`"
            )
        for tp, offset in ledger.source.items():
            if tp in every and stored.get(tp, 0) < offset:
                raise DataLossError(
                    f"{tp} is stored at {stored.get(tp)}, but table {name} holds its records up to {offset}: the store"
                    " of positions has gone back, and going on would double them"
                )
