"""Looks at a sink from outside: what is configured, stored and committed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from uuid import uuid4

from rich.table import Table as RichTable

from calving.backend.interface import Cursor
from calving.errors import ConfigError
from calving.iceberg.catalog import find_table, open_catalog, table_id
from calving.iceberg.commit import LoadedTable
from calving.iceberg.tables import parse_term
from calving.model.events import Envelope
from calving.protocol.ledger import VALID_THROUGH
from calving.runtime.guards import ledger_key, ledger_of
from calving.runtime.wiring import check_record_path
from calving.settings.load import Sink
from calving.source.kafka import Topics

_FIRST_SECONDS, _QUIET_SECONDS = 5.0, 1.0


def validate(sink: Sink) -> Iterator[str]:
    """One line per thing that is in order.

    :raises CalvingError: the first that is not.
    """
    keys = sink.keys
    check_record_path(sink)
    yield "configuration"
    topics = Topics(sink.kafka, keys.topics, keys.topics_regex)
    every = topics.partitions()
    if not every:
        raise ConfigError(f"topics.regex = {keys.topics_regex} matches no topic")
    topics.bounds(every)
    yield f"topics: {', '.join(sorted({tp.topic for tp in every}))} ({len(every)} partitions)"
    backend = sink.backend(sink.identity, sink.backend_settings)
    backend.provision()
    session = backend.open(str(uuid4()))
    try:
        session.committed(every)
    finally:
        session.close()
    yield f"backend: {backend.name}, control topic {keys.control_topic}, group {sink.group}"
    catalog = open_catalog(keys.catalog_name, sink.catalog)
    try:
        catalog.list_namespaces()
    except Exception as error:  # every catalog has exceptions of its own
        raise ConfigError(f"iceberg.catalog.*: the catalog cannot be read: {type(error).__name__}: {error}") from error
    yield f"catalog: {keys.catalog_name}"
    for name in keys.tables:
        table = find_table(catalog, table_id(name))
        if table is None and not keys.auto_create:
            raise ConfigError(
                f"table {name} does not exist: create it, or set iceberg.tables.auto-create-enabled = true"
            )
        terms = sink.tables[name].partition_by if name in sink.tables else None
        for term in terms if terms is not None else keys.default_partition_by:
            parse_term(term, name)
        yield f"table {name}: {'exists' if table is not None else 'will be created'}"


def status(sink: Sink) -> Iterator[RichTable]:
    """Positions with lag, then tables with their ledgers."""
    yield positions(sink)
    shown = RichTable("table", "records", "snapshots", "control offsets", "valid through", title="Tables")
    catalog = open_catalog(sink.keys.catalog_name, sink.catalog)
    log_id = _log_identity(sink)
    for name in sink.keys.tables:
        table = find_table(catalog, table_id(name))
        if table is None:
            shown.add_row(name, "missing", "", "", "")
            continue
        key = ledger_key(sink, log_id, name)
        loaded = LoadedTable(table, key.branch)
        ledger = ledger_of(key, table)
        head = next(iter(loaded.ancestry), {})
        through = next((s[VALID_THROUGH] for s in loaded.ancestry if VALID_THROUGH in s), "-")
        control = ", ".join(f"{p}: {o}" for p, o in sorted(ledger.control.items())) or "-"
        shown.add_row(name, head.get("total-records", "0"), str(len(table.metadata.snapshots)), control, through)
    yield shown


def positions(sink: Sink) -> RichTable:
    """Stored positions, ends and lag of every source partition."""
    topics = Topics(sink.kafka, sink.keys.topics, sink.keys.topics_regex)
    every = topics.partitions()
    bounds = topics.bounds(every)
    session = sink.backend(sink.identity, sink.backend_settings).open(str(uuid4()))
    try:
        stored = session.committed(every)
    finally:
        session.close()
    shown = RichTable("topic", "partition", "stored", "end", "lag", title=f"Source positions of {sink.group}")
    for tp in sorted(every):
        at = stored.get(tp)
        lag = bounds.ends[tp] - (at if at is not None else bounds.begins[tp])
        shown.add_row(tp.topic, str(tp.partition), "-" if at is None else str(at), str(bounds.ends[tp]), str(lag))
    return shown


def read_to_end(cursor: Cursor, clock: Callable[[], float] = time.monotonic) -> Iterator[Envelope]:
    """What the control log held when ``cursor`` was opened, from where it starts, and maybe more.

    Where its last places are taken by what is no entry, the end is where no more of it comes.
    """
    ends = {p: end for p, end in cursor.log.end.items() if cursor.log.start.get(p, 0) < end}
    until = clock() + _FIRST_SECONDS
    while ends and clock() < until:
        for entry in cursor.read(0.2):
            yield entry
            if entry.offset < ends.get(entry.partition, 0):
                until = clock() + _QUIET_SECONDS
            if entry.offset + 1 >= ends.get(entry.partition, entry.offset + 2):
                del ends[entry.partition]


def _log_identity(sink: Sink) -> str:
    session = sink.backend(sink.identity, sink.backend_settings).open(str(uuid4()))
    try:
        cursor = session.follow(replay=False)
        identity = cursor.log.identity
        cursor.close()
        return identity
    finally:
        session.close()
