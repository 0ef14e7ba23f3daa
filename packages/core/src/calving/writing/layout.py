"""How the rows of a table become files: by partition, in its order, in its format, with statistics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from io import BytesIO

import pyarrow as pa

from calving.casting.conforming import conform
from calving.errors import ConfigError
from calving.model.tables import TableSpec
from calving.records.fields import arrow_schema, table_schema
from calving.writing.formats.metrics import Metrics, measured
from calving.writing.formats.registry import file_format
from calving.writing.partitioning import partitioner
from calving.writing.properties import WriteProperties
from calving.writing.sorting import sorting
from calving.writing.waiting import Waiting

Placed = tuple[pa.RecordBatch, pa.Array]
"""Rows as files hold them, and the number of each one's partition."""


class Layout:
    """The layout of one table's files.

    :raises ConfigError: the table cannot be written as its schema, spec, order or properties are.
    """

    def __init__(self, table: TableSpec) -> None:
        schema = table_schema(table.schema_json)
        if not schema.fields:
            raise ConfigError(f"table {table.name} has no columns: add one to it")
        self.properties = WriteProperties.of(table.properties, table.name)
        try:
            self.partitioner = partitioner(table)
            self.order = sorting(table)
            self.format = file_format(schema, self.properties)
        except ConfigError as error:
            raise ConfigError(f"table {table.name}: {error}") from error
        self._schema = arrow_schema(schema)
        self._measured = measured(schema, self.properties, self.order.columns if self.order else ())

    def place(self, rows: pa.RecordBatch) -> Placed:
        """The rows, placed. Nothing later depends on a single value, so far as is known.

        :raises BadRecordError: a row has no partition, no place in the sort order, or a value that files cannot hold.
        """
        rows = conform(rows, self._schema)
        self.format.check(rows)
        if self.order is not None:
            self.order.keys(rows)
        return rows, self.partitioner.numbers(rows)

    def path(self, number: int) -> str:
        """The path of the partition with this number."""
        return self.partitioner.partition(number).path

    def metrics(self) -> Metrics:
        """Statistics of a new file."""
        return Metrics(self._measured)

    def arrange(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of one file, in the table's order if it has one."""
        # Arrow's ``take`` loses the required flags inside maps and lists.
        return conform(rows if self.order is None else self.order.sort(rows), self._schema)

    def trial(self, rows: pa.RecordBatch) -> None:
        """The whole way of rows into a file, which is thrown away.

        :raises Exception: whatever stands in their way.
        """
        self._try(self.place(rows)[0])

    def _try(self, rows: pa.RecordBatch) -> None:
        """Placed rows into a file that is thrown away."""
        rows = self.arrange(rows)
        metrics = self.metrics()
        writer = self.format.open(BytesIO())
        try:
            writer.write(rows)
            metrics.add(rows)
            metrics.lower_bounds(), metrics.upper_bounds()
        finally:
            writer.close()


class Taker(ABC):
    """Takes rows of one table, and keeps them by partition until there are enough of them. ``rows`` counts them."""

    def __init__(self, layout: Layout, enough_bytes: int) -> None:
        self._layout, self._waiting = layout, Waiting(enough_bytes)
        self.rows = 0

    def write(self, rows: pa.RecordBatch) -> None:
        """Take all the rows.

        :raises BadRecordError: one of them has no partition, no place in the sort order, or a value that files cannot
            hold. None of them is taken.
        """
        self.accept(self.prepare(rows))

    def prepare(self, rows: pa.RecordBatch) -> Placed:
        """Rows as ``accept`` takes them. Nothing is taken yet. :raises BadRecordError: as ``write``."""
        return self._layout.place(rows)

    def accept(self, rows: Placed) -> None:
        """Take rows that were prepared: no value can stand in their way any more."""
        placed, numbers = rows
        self.rows += placed.num_rows
        self._waiting.add(placed, numbers)
        for number, part in self._waiting.full():
            self._append(number, part)

    def trial(self, rows: pa.RecordBatch) -> None:
        """The whole way of rows into a file that is thrown away, to find those that stand in the way of a real one.

        :raises Exception: whatever would come of writing them, at once or later.
        """
        self._layout.trial(rows)

    @abstractmethod
    def flush_largest(self) -> None:
        """Flush a part of the buffered rows."""

    @abstractmethod
    def _append(self, number: int, rows: pa.RecordBatch) -> None:
        """Enough rows of the partition of this number."""
