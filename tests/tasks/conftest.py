"""A sink's data plane without its control plane: batches over a real broker into a real table."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

from calving.engine.interface import Engine, LocalEngine
from calving.iceberg.catalog import find_table, open_catalog, table_id
from calving.iceberg.resolution import RowChangeResolver
from calving.iceberg.rules import TableRules, TableSettings
from calving.iceberg.tables import Tables
from calving.iceberg.target import IcebergTarget
from calving.model.events import DataWritten, Envelope
from calving.model.offsets import Range, Span, TopicPartition
from calving.model.record_path import (
    Evolution,
    Limits,
    RecordPath,
    RouteRule,
    Routing,
    Tolerance,
    TopicConverters,
    TransformSpec,
)
from calving.protocol.commit import CommitLoop
from calving.protocol.ledger import SourceProgress
from calving.protocol.ledger_key import LedgerKey
from calving.protocol.worker import BatchOutcome
from calving.runtime.batch import BatchRunner, ErrorLimits
from calving.source.kafka import Topics
from calving.tasks.spec import TaskResult
from harness.topic import Topic

KEY = LedgerKey("control", "connect-test", "log")


class Plane:
    """Reads a topic into tables, as often as asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.catalog: Catalog = open_catalog("iceberg", {"type": "embedded", "warehouse": str(folder / "warehouse")})
        self.routing = Routing((RouteRule("db.t"),))
        self.evolution = Evolution(create=True, evolve=True)
        self.limits = Limits()
        self.converters: dict[str, TopicConverters] = {}
        self.transforms: tuple[TransformSpec, ...] = ()
        self.tolerance = Tolerance()
        self.errors = ErrorLimits(per_batch=10_000, share=1.0)
        self.rules = TableRules()
        self.engine: Engine = LocalEngine()
        self.resolver: RowChangeResolver | None = None
        """Of a table whose rows change."""
        self._commits = 0
        self.results: list[TaskResult] = []

    def settings(self, *, partition_by: Sequence[str] = (), id_columns: Sequence[str] = ()) -> None:
        self.rules = TableRules(defaults=TableSettings(tuple(partition_by), tuple(id_columns)))

    def read(self, topic: Topic, spans: dict[int, tuple[int, int]] | None = None) -> BatchOutcome:
        """One batch over ``spans`` (default: all there is)."""
        topics = Topics({"bootstrap.servers": topic.servers}, [topic.name], None)
        bounds = topics.bounds(topics.partitions())
        found = {tp: Span(bounds.begins[tp], bounds.ends[tp]) for tp in bounds.ends}
        if spans is not None:
            found = {TopicPartition(topic.name, p): Span(*span) for p, span in spans.items()}
        path = RecordPath(
            {"bootstrap.servers": topic.servers},
            self.routing,
            self.evolution,
            self.converters,
            self.transforms,
            self.tolerance,
            self.limits,
        )
        runner = BatchRunner(self.engine, Tables(self.catalog, "iceberg", self.rules), path, self.errors)
        try:
            return runner.run(found)
        finally:
            runner.close()

    def commit(self, outcome: BatchOutcome) -> None:
        self._commits += 1
        for table, steps in outcome.written.items():
            events = [DataWritten(uuid4(), table, files.data_files, files.delete_files) for files in steps]
            target = IcebergTarget(self.catalog, table.identifier, "main", KEY, {}, resolver=self.resolver)
            loop = CommitLoop(target, KEY, 5, in_order=self.resolver is not None)
            entries = [Envelope(0, self._commits + number, event) for number, event in enumerate(events)]
            self._commits += len(events)
            loop.settle(entries, {0: self._commits}, SourceProgress({}, {}))

    def take(self, topic: Topic, spans: dict[int, tuple[int, int]] | None = None) -> BatchOutcome:
        outcome = self.read(topic, spans)
        self.commit(outcome)
        return outcome

    def rows(self, name: str = "db.t") -> pa.Table:
        table = find_table(self.catalog, table_id(name))
        assert table is not None
        return table.scan().to_arrow()


def encode(*records: object) -> list[bytes]:
    return [json.dumps(record).encode() for record in records]


@pytest.fixture
def plane(tmp_path: Path) -> Plane:
    return Plane(tmp_path)


@pytest.fixture
def fill(topic: Callable[..., Topic]) -> Callable[..., Topic]:
    """A topic with these records in partition 0."""

    def make(*records: object) -> Topic:
        made = topic()
        made.send(*encode(*records))
        return made

    return make


__all__ = ["Plane", "Range", "encode"]
