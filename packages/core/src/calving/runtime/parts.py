"""The parts of a worker that convert records and write tables.

Importing these parts takes most of a start, so they are made while the group still assigns partitions.
"""

from __future__ import annotations

from uuid import uuid4

from calving.backend.interface import Backend, ControlLog, Cursor, Session
from calving.engine.interface import Engine
from calving.iceberg.attempts import Attempts
from calving.iceberg.catalog import open_catalog, table_id
from calving.iceberg.commit import IcebergCommitter
from calving.iceberg.tables import Tables
from calving.runtime.batch import BatchRunner, ErrorLimits
from calving.runtime.heard import hear, nothing_waits
from calving.runtime.preflight import (
    commit_style,
    held,
    own_tables,
    refuse_a_loss,
    refuse_reused_offsets,
    routed_tables,
)
from calving.runtime.table_checks import refuse_missing_tables
from calving.runtime.takeover import refuse_a_running_connector
from calving.runtime.wiring import check_record_path, record_path, table_rules
from calving.settings.load import Sink
from calving.source.interface import Source


class Parts:
    """The catalog, and the parts that use it."""

    def __init__(self, sink: Sink, topics: Source, engine: Engine) -> None:
        """:raises ConfigError: a converter, a transform or the catalog cannot be made."""
        check_record_path(sink)
        keys = sink.keys
        self._sink, self._topics, self._engine = sink, topics, engine
        self._catalog = open_catalog(keys.catalog_name, sink.catalog)
        self._tables = Tables(self._catalog, keys.catalog_name, table_rules(sink, topics))
        self._attempts = Attempts(keys.commit_threads, keys.table_timeout_ms / 1000)
        self._routed: list[str] | None = None
        limits = ErrorLimits(keys.errors_per_batch, keys.errors_share)
        self.runner = BatchRunner(engine, self._tables, record_path(sink), limits)

    def check(self, session: Session, log: ControlLog) -> None:
        """:raises DataLossError: to continue would lose or double records.
        :raises ConfigError: a table is missing at the first start of the sink.
        """
        refuse_a_running_connector(self._sink, self._topics)
        if not session.committed(self._topics.partitions()):
            # After the first start a missing table delays only its own commits.
            for _ in refuse_missing_tables(self._catalog, self._sink):
                pass
        tables = self._held_tables()
        refuse_a_loss(self._catalog, self._sink, self._topics, session, log, tables, self._tables.loaded)

    def committer(self, cursor: Cursor) -> IcebergCommitter:
        """The committer of a coordinator that reads with ``cursor``.

        :raises DataLossError: the control log has lost entries that a table has seen.
        """
        style = commit_style(self._sink, cursor.log.identity)
        tables = dict(held(self._catalog, self._sink, cursor.log.identity, self._held_tables(), self._tables.loaded))
        refuse_reused_offsets(self._sink, cursor.log, tables)
        return IcebergCommitter(
            self._catalog,
            self._sink.keys.catalog_name,
            style,
            self._attempts,
            self._engine.beside,
            {table_id(name): found.mark for name, found in tables.items() if found.mark is not None},
        )

    def nothing_waits(self, backend: Backend) -> bool:
        """Whether every publication so far is committed."""
        session = backend.open(str(uuid4()))
        try:
            return nothing_waits(self._sink, self._catalog, hear(session))
        finally:
            session.close()

    def _held_tables(self) -> list[str]:
        """Every table that may hold records of the sink. Dynamically routed tables are searched for once, and then
        cached.
        """
        if self._routed is None:
            topics = {tp.topic for tp in self._topics.partitions()}
            self._routed = routed_tables(self._catalog, self._sink, topics)
        return [*own_tables(self._sink), *self._routed, *self._tables.specs()]
