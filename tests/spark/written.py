"""Batches as Spark has them written, in this process: planning, tasks and the commit, each with what was sent to it."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import types as spark
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema

from calving_spark import tasks
from calving_spark.messages import TaskPlace
from calving_spark.source import DefaultSource
from tests.spark.lake import SparkLake

Row = dict[str, Any]


@dataclass
class Batches:
    """The micro-batches of one query into ``lake.t``."""

    lake: SparkLake
    schema: spark.StructType
    replace: Callable[[object, str, object], None]
    """Sets an attribute of a module for the time of the test."""
    options: dict[str, str] = field(default_factory=dict)
    count: int = 0

    def source(self) -> DefaultSource:
        return DefaultSource({**self.lake.options, "path": "lake.t", "sink": "s", **self.options})

    def write(self, *parts: Sequence[Row], commits: bool = True) -> Sequence[WriterCommitMessage | None]:
        """Write the rows of each task, and commit the next batch."""
        sent = pickle.dumps(self.source().streamWriter(self.schema, False))
        messages = [self._task(pickle.loads(sent), number, rows) for number, rows in enumerate(parts)]
        if commits:
            self.commit(messages)
        return messages

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self.again(messages)
        self.count += 1

    def again(self, messages: Sequence[WriterCommitMessage | None], batch: int | None = None) -> None:
        """Commit a batch whose number stays the next one."""
        writer = self.source().streamWriter(self.schema, False)
        writer.commit(pickle.loads(pickle.dumps(messages)), self.count if batch is None else batch)

    def _task(self, writer: Any, number: int, rows: Sequence[Row]) -> WriterCommitMessage:
        self.replace(tasks, "place", lambda: TaskPlace("q", str(self.count), number))
        batches = pa.Table.from_pylist([*rows], to_arrow_schema(self.schema)).to_batches(max_chunksize=3)
        message: WriterCommitMessage = writer.write(iter(batches))
        return message

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """What pyiceberg reads."""
        found = self.lake.table("lake.t").scan().to_arrow().to_pylist()
        return sorted((tuple(row.values()) for row in found), key=repr)

    def files(self) -> set[str]:
        """The files in the table's folder for data."""
        return {each.name for each in self.lake.folder.rglob("*") if each.is_file() and each.parent.name != "metadata"}
