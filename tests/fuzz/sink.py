"""The real sink in this process: batches of given records through the batch runner, the task and the committer, into tables
of an embedded catalog. Only the broker is not there.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock
from zlib import crc32

from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder

from calving.casting.table import TableConverter
from calving.converters.native import SWITCH
from calving.engine import shipping
from calving.engine.interface import LocalEngine
from calving.errors import BadRecordError
from calving.iceberg.catalog import open_catalog, tables_of
from calving.iceberg.rules import TableRules, TableSettings
from calving.iceberg.tables import Tables
from calving.iceberg.target import IcebergTarget
from calving.model.events import DataWritten, Envelope, Written
from calving.model.files import DataFile
from calving.model.offsets import Range, Span, TopicPartition
from calving.model.record_path import (
    ConverterSpec,
    Evolution,
    Limits,
    RecordPath,
    Routing,
    Tolerance,
    TopicConverters,
    TransformSpec,
)
from calving.protocol.commit import CommitLoop
from calving.protocol.ledger_key import LedgerKey
from calving.runtime.batch import BatchRunner, ErrorLimits
from calving.source.reading import Block
from calving.tasks.spec import TaskResult, TaskSpec
from calving.tasks.task import run_json
from harness.blocks import Given, RecordEnvelope
from harness.registry import serving
from tests.fuzz import forms, histories, plain
from tests.fuzz.encoding import SchemaText, schema_id
from tests.fuzz.tables import Table, table_of

TOPIC = "fuzzed"
START = 100
"""The first offset."""
HEADERS: list[tuple[str, bytes | None]] = []
"""Of every record."""
_KEY = LedgerKey("control", "connect-fuzz", "log")
_RECORDS: dict[TopicPartition, tuple[int, Sequence[bytes | None], Sequence[RecordEnvelope]]] = {}
"""A partition as a broker has it: its first offset, and its records, which may have envelopes."""


class _Source:
    """In the place of the reader of a broker."""

    def __init__(self, kafka: Mapping[str, str], limits: Limits, *, headers: bool) -> None:
        self._limits = limits

    def read(self, sources: Sequence[Range]) -> Iterator[Block]:
        for source in sources:
            first, raws, envelopes = _RECORDS[TopicPartition(source.topic, source.partition)]
            for start in range(source.start, source.end, self._limits.block_records):
                end = min(start + self._limits.block_records, source.end)
                raw, around = raws[start - first : end - first], envelopes[start - first : end - first]
                yield Given(source, start, raw, headers=HEADERS, envelopes=around)


class _Engine(LocalEngine):
    """Spark's way of running tasks and of shuffling, without Spark."""

    def __init__(self, slots: int) -> None:
        self._slots = slots

    @property
    def slots(self) -> int:
        return self._slots

    def run(self, tasks: Sequence[TaskSpec]) -> list[TaskResult]:
        shuffle = len(tasks) > 1 and any(t.distribution != "none" for spec in tasks for t in spec.tables.values())
        texts = [replace(spec, shuffle=shuffle).to_json() for spec in tasks]
        found = self._shuffle(texts) if shuffle else self.map(run_json, texts)
        return [TaskResult.from_json(text) for text in found]

    def _shuffle(self, texts: Sequence[str]) -> list[str]:
        sent = [item for text in texts for item in shipping.send(text)]
        if shipping.has_ranges(texts[0]):
            samples = [item for item in sent if item[0] == shipping.SAMPLES]
            sent = list(shipping.cut(texts[0], shipping.plan(texts[0], samples, self._slots), sent))
        receivers: list[list[shipping.Sent]] = [[] for _ in range(self._slots)]
        for item in sent:
            receivers[crc32(f"{item[0]}/{item[1]}".encode()) % self._slots].append(item)
        return [
            text for place in receivers for text in shipping.receive(texts[0], sorted(place, key=lambda item: item[:2]))
        ]


@dataclass(frozen=True)
class Target:
    """A table before the batch; without a schema it is missing."""

    name: str
    schema: Schema | None
    spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC
    order: SortOrder = UNSORTED_SORT_ORDER
    properties: Mapping[str, str] = field(default_factory=dict)
    history: int = 0
    """The seed of what the table was before; 0: nothing."""
    drawn: frozenset[str] = frozenset()
    """What is rare in it."""


@dataclass(frozen=True)
class Run:
    """How a batch is run."""

    routing: Routing
    evolution: Evolution = field(default_factory=Evolution)
    converters: Mapping[str, TopicConverters] = field(default_factory=dict)
    transforms: tuple[TransformSpec, ...] = ()
    tolerance: Tolerance = field(default_factory=lambda: Tolerance("topic", at_most=10**9))
    block_records: int = 8_000
    rules: TableRules = field(default_factory=TableRules)
    slots: int = 1
    """Tasks at the same time; with several, rows are shuffled as the tables want it."""
    exactly: bool = False
    """Nothing goes a fast path."""
    native: bool = True
    """Whether what is decoded by Rust may be, where it is installed."""
    partitions: tuple[TopicPartition, ...] = (TopicPartition(TOPIC, 0),)
    """Where the records come from, cut into as many parts."""


@dataclass
class Found:
    """The result of a batch: rows as text by table, dead letters by place, filtered records by cause; or the error that
    stopped it, and whether that says that a record is bad.
    """

    rows: dict[str, Counter[forms.RowText]] = field(default_factory=dict)
    dead: dict[int, str] = field(default_factory=dict)
    filtered: Counter[str] = field(default_factory=Counter)
    tables: dict[str, Table] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)
    left_out: dict[int, Mapping[str, int]] = field(default_factory=dict)
    error: str | None = None
    error_kind: str = ""
    files: dict[str, tuple[DataFile, ...]] = field(default_factory=dict)
    written: Written = field(default_factory=dict)
    read: int = 0
    latest_us: Mapping[TopicPartition, int] = field(default_factory=dict)
    changed: list[int] = field(default_factory=list)
    """Dead letters that are not the records they were, or have no reason."""


class Sink:
    """One catalog, whose tables are recreated for every batch."""

    def __init__(self, folder: Path, uri: str | None = None) -> None:
        """``uri``: of a REST catalog, which tables of format version 3 need."""
        self.folder = folder
        shutil.rmtree(folder, ignore_errors=True)
        kind = {"type": "embedded", "warehouse": str(folder)} if uri is None else {"type": "rest", "uri": uri}
        self.catalog = open_catalog("iceberg", kind)
        self.catalog.create_namespace_if_not_exists("db")
        self.records = 0
        """Records taken in all batches."""
        self._stack = ExitStack()
        self._registry = self._stack.enter_context(serving())
        self._schemas: dict[int, dict[str, Any]] = {}
        self._subjects: dict[str, dict[str, Any]] = {}
        self._stack.enter_context(mock.patch.object(self._registry, "answer", self._answer))

    def use(self, converter: str, schemas: Sequence[str], key: str = "bytes") -> Mapping[str, TopicConverters]:
        """How values and keys are decoded; ``schemas``: the content of the registry."""
        kind = converter.upper().partition("-")[0]
        for text in schemas:
            self._schemas[schema_id(text)] = self._registered(text, kind)
        value = ConverterSpec(converter)
        match converter:
            case "avro" | "json-schema" | "protobuf":
                value = ConverterSpec(converter, {"schema.registry.url": self._registry.url})
            case "envelope":
                value = ConverterSpec("json", {"schemas.enable": "true"})
            case "avro-fixed":
                value = ConverterSpec("avro", {"schema": schemas[0]})
        return {"": TopicConverters(ConverterSpec(key), value)}

    def _registered(self, text: str, kind: str) -> dict[str, Any]:
        """The registry's answer to a schema. The schemas to which it refers get subjects of their own."""
        references = []
        for name, other in text.references if isinstance(text, SchemaText) else ():
            subject = f"s{schema_id(other)}"
            self._subjects[subject] = self._registered(other, kind) | {"id": schema_id(other)}
            references.append({"name": name, "subject": subject, "version": 1})
        return {"schema": str(text), "schemaType": kind, "references": references}

    def _answer(self, path: str) -> tuple[int, dict[str, Any]]:
        parts = path.partition("?")[0].split("/")
        if parts[1] == "subjects":
            return 200, {"subject": parts[2], "version": 1, **self._subjects[parts[2]]}
        found = self._schemas.get(int(parts[-1]))
        return (404, {"error_code": 40403}) if found is None else (200, found)

    def close(self) -> None:
        """Delete everything."""
        self._stack.close()
        self.catalog.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def take(
        self,
        run: Run,
        targets: Sequence[Target] | None,
        raws: Sequence[bytes | None],
        envelopes: Sequence[RecordEnvelope] = (),
    ) -> Found:
        """One batch of all records into new tables, or, without ``targets``, into those of the last batch. Nothing is
        committed yet. ``envelopes``: one for each record, or none.
        """
        self.records += len(raws)
        for name in map(".".join, tables_of(self.catalog, ("db",))) if targets is not None else ():
            self.catalog.drop_table(name)
        for target in targets or ():
            if target.schema is not None and target.history:
                wanted = histories.Wanted(target.schema, target.spec, target.order, target.properties)
                histories.create(self.catalog, target.name, wanted, target.history)
            elif target.schema is not None:
                self.catalog.create_table(
                    target.name,
                    target.schema,
                    partition_spec=target.spec,
                    sort_order=target.order,
                    properties=dict(target.properties),
                )
        path = RecordPath(
            {},
            run.routing,
            run.evolution,
            run.converters,
            run.transforms,
            run.tolerance,
            Limits(block_records=run.block_records),
        )
        letters = {str(run.tolerance.table): TableSettings()} if run.tolerance.table else {}
        rules = replace(
            run.rules,
            tables={**run.rules.tables, **letters},
            evolution=run.evolution,
            tolerates=run.tolerance.to != "error",
        )
        tables = Tables(self.catalog, "iceberg", rules)
        runner = BatchRunner(_Engine(run.slots), tables, path, ErrorLimits(10**9, share=1.0))
        firsts = self._produce(run, raws, envelopes)
        found = Found()
        try:
            with _patched(run.exactly, run.native):
                spans = {tp: Span(START, START + len(_RECORDS[tp][1])) for tp in firsts}
                outcome = runner.run({tp: span for tp, span in spans.items() if span.start < span.end})
        except Exception as error:  # whatever it is, it is what became of the batch
            found.error, found.error_kind = f"{type(error).__name__}: {error}", type(error).__name__
            found.error_kind = "bad record" if isinstance(error, BadRecordError) else found.error_kind
            return found
        finally:
            runner.close()
        for letter in outcome.dead_letters:
            place = firsts[TopicPartition(letter.topic, letter.partition)] + letter.offset - START
            found.dead[place], found.reasons[place] = letter.stage, letter.reason
            found.left_out[place] = letter.left_out
            key = envelopes[place].key if envelopes else b"key"
            found.changed += [place] if letter.value != raws[place] or letter.key != key or not letter.reason else []
        found.filtered = Counter(runner.totals.records.filtered)
        found.latest_us = outcome.timestamps_us
        found.read = outcome.records
        found.files = {".".join(table.identifier): files.data_files for table, (files,) in outcome.written.items()}
        found.written = outcome.written
        for name in map(".".join, tables_of(self.catalog, ("db",))):
            schema = self.table(name).schema()
            found.tables[name] = table_of(schema)
            rows = [
                row
                for file in found.files.get(name, ())
                for row in plain.file_rows(file.file_path, file.file_format, schema)
            ]
            if name == run.tolerance.table:
                self._letters(rows, firsts, raws, envelopes, found)
            fold = run.evolution.case_insensitive
            found.rows[name] = Counter(forms.row_text(row, fold) for row in rows)
        return found

    def _letters(
        self,
        rows: Sequence[Mapping[str, Any]],
        firsts: Mapping[TopicPartition, int],
        raws: Sequence[bytes | None],
        envelopes: Sequence[RecordEnvelope],
        found: Found,
    ) -> None:
        """Take the rows of the table of dead letters for these."""
        for row in rows:
            place = firsts[TopicPartition(row["topic"], row["partition"])] + row["offset"] - START
            given = envelopes[place] if envelopes else RecordEnvelope()
            before = given.timestamp_ms is None or given.timestamp_ms < 0  # no record is made before 1970
            moment = None if before else (given.timestamp_ms or 0) * 1000
            headers = [{"key": name, "value": value} for name, value in given.headers or ()]
            wanted = raws[place], given.key, moment, headers
            told = row["value"], row["key"], row["timestamp"], row["headers"]
            is_same = wanted == told and row["error"] and row["reason"] and place not in found.dead
            found.dead[place], found.reasons[place] = row["stage"], row["reason"]
            found.changed += [] if is_same else [place]

    def _produce(
        self, run: Run, raws: Sequence[bytes | None], envelopes: Sequence[RecordEnvelope]
    ) -> dict[TopicPartition, int]:
        """Hand out the records; the place of each partition's first."""
        size = -(-len(raws) // len(run.partitions)) or 1
        firsts = {tp: i * size for i, tp in enumerate(run.partitions)}
        for tp, first in firsts.items():
            _RECORDS[tp] = START, raws[first : first + size], envelopes[first : first + size]
        return firsts

    def commit(self, found: Found) -> None:
        """Commit the last batch's files, as the coordinator does."""
        for number, (table, (files,)) in enumerate(found.written.items(), 1):
            target = IcebergTarget(self.catalog, table.identifier, "main", _KEY, {})
            event = DataWritten(uuid.UUID(int=number), table, files.data_files)
            CommitLoop(target, _KEY, 5).settle([Envelope(0, number, event)], {0: number + 1})

    def table(self, name: str) -> IcebergTable:
        """A table as the last batch has left it."""
        return self.catalog.load_table(name)


@contextmanager
def _patched(exactly: bool, native: bool) -> Iterator[None]:
    with ExitStack() as stack:
        stack.enter_context(mock.patch("calving.tasks.task.open_reader", _Source))
        stack.enter_context(mock.patch("calving.runtime.cutting._WORTH_A_TASK", 2))
        if exactly or not native:
            stack.enter_context(mock.patch.dict(os.environ, {SWITCH: "0"}))
        if exactly:
            stack.enter_context(mock.patch("calving.tasks.cast.TableConverter", partial(TableConverter, exactly=True)))
        yield
