"""Looks at a sink from outside: what is configured, stored and committed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from uuid import uuid4

from rich.table import Table as RichTable

from calving.backend.interface import Session
from calving.errors import ConfigError
from calving.iceberg.catalog import find_table, open_catalog, table_id
from calving.iceberg.partition_terms import parse_term
from calving.model.offsets import TopicPartition
from calving.runtime.wiring import check_record_path
from calving.settings.load import Sink
from calving.source.kafka import Topics


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


def positions(sink: Sink) -> RichTable:
    """Stored positions, ends and lag of every source partition."""
    session = sink.backend(sink.identity, sink.backend_settings).open(str(uuid4()))
    try:
        return positions_table(sink, session, {})
    finally:
        session.close()


def positions_table(sink: Sink, session: Session, answered: Mapping[TopicPartition, bool | None]) -> RichTable:
    """With ``answered``, also whether the last commit cycle had an answer for each."""
    topics = Topics(sink.kafka, sink.keys.topics, sink.keys.topics_regex)
    every = topics.partitions()
    bounds = topics.bounds(every)
    stored = session.committed(every)
    more = ("last cycle",) if answered else ()
    shown = RichTable("topic", "partition", "stored", "end", "lag", *more, title=f"Source positions of {sink.group}")
    for tp in sorted(every):
        at = stored.get(tp)
        lag = bounds.ends[tp] - (at if at is not None else bounds.begins[tp])
        said = {True: "answered", False: "NO ANSWER", None: "-"}[answered.get(tp)]
        row = [tp.topic, str(tp.partition), "-" if at is None else str(at), str(bounds.ends[tp]), str(lag)]
        shown.add_row(*row, *([said] if answered else []))
    return shown
