"""Where a sink reads on by its tables, as long as the control log tells nothing of a partition."""

from __future__ import annotations

from collections.abc import Iterable

from pyiceberg.catalog import Catalog

from calving.backend.interface import ControlLog
from calving.model.offsets import SourceOffsets, present
from calving.protocol.recovery import resumed as resumed_at
from calving.runtime.preflight import held, own_tables, routed_tables
from calving.settings.load import Sink
from calving.source.interface import Source


def resumed(
    catalog: Catalog, sink: Sink, source: Source, log: ControlLog, names: Iterable[str] | None = None
) -> SourceOffsets:
    """Where the sink reads on by its tables (``protocol.recovery.resumed``): those with these ``names``, or all that
    can be loaded.
    """
    begins = source.bounds(source.partitions()).begins
    topics = {tp.topic for tp in begins}
    identities = source.identities(topics)
    if names is None:
        names = (*own_tables(sink), *routed_tables(catalog, sink, topics).names)
    tables = dict(held(catalog, sink, log.identity, names))
    return resumed_at(
        {name: table.ledger.present(identities) for name, table in tables.items()},
        {name: present(table.awaited, identities) for name, table in tables.items()},
        begins,
        complete=not sink.keys.routes_freely,
    )
