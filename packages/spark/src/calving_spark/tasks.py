"""Writes the rows of one task: converts them by the exact rules of a sink, and writes data files. Never calls a
catalog.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Protocol

import pyarrow as pa
from pyiceberg.io import load_file_io
from pyspark import TaskContext

from calving.casting.converted import Converted
from calving.casting.table import TableConverter
from calving.errors import BadRecordError, ConfigError
from calving.model.record_path import Evolution, RecordPath, Routing
from calving.model.tables import TableSpec
from calving.records.cells import FullBlockError
from calving.records.fields import name_mapping, table_schema
from calving.records.values import RecordError, Values
from calving.tasks.spec import TaskSpec
from calving.tasks.write import Writers
from calving_spark.changes import ChangesOfRows, change_writer, last_changes
from calving_spark.hosts import check_version
from calving_spark.messages import BATCH, QUERY, TaskFiles, TaskPlace, WrittenFiles, packed
from calving_spark.planning import WritePlan
from calving_spark.wording import as_options

_CONTINUOUS = "__is_continuous_processing"


def place() -> TaskPlace:
    """The place of the task that runs in this process.

    :raises ConfigError: the query has a trigger whose batches nobody commits one by one.
    """
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("rows are written by Spark's tasks alone")
    if context.getLocalProperty(_CONTINUOUS) == "true":
        raise ConfigError("the continuous trigger has no batches that a table could hold once: use processingTime")
    return TaskPlace(context.getLocalProperty(QUERY), context.getLocalProperty(BATCH), context.partitionId())


def write(plan: WritePlan, version: str, batches: Iterable[pa.RecordBatch]) -> WrittenFiles:
    """Write the rows. ``version``: of calving on the driver.

    :raises BadRecordError: the table cannot take a row; nothing of the batch is committed.
    """
    check_version(version)
    here, table = place(), plan.spec
    spec = TaskSpec(here.partition, (), RecordPath({}, Routing()), {table.name: table}, {})
    what = f"batch {here.batch}" if here.batch is not None else "the write"
    last = last_changes(table, here.partition, what) if table.mutations is not None else None
    writers = Writers(spec) if last is None else Writers(spec, partial(change_writer, last))
    try:
        rows = _Rows(_conversion(plan, here.partition))
        for batch in batches:
            for part in rows.of(batch):
                _put(writers, table.name, part)
        files = writers.close().files.get(table.name, [])
        deletes = last.close() if last is not None else []
    except BaseException:
        writers.discard()
        if last is not None:
            last.discard()
        raise
    io = load_file_io(dict(table.io_properties), table.location)
    return packed(here, plan.uuid, TaskFiles(files, deletes), _folder(table), io)


class _Conversion(Protocol):
    """Makes rows of a table."""

    @property
    def parts(self) -> Callable[[Values], Iterable[Sequence[int]]]:
        """The indices of the values that are converted together."""

    def convert(self, values: Values) -> list[Converted]:
        """The values as rows."""


class _Added:
    """Rows that are added."""

    def __init__(self, table: TableSpec, *, fold: bool) -> None:
        self._converter = TableConverter(
            table.name,
            table_schema(table.schema_json),
            Evolution(case_insensitive=fold),
            name_mapping(table.properties),
            moments=table.moments,
            partition_names=table.partition_names,
            refused=table.refused,
        )
        self.parts = self._converter.parts

    def convert(self, values: Values) -> list[Converted]:
        return [self._converter.convert(values)]


def _conversion(plan: WritePlan, task: int) -> _Conversion:
    if plan.spec.mutations is None:
        return _Added(plan.spec, fold=plan.fold)
    return ChangesOfRows(plan.spec, task, plan.deletes, fold=plan.fold)


class _Rows:
    """Batches of Arrow as rows of a table."""

    def __init__(self, conversion: _Conversion) -> None:
        self._conversion = conversion

    def of(self, batch: pa.RecordBatch) -> Iterator[Converted]:
        """The rows, in parts that do not take too much memory together."""
        values = Values(batch.to_struct_array(), typed=True)
        pending = [values.choose(part) for part in self._conversion.parts(values)] if len(values) else []
        pending.reverse()
        while pending:
            part = pending.pop()
            try:
                yield from self._conversion.convert(part)
            except FullBlockError:
                if len(part) == 1:
                    raise
                half = len(part) // 2
                pending += [part.choose(range(half, len(part))), part.choose(range(half))]


def _put(writers: Writers, table: str, part: Converted) -> None:
    _refuse(part.bad)
    bad: dict[int, RecordError] = {}
    writers.write([(table, part)], bad)
    _refuse([*bad.values()])


def _refuse(bad: list[RecordError]) -> None:
    """:raises BadRecordError: the table cannot take a row."""
    if bad:
        more = f" (and {len(bad) - 1} more rows beside it)" if len(bad) > 1 else ""
        reason = as_options(bad[0].reason)
        raise BadRecordError(f"{reason}{more}: nothing of the batch was written; correct it in the DataFrame")


def _folder(table: TableSpec) -> str:
    return table.properties.get("write.data.path") or f"{table.location.rstrip('/')}/data"
