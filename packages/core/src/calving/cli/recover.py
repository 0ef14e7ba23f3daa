"""Brings a sink back whose control log or positions are lost: from what its tables hold, and from the topics."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from uuid import uuid4

from pyiceberg.catalog import Catalog

from calving.backend.interface import Cursor
from calving.errors import CalvingError, ConfigError
from calving.iceberg.catalog import open_catalog, table_id
from calving.model.coverage import Coverage, encode_coverage
from calving.model.offsets import TopicPartition, within
from calving.protocol.ledger import LOG_ID, Ledger
from calving.protocol.recovery import Recovery, recovery
from calving.runtime.guards import held, ledger_key, own_tables, refuse_reused_offsets, routed_tables, routes_freely
from calving.settings.load import Sink
from calving.source.kafka import Topics, members


def recover(sink: Sink, more_tables: Collection[str], *, dry_run: bool) -> Iterator[str]:
    """Rewind to where every record below is in its table, and have each table leave out what it holds beyond.

    May be run again, also after it was cut off in the middle.

    :raises CalvingError: workers are running, or no table knows anything of this sink.
    """
    keys = sink.keys
    if running := members(sink.kafka, sink.group):
        raise CalvingError(f"group {sink.group} has {running} members: stop all workers of the sink first")
    catalog = open_catalog(keys.catalog_name, sink.catalog)
    topics = Topics(sink.kafka, keys.topics, keys.topics_regex)
    every = topics.partitions()
    begins = topics.bounds(every).begins
    # That the log has lost what it had is no reason to stop here.
    settings = sink.backend_settings.model_copy(update={"on_truncation": "continue"})
    backend = sink.backend(sink.identity, settings)
    backend.provision()
    session = backend.open(str(uuid4()))
    cursor: Cursor | None = None
    try:
        cursor = session.follow(replay=True)  # whoever still coordinates is fenced
        identities = topics.identities({tp.topic for tp in every})
        ledgers = _ledgers(catalog, sink, cursor.log.identity, more_tables)
        found = {name: ledger.present(identities) for name, ledger in ledgers}
        if not any(ledger.source for ledger in found.values()):
            raise ConfigError(
                f"no table holds anything of group {sink.group}: there is nothing to recover, run the sink"
            )
        plan = recovery(found, complete=not routes_freely(sink))
        positions = {tp: plan.positions.get(tp, begins[tp]) for tp in every}
        yield from _lines(plan, positions, session.committed(every))
        if dry_run:
            return
        _leave_out(catalog, sink, plan, identities)
        cursor.rewind(positions)
        for part in (cursor, session):
            part.close()
        session = backend.open(str(uuid4()))
        cursor = session.follow(replay=False)
        for name in found:
            _mark(catalog, sink, name, cursor.log.identity)
        refuse_reused_offsets(catalog, sink, cursor.log, found)
    finally:
        if cursor is not None:
            cursor.close()
        session.close()
    yield "done: the next run reads on from there"


def _ledgers(catalog: Catalog, sink: Sink, log_id: str, more: Collection[str]) -> Iterator[tuple[str, Ledger]]:
    own = own_tables(sink)
    for name, found in held(catalog, sink, log_id, (*own, *(more or routed_tables(catalog, sink)))):
        if found.ledger.source or name in own:
            yield name, found.ledger


def _lines(
    plan: Recovery, positions: Mapping[TopicPartition, int], stored: Mapping[TopicPartition, int]
) -> Iterator[str]:
    for tp, offset in sorted(positions.items()):
        known = "" if tp in plan.positions else ": no table knows it, it is read from its beginning"
        yield f"{tp}: {offset} (stored: {stored.get(tp, 'nothing')}){known}"
    for name, coverage in plan.held.items():
        if coverage:
            yield f"table {name} leaves out {_count(coverage)} offsets that it has read beyond"


def _count(coverage: Coverage) -> int:
    return sum(span.end - span.start for spans in coverage.values() for span in spans)


def _leave_out(catalog: Catalog, sink: Sink, plan: Recovery, identities: Mapping[str, str]) -> None:
    """First of all: until the positions go back it changes nothing."""
    for name, coverage in plan.held.items():
        name_of = ledger_key(sink, "", name).holding
        with catalog.load_table(table_id(name)).transaction() as change:
            change.set_properties(
                {name_of: encode_coverage({within(tp, identities.get(tp.topic, "")): s for tp, s in coverage.items()})}
            )


def _mark(catalog: Catalog, sink: Sink, name: str, identity: str) -> None:
    """Last of all: a table that belongs to another log is not written to."""
    key = ledger_key(sink, identity, name)
    table = catalog.load_table(table_id(name))
    if table.properties.get(key.of_table(LOG_ID)) not in (None, identity):
        with table.transaction() as change:
            change.set_properties({key.of_table(LOG_ID): identity, key.of_table(key.offsets): "{}"})
