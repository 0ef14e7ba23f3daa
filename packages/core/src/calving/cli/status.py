"""What ``calving status`` shows."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import uuid4

from rich.table import Table as RichTable

from calving.cli.health import TableHealth, health, is_well
from calving.cli.inspect import positions_table
from calving.iceberg.catalog import open_catalog
from calving.model.coverage import text_of
from calving.runtime.heard import hear
from calving.settings.load import Sink
from calving.source.kafka import Topics, members


@dataclass(frozen=True, slots=True)
class Status:
    """``well``: no table is DEGRADED, and the last commit cycle had answers for all partitions."""

    well: bool
    shown: tuple[RichTable | str, ...]


def status(sink: Sink) -> Status:
    """Of a sink, whether it runs or not: positions with lag, then tables."""
    catalog = open_catalog(sink.keys.catalog_name, sink.catalog)
    every = Topics(sink.kafka, sink.keys.topics, sink.keys.topics_regex).partitions()
    session = sink.backend(sink.identity, sink.backend_settings).open(str(uuid4()))
    try:
        heard = hear(session)
        tables = health(sink, catalog, heard, {tp.topic for tp in every})
        answered = {tp: heard.answered(tp) for tp in every}
        positions = positions_table(sink, session, answered)
    finally:
        session.close()
    workers = f"{len(members(sink.kafka, sink.group))} workers run"
    return Status(is_well(tables, answered), (positions, _tables(tables), workers))


def _tables(tables: list[TableHealth]) -> RichTable:
    names = ("table", "state", "records", "last commit", "valid through", "waits", "missing")
    shown = RichTable(*names, title="Tables")
    for t in tables:
        missing = text_of(t.missing) if t.missing else "-"
        shown.add_row(t.name, t.state, t.records, t.last_commit, t.valid_through, _waits(t), missing)
    return shown


def _waits(table: TableHealth) -> str:
    """What is published for a table and not in it yet."""
    files = [f"{table.files} files for {table.cycles} cycles"] if table.files else []
    parked = [f"{table.parked} parked entries"] if table.parked else []
    return ", ".join([*files, *parked]) or "-"
