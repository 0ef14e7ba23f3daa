"""A mutation table and what is written into it, without a broker: records of several partitions, batch by batch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import UUID

from pyiceberg.table import Table

from calving.iceberg.catalog import open_catalog, table_id
from calving.iceberg.resolution import RowChangeResolver
from calving.iceberg.rules import TableRules, TableSettings
from calving.iceberg.tables import Tables
from calving.iceberg.target import IcebergTarget
from calving.model.events import DataWritten, Envelope, TableFiles, TableReference
from calving.model.offsets import Coverage, Range, Span, TopicPartition
from calving.model.record_path import (
    ConverterSpec,
    Evolution,
    Limits,
    RecordPath,
    RouteRule,
    Routing,
    Tolerance,
    TopicConverters,
    TransformSpec,
)
from calving.model.tables import Landing, RowMutations
from calving.protocol.commit import CommitLoop
from calving.protocol.ledger import SourceProgress
from calving.protocol.ledger_key import LedgerKey
from calving.protocol.worker import BatchOutcome
from calving.runtime.batch import BatchRunner, ErrorLimits
from calving.source.reading import Block
from harness.blocks import MILLIS, Given, RecordEnvelope
from tests.fuzz.sink import _Engine as ShufflingEngine

TOPIC, NAME = "changes", "db.t"
KEY = LedgerKey("control", "connect-x", "log-1")
Message = tuple[Any, Any]
"""Key and value; None, bytes, or an object that is written as JSON."""
JSON_KEYS = TopicConverters(ConverterSpec("json"), ConverterSpec("json"))


def _bytes(what: Any) -> bytes | None:
    return what if what is None or isinstance(what, bytes) else json.dumps(what).encode()


@dataclass
class Changing:
    """Takes batches, and commits them as a coordinator does."""

    folder: Path
    mutations: RowMutations | None = field(default_factory=lambda: RowMutations("op"))
    id_columns: tuple[str, ...] = ("id",)
    partition_by: tuple[str, ...] = ()
    columns: Mapping[str, Any] = field(default_factory=dict)
    types: Mapping[str, Any] = field(default_factory=dict)
    units: Mapping[str, Any] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    landing: Landing = "partitioned"
    evolution: Evolution = field(default_factory=lambda: Evolution(create=True))
    converters: TopicConverters = JSON_KEYS
    by_topic: Mapping[str, TopicConverters] = field(default_factory=dict)
    transforms: tuple[TransformSpec, ...] = ()
    tolerance: Tolerance = field(default_factory=lambda: Tolerance("topic", at_most=10**9))
    limits: Limits = field(default_factory=lambda: Limits(block_records=3))
    slots: int = 1
    routing: Routing | None = None
    """By default all records go to the table ``name``."""
    tables: Mapping[str, TableSettings] = field(default_factory=dict)
    """Tables that differ from this one."""
    name: str = NAME
    held: Coverage = field(default_factory=dict)
    """Offsets that the tables hold, which a recovery has the sink read again."""
    witness: str | None = None
    """A table that was loaded before."""
    schema_defaults: bool = False
    nanos: bool = False
    keys: Mapping[str, str] | None = None
    """Of the catalog; by default it is an embedded one in the folder."""
    clock: Callable[[int, int], int | None] = lambda partition, offset: MILLIS
    """The timestamp of the record at an offset of a partition."""

    def __post_init__(self) -> None:
        self.catalog = open_catalog("iceberg", self.keys or {"type": "embedded", "warehouse": str(self.folder)})
        self._log: dict[int, list[Message]] = {}
        self._done: dict[int, int] = {}
        self._commits = 0
        settings = self.mutations or RowMutations()
        self._resolver = RowChangeResolver(
            settings.order_field,
            order_type=settings.order_type,
            on_missing=settings.on_missing_row,
            has_versions=settings.has_versions,
        )
        self.outcome: BatchOutcome | None = None
        self.counts: dict[str, int] = {}

    def take(self, *messages: Message, partition: int = 0) -> BatchOutcome:
        """A batch of one partition, committed."""
        return self.take_all({partition: messages})

    def take_all(self, messages: Mapping[int, Sequence[Message]]) -> BatchOutcome:
        outcome = self.read(messages)
        self.commit(outcome)
        return outcome

    def read(self, messages: Mapping[int, Sequence[Message]]) -> BatchOutcome:
        """A batch; nothing is committed."""
        for partition, found in messages.items():
            self._log.setdefault(partition, []).extend(found)
        settings = TableSettings(
            self.partition_by,
            self.id_columns,
            mutations=self.mutations,
            columns=self.columns,
            types=self.types,
            units=self.units,
            landing=self.landing,
        )
        rules = TableRules(
            create_properties=self.properties,
            schema_defaults=self.schema_defaults,
            nanos=self.nanos,
            tables=self.tables,
            left_out=lambda name, properties: self.held,
            defaults=settings,
            evolution=self.evolution,
            limits=self.limits,
            tolerates=self.tolerance.to != "error",
            configured=frozenset() if self.routing is not None and self.routing.is_free else None,
        )
        path = RecordPath(
            {},
            self.routing or Routing((RouteRule(self.name),)),
            self.evolution,
            {"": self.converters, **self.by_topic},
            self.transforms,
            self.tolerance,
            self.limits,
        )
        tables = Tables(self.catalog, "iceberg", rules)
        tables.witness = self.witness
        runner = BatchRunner(ShufflingEngine(self.slots), tables, path, ErrorLimits(10**9, share=1.0))
        spans = {
            TopicPartition(TOPIC, p): Span(self._done.get(p, 0), len(self._log[p])) for p, found in messages.items()
        }
        with (
            mock.patch("calving.tasks.task.open_reader", self._reader()),
            mock.patch("calving.runtime.cutting._WORTH_A_TASK", 2),
        ):
            outcome = runner.run({tp: span for tp, span in spans.items() if span.start < span.end})
        runner.close()
        records = runner.totals.records
        replaced = {"superseded": records.superseded, "deleted": records.deleted}
        self.counts = {**records.filtered, **{cause: count for cause, count in replaced.items() if count}}
        self._done |= {p: len(self._log[p]) for p in messages}
        return outcome

    def _reader(self) -> type:
        log, clock = self._log, self.clock

        class Reader:
            def __init__(self, kafka: Mapping[str, str], limits: Limits, *, headers: bool) -> None:
                self._limits = limits

            def read(self, sources: Sequence[Range]) -> Iterator[Block]:
                for source in sources:
                    for start in range(source.start, source.end, self._limits.block_records):
                        end = min(start + self._limits.block_records, source.end)
                        pairs = log[source.partition][start:end]
                        keys, values = ([_bytes(pair[i]) for pair in pairs] for i in (0, 1))
                        times = (clock(source.partition, offset) for offset in range(start, end))
                        envelopes = [*map(RecordEnvelope, keys, times)]
                        yield Given(source, start, values, envelopes=envelopes)

        return Reader

    def commit(self, *outcomes: BatchOutcome) -> None:
        """Batches, of each table in one commit."""
        written: dict[TableReference, list[TableFiles]] = {}
        for outcome in outcomes:
            for table, steps in outcome.written.items():
                written.setdefault(table, []).extend(steps)
        for table, steps in written.items():
            entries = []
            for files in steps:
                self._commits += 1
                event = DataWritten(UUID(int=self._commits), table, files.data_files, files.delete_files)
                entries.append(Envelope(0, self._commits, event))
            is_equality = self.mutations is not None and self.mutations.row_deletes == "equality"
            resolver = None if self.mutations is None or is_equality else self._resolver
            target = IcebergTarget(
                self.catalog, table.identifier, "main", KEY, {}, resolver=resolver, equality=is_equality
            )
            CommitLoop(target, KEY, 5, in_order=True).settle(entries, {0: self._commits + 1}, SourceProgress({}, {}))

    @property
    def table(self) -> Table:
        return self.catalog.load_table(table_id(self.name))

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        """The live rows, sorted."""
        found = self.table.scan().to_arrow().to_pylist()
        return sorted((tuple(row[c] for c in columns) for row in found), key=repr)

    def reasons(self, outcome: BatchOutcome) -> list[tuple[int, str]]:
        """Offset and reason of each dead letter."""
        return sorted((letter.offset, letter.reason) for letter in outcome.dead_letters)

    def with_(self, **changed: Any) -> Changing:
        """The same table with other settings."""
        other = replace(self, **changed)
        other._log, other._done, other._commits = self._log, self._done, self._commits
        return other
