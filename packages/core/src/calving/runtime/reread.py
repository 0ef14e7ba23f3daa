"""Reads records once more, and gives the rows that they make now. Nothing is written, and no position moves.

This is the path of every record up to its row: the reader, converters, transforms, routing, and the cast to the table's
columns. With ``CALVING_NATIVE=0`` it is the exact path.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace

import pyarrow as pa

from calving.iceberg.tables import Tables
from calving.model.offsets import Coverage, Range, TopicPartition
from calving.model.record_path import Tolerance
from calving.model.tables import TableSpec
from calving.runtime import components
from calving.runtime.parts import record_path, table_rules
from calving.settings.load import Sink
from calving.source.opening import open_reader
from calving.source.reading import Block
from calving.tasks.cast import CastRows
from calving.tasks.pipeline import Pipeline
from calving.tasks.selection import Accounts, Timings
from calving.tasks.spec import TaskSpec
from calving.writing.changes import KEPT, OPERATION, rows_of

_EVERYTHING = 10**9


@dataclass(frozen=True, slots=True)
class RereadRows:
    """Rows of one table, in its Arrow schema, and the offset of the record of each. ``operations``: of a table whose
    rows change, what each does with the row of its key: ``INSERT``, ``UPDATE``, ``DELETE`` or ``TRUNCATE``. ``kept``:
    the text of what a partial row lacks; None of a whole row.
    """

    tp: TopicPartition
    offsets: list[int]
    rows: pa.RecordBatch
    operations: list[int] | None = None
    kept: list[str | None] | None = None


@dataclass
class Reread:
    """What has become of the records that were read once more for a table, beside its rows."""

    table: str
    spec: TableSpec | None = None
    """The table, by which its records become rows."""
    read: int = 0
    bad: dict[tuple[str, int], set[int]] = field(default_factory=dict)
    """By topic and partition, the offsets of bad records."""
    filtered: Counter[str] = field(default_factory=Counter)
    changes: int = 0
    """Changes of its columns that records ask for: their rows are not given."""

    def add(self, block: Block, accounts: Accounts) -> None:
        """Count the records of a block."""
        self.read += len(block)
        if accounts.bad:
            of = self.bad.setdefault((block.source.topic, block.source.partition), set())
            of.update(block.offsets[error.index].as_py() for error in accounts.bad)
        self.filtered.update(accounts.filtered)
        self.changes = sum(each.table == self.table for each in accounts.changes.values())  # of all blocks so far


def reread(sink: Sink, wanted: Coverage, found: Reread) -> Iterator[RereadRows]:
    """The rows of these records in the table of ``found``, which counts the records.

    :raises CalvingError: topics or catalog cannot be reached, or records cannot be read.
    """
    path = record_path(sink)
    path = replace(path, tolerance=Tolerance("topic", path.tolerance.table, _EVERYTHING))
    tables = Tables(components.catalog(sink), sink.keys.catalog_name, table_rules(sink, components.source(sink)))
    tables.refresh([found.table, *sink.keys.tables])
    specs = {name: replace(spec, held_json="{}") for name, spec in tables.specs().items()}
    found.spec = specs.get(found.table)
    ranges = tuple(
        Range(tp.topic, tp.partition, span.start, span.end) for tp, spans in sorted(wanted.items()) for span in spans
    )
    pipeline = Pipeline(TaskSpec(0, ranges, path, specs, tables.missing), Timings())
    reader = open_reader(path.kafka, path.limits, headers=pipeline.needs_headers)
    with closing(reader.read(ranges)) as blocks:
        for block in blocks:
            accounts = Accounts(pipeline.changes)
            for part in pipeline.rows(block, accounts):
                yield from _rows(block, part, found.table)
                part.settle()
            found.add(block, accounts)


def _rows(block: Block, part: CastRows, table: str) -> Iterator[RereadRows]:
    offsets, places = block.offsets, part.routed.values.index
    for name, converted in part.converted:
        if name != table or converted.rows is None:
            continue
        good = [at for at, value in enumerate(converted.index) if value not in part.bad]
        of_records = [offsets[places[converted.index[at]]].as_py() for at in good]
        rows = converted.rows if len(good) == converted.rows.num_rows else converted.rows.take(pa.array(good))
        tp = TopicPartition(block.source.topic, block.source.partition)
        if OPERATION in rows.schema.names:
            operations, kept = (rows.column(name).to_pylist() for name in (OPERATION, KEPT))
            yield RereadRows(tp, of_records, rows_of(rows), operations, kept)
        else:
            yield RereadRows(tp, of_records, rows)


def present(sink: Sink) -> tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int], Mapping[str, str]]:
    """Where each partition begins and ends now, and the id of each topic.

    :raises UnavailableError: no broker answers.
    """
    source = components.source(sink)
    every = source.partitions()
    bounds = source.bounds(every)
    return bounds.begins, bounds.ends, source.identities({tp.topic for tp in every})
