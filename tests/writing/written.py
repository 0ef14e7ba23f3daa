"""Rows through a table's writer, and the files committed to a real table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import SortOrder

from calving.iceberg.catalog import open_catalog
from calving.iceberg.locations import FileRules
from calving.iceberg.target import IcebergTarget
from calving.model.events import DataWritten, Envelope, TableReference
from calving.model.files import DataFile
from calving.model.offsets import Span, TopicPartition, merged
from calving.model.record_path import Limits
from calving.model.tables import TableSpec
from calving.protocol.commit import CommitLoop
from calving.protocol.ledger import SourceProgress
from calving.protocol.ledger_key import LedgerKey
from calving.records.fields import arrow_schema
from calving.tasks.spec import TaskResult
from calving.wire.codec import Message, decode, encode
from calving.writing.table import TableWriter

Write = Callable[..., list[DataFile]]
"""Writes rows with a table's properties; returns the files."""


def table(
    folder: Path,
    schema: Schema,
    spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
    order: SortOrder | None = None,
    properties: Mapping[str, str] | None = None,
) -> TableSpec:
    return TableSpec(
        "db.t",
        schema.model_dump_json(),
        spec.model_dump_json(),
        f"file://{folder}",
        properties or {},
        {},
        order.model_dump_json() if order else None,
    )


def rows(schema: Schema, columns: Mapping[str, Sequence[Any]]) -> pa.RecordBatch:
    arrow = arrow_schema(schema)
    return pa.RecordBatch.from_arrays([_array(columns[f.name], f.type) for f in arrow], schema=arrow)


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_list(kind) and kind.value_type == pa.uuid():
        return pa.array(values, pa.list_(pa.binary(16))).cast(kind)
    return pa.array(values, kind)


def write(target: TableSpec, *batches: pa.RecordBatch, limits: Limits | None = None) -> list[DataFile]:
    writer = TableWriter(target, 0, limits or Limits())
    for batch in batches:
        writer.write(batch)
    return writer.close()


def local(file: DataFile) -> str:
    """The path of a file on this machine."""
    return file.file_path.removeprefix("file://")


def partitions(files: Sequence[DataFile]) -> list[Any]:
    """The values of files with one partition field."""
    return [file.partition.values[0] for file in files]


def commit(folder: Path, schema: Schema, spec: PartitionSpec, columns: Mapping[str, Sequence[Any]]) -> Table:
    """A table with these rows, whose files went the way of an event over the wire."""
    catalog = open_catalog("iceberg", {"type": "embedded", "warehouse": str(folder)})
    catalog.create_namespace("db")
    made = catalog.create_table("db.t", schema, partition_spec=spec)
    written = table(folder, made.schema(), made.spec())
    result = TaskResult(0, {"db.t": write(written, rows(made.schema(), columns))})
    files = TaskResult.from_json(result.to_json()).files["db.t"]
    event = DataWritten(uuid4(), TableReference("iceberg", ("db",), "t"), tuple(files), ())
    received = decode(encode(Message(uuid4(), 0, "group", event)))
    source, key = TopicPartition("s", 0), LedgerKey("control", "group", "log")
    envelope = Envelope(0, 0, received.event, {source: (Span(0, 1),)})
    rules = FileRules(allowed=(f"file://{folder}",))
    target = IcebergTarget(catalog, ("db", "t"), "main", key, {}, sleep=lambda _: None, files=rules)
    loop = CommitLoop(target, key, 5)
    loop.settle([envelope], {0: 1}, SourceProgress({source: merged([Span(0, 1)])}, {}))
    return catalog.load_table("db.t")
