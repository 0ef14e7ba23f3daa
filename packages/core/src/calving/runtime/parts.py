"""The parts of a worker that convert records and write tables, and the settings that each part needs.

Importing these parts takes most of a start, so they are made while the group still assigns partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal
from uuid import uuid4

from calving.backend.interface import Backend, ControlLog, Cursor, Session
from calving.engine.interface import Engine
from calving.iceberg.attempts import Attempts
from calving.iceberg.catalog import table_id
from calving.iceberg.commit import IcebergCommitter
from calving.iceberg.rules import TableRules, TableSettings
from calving.iceberg.tables import Tables
from calving.model.offsets import Coverage, SourceOffsets, named, present
from calving.model.record_path import Evolution, Limits, RecordPath, RouteRule, Routing, Tolerance
from calving.runtime import components
from calving.runtime.batch import BatchRunner, ErrorLimits
from calving.runtime.checks import check_settings, refuse_missing_tables, unmoved_rows
from calving.runtime.log_view import hear, nothing_waits, resumed
from calving.runtime.positions import refuse_a_running_connector
from calving.runtime.preflight import (
    commit_style,
    held,
    ledger_key,
    own_tables,
    refuse_a_loss,
    refuse_reused_offsets,
)
from calving.runtime.routed import routed_tables
from calving.settings.keys import TableKeys
from calving.settings.load import Sink
from calving.settings.schema_changes import followed
from calving.settings.type_changes import on_type_change
from calving.source.interface import Source
from calving.status.board import Board

if TYPE_CHECKING:
    from calving.runtime.maintenance.leader import LeaderMaintenance


class Parts:
    """The catalog, and the parts that use it."""

    def __init__(
        self, sink: Sink, topics: Source, engine: Engine, mark: Callable[[str], None] = lambda step: None
    ) -> None:
        """``mark``: see ``BatchRunner``.

        :raises ConfigError: a converter, a transform or the catalog cannot be made."""
        check_settings(sink)
        keys = sink.keys
        self._sink, self._topics, self._engine = sink, topics, engine
        self._catalog = components.catalog(sink)
        self._tables = Tables(self._catalog, keys.catalog_name, table_rules(sink, topics))
        self._attempts = Attempts(keys.commit_threads, keys.table_timeout_ms / 1000)
        self._routed: list[str] | None = None
        limits = ErrorLimits(keys.errors_per_batch, keys.errors_share)
        self.runner = BatchRunner(engine, self._tables, record_path(sink), limits, mark)

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
        refuse_a_loss(
            catalog=self._catalog,
            sink=self._sink,
            topics=self._topics,
            session=session,
            control=log,
            tables=tables,
            known=self._tables.loaded,
        )

    def resumed(self, log: ControlLog) -> SourceOffsets:
        """Where the sink reads on by its tables.

        :raises UnavailableError: a table cannot be loaded; try again.
        """
        return resumed(self._catalog, self._sink, self._topics, log, self._held_tables())

    def committer(self, cursor: Cursor) -> IcebergCommitter:
        """The committer of a coordinator that reads with ``cursor``.

        :raises DataLossError: the control log has lost entries that a table has seen.
        """
        style = commit_style(self._sink, cursor.log.identity)
        tables = dict(held(self._catalog, self._sink, cursor.log.identity, self._held_tables(), self._tables.loaded))
        refuse_reused_offsets(self._sink, cursor.log, tables)
        return IcebergCommitter(
            catalog=self._catalog,
            catalog_name=self._sink.keys.catalog_name,
            style=style,
            attempts=self._attempts,
            tasks=self._engine.for_other_jobs,
            seen={table_id(name): record.mark for name, record in tables.items() if record.mark is not None},
            tables=lambda: [table_id(name) for name in self._held_tables()],
        )

    def maintenance(self, committer: IcebergCommitter, board: Board) -> LeaderMaintenance | None:
        """The maintenance beside a committer, which has begun; None if the sink asks for none, and no rows land that
        somebody else has to move.
        """
        if not self._sink.maintains_any and unmoved_rows(self._sink) is None:
            return None
        from calving.runtime.maintenance.leader import LeaderMaintenance  # not imported by a sink without it

        return LeaderMaintenance(
            sink=self._sink,
            catalog=self._catalog,
            tables=self._held_tables,
            resolvers=committer.resolvers,
            attempts=self._attempts,
            tasks=self._engine.for_other_jobs,
            board=board,
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
            routed = routed_tables(self._catalog, self._sink, topics)
            self._routed = routed.sound(self._sink)
            self._tables.witness = self._tables.witness or routed.witness
        return [*own_tables(self._sink), *self._routed, *self._tables.specs()]


def record_path(sink: Sink) -> RecordPath:
    """The settings of every task."""
    keys = sink.keys
    return RecordPath(
        kafka=sink.kafka,
        routing=Routing(
            tuple(
                RouteRule(name, sink.tables[name].route_regex if name in sink.tables else None) for name in keys.tables
            ),
            field=keys.route_field,
            dynamic=keys.dynamic,
            topic_pattern=keys.topic_pattern,
            topic_regex=keys.topic_regex,
            only=sink.scope.tables if sink.scope is not None else frozenset(),
            unrouted=keys.on_unrouted,
            missing_table=keys.on_missing_table,
            case=keys.routed_case,
        ),
        evolution=_evolution(sink),
        converters=sink.converters,
        transforms=sink.transforms,
        tolerance=_tolerance(sink),
        limits=_limits(sink),
    )


def _evolution(sink: Sink) -> Evolution:
    keys = sink.keys
    return Evolution(keys.auto_create, keys.evolve, keys.case_insensitive, followed(keys))


def _limits(sink: Sink) -> Limits:
    keys = sink.keys
    return Limits(
        record_bytes=keys.record_bytes,
        nesting=keys.nesting,
        learned_names=keys.learned_names,
        new_columns=keys.new_columns,
        columns=keys.columns,
        schema_bytes=keys.schema_bytes,
        cells=keys.cells,
        sql_ms=keys.sql_ms,
        sql_bytes=keys.sql_bytes,
    )


def _tolerance(sink: Sink) -> Tolerance:
    keys = sink.keys
    if keys.errors_tolerance == "none":
        return Tolerance()
    to: Literal["topic", "table"] = "topic" if keys.dead_letter_topic is not None else "table"
    return Tolerance(to, keys.dead_letter_table, keys.errors_per_batch, sink.replayed)


def _left_out(sink: Sink, topics: Source) -> Callable[[str, Mapping[str, str]], Coverage]:
    def look(name: str, properties: Mapping[str, str]) -> Coverage:
        offsets = ledger_key(sink, "", name).left_out(properties)
        return present(offsets, topics.identities({named(tp).topic for tp in offsets})) if offsets else {}

    return look


def table_rules(sink: Sink, topics: Source) -> TableRules:
    """The rules by which the sink's tables are created and written."""
    keys = sink.keys
    types = {column: declared.type for column, declared in keys.default_columns}
    defaults = TableSettings(
        keys.default_partition_by,
        sink.id_columns(""),
        mutations=sink.mutations(""),
        types=types,
        units=sink.units(""),
        landing=keys.landing,
        on_type_change=keys.on_type_change,
    )
    tables = {
        name: TableSettings(
            partition_by=defaults.partition_by if t.partition_by is None else t.partition_by,
            id_columns=sink.id_columns(name),
            location=t.location,
            mutations=sink.mutations(name),
            columns={column: declared.type for column, declared in t.columns},
            types=types,
            units=sink.units(name),
            landing=sink.landing(name),
            on_type_change=on_type_change(keys, t),
        )
        for name, t in sink.tables.items()
    }
    if keys.dead_letter_table is not None:
        # The defaults are about the records' columns, which this table does not have.
        own = sink.tables.get(keys.dead_letter_table, TableKeys())
        tables[keys.dead_letter_table] = TableSettings(
            own.partition_by or (), own.id_columns or (), own.location, landing=sink.landing(keys.dead_letter_table)
        )
    return TableRules(
        write_properties=sink.write_properties,
        create_properties=sink.create_properties,
        tables=tables,
        defaults=defaults,
        force_optional=keys.force_optional,
        schema_defaults=keys.schema_defaults == "from-schema",
        any_year=keys.timestamp_range == "any",
        nanos=keys.nanoseconds == "keep",
        left_out=_left_out(sink, topics),
        evolution=_evolution(sink),
        limits=_limits(sink),
        share=keys.type_share,
        tolerates=keys.errors_tolerance == "all",
        creator=sink.creator,
        configured=None if keys.tables else frozenset(filter(None, [keys.dead_letter_table])),
    )
