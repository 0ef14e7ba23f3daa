"""Makes a sink's components from its settings. Importing this module imports none of their libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from calving.backend.interface import Backend
from calving.engine.interface import Engine, open_engine
from calving.settings.load import Sink
from calving.source.interface import Source
from calving.source.opening import open_source

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


def source(sink: Sink) -> Source:
    """The source of the sink's topics. It connects at its first use."""
    return open_source(sink.kafka, sink.keys.topics, sink.keys.topics_regex)


def backend(sink: Sink) -> Backend:
    """The sink's backend. It connects at its first use."""
    return sink.backend(sink.identity, sink.backend_settings)


def engine(sink: Sink) -> Engine:
    """The sink's engine, started.

    :raises ConfigError: there is no such engine, or it does not start.
    """
    return open_engine(sink.keys.engine, sink.keys.name, sink.spark, sink.patience)


def catalog(sink: Sink) -> Catalog:
    """The sink's catalog. A REST catalog is asked for its settings.

    :raises ConfigError: the catalog cannot be opened, or cannot serve exactly-once.
    :raises UnavailableError: a REST catalog does not answer.
    """
    # Imported here, because the import takes longer than joining the group.
    from calving.iceberg.catalog import open_catalog

    return open_catalog(sink.keys.catalog_name, sink.catalog)
