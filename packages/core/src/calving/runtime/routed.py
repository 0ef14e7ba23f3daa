"""Looks for the tables that routes in records have led to: no setting names them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from calving.errors import ConfigError, NewerVersionError, UnavailableError
from calving.iceberg.catalog import find_table, table_id, tables_of
from calving.model.offsets import named
from calving.protocol.ledger_key import LOG_ID
from calving.runtime.preflight import leave_out, ledger_key, own_tables, table_record
from calving.settings.load import Sink

_LOOKING = 16
"""How many tables are loaded in parallel: a sink may have hundreds of tables, and its catalog may be slow."""


class RoutedTables(NamedTuple):
    """Dynamically routed tables. ``unreadable``: tables that cannot be loaded now, or whose record of the sink is
    damaged, each with its error. They may hold records of the sink. ``witness``: a table of the catalog that could be
    loaded, whoever writes it.
    """

    names: list[str]
    unreadable: Mapping[str, UnavailableError | ConfigError]
    witness: str | None = None

    def all(self) -> list[str]:
        """The names, if every table can be read.

        :raises UnavailableError: a table cannot be loaded.
        :raises ConfigError: a table's record of the sink is damaged.
        """
        for error in self.unreadable.values():
            raise error
        return self.names

    def sound(self, sink: Sink) -> list[str]:
        """The names, if every table can be loaded. Tables whose record of the sink is damaged, and tables to which the
        catalog denies access, are left out, and the log names them.

        :raises UnavailableError: a table cannot be loaded.
        """
        for name, error in self.unreadable.items():
            leave_out(sink, name, error)
        return self.names


def routed_tables(catalog: Catalog, sink: Sink, topics: Collection[str]) -> RoutedTables:
    """Tables outside the settings that hold records of the sink, or of its ``topics``.

    Loads every table to which records could have been routed: with a pattern the tables of its namespace, otherwise all
    tables of the catalog.

    :raises ConfigError: a table of the settings has a damaged record of the sink.
    :raises NewerVersionError: a later version of this sink has written a table.
    """
    if not sink.keys.routes_freely:
        return RoutedTables([], {})
    fixed = (sink.keys.topic_pattern or "").partition("{")[0].rpartition(".")[0]
    names = [".".join(table) for table in tables_of(catalog, table_id(fixed) if fixed else ())]
    with ThreadPoolExecutor(_LOOKING) as pool:
        looked = dict(zip(names, pool.map(partial(_look, catalog, sink, topics), names), strict=True))
    unreadable = {name: each for name, each in looked.items() if not isinstance(each, bool)}
    witness = next((name for name in looked if name not in unreadable), None)
    return RoutedTables([name for name, each in looked.items() if each is True], unreadable, witness)


def _look(catalog: Catalog, sink: Sink, topics: Collection[str], name: str) -> bool | UnavailableError | ConfigError:
    """Whether a table holds such records; or why that cannot be told."""
    try:
        table = find_table(catalog, table_id(name))
        return table is not None and _has_records(table, sink, name, topics)
    except UnavailableError as error:
        return error
    except ConfigError as error:
        if name in own_tables(sink) or isinstance(error, NewerVersionError):
            raise
        return error


def _has_records(table: Table, sink: Sink, name: str, topics: Collection[str]) -> bool:
    properties = table.metadata.properties
    # With the log of its last commit, so that all is read that a commit or a start will read.
    key = ledger_key(sink, properties.get(ledger_key(sink, "", name).of_table(LOG_ID), ""), name)
    record = table_record(sink, key, table)
    # The Java sink writes its offsets into summaries, not into properties.
    if any(each.startswith(key.offsets) for each in properties) or record.ledger.control or record.awaited:
        return True
    return any(named(tp).topic in topics for source in record.others.values() for tp in source)
