"""Rows of a table that a commit reads by their positions, and writes anew."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from calving.iceberg.locations import carried
from calving.model.files import DataFile
from calving.model.record_path import Limits
from calving.model.tables import TableSpec
from calving.mutations.candidates import Candidate, identities
from calving.mutations.rows import RowReader
from calving.records.arrays import conform
from calving.records.fields import arrow_schema
from calving.writing.table import TableWriter


class StoredRows:
    """The rows of one table. ``properties``: beside those of the table, for the files that are written."""

    def __init__(self, table: Table, properties: Mapping[str, str]) -> None:
        self._table, self._properties = table, properties

    def reader(self, schema: Schema) -> RowReader:
        """A reader of these columns."""
        mapping = self._table.name_mapping()
        return RowReader(self._table.io, schema, tuple(mapping.root) if mapping is not None else ())

    def at(self, file: Candidate, schema: Schema, positions: pa.Array) -> Iterator[pa.RecordBatch]:
        """The rows of a file at these ascending positions, with these columns.

        :raises TableTroubleError: the file cannot be read without a loss.
        """
        spec = self._table.metadata.specs()[file.spec_id]
        constants = {each: file.partition[place] for each, place in identities(spec, schema.field_ids).items()}
        yield from self.reader(schema).rows_at(file.path, file.file_format, constants, positions)

    def written(self, batches: Iterable[pa.RecordBatch]) -> tuple[DataFile, ...]:
        """Write rows into new data files."""
        limits = Limits()
        writer = TableWriter(self._as_written(), 0, limits)
        schema = arrow_schema(self._table.metadata.schema())
        try:
            for rows in batches:
                columns = [conform(column, field.type) for column, field in zip(rows.columns, schema, strict=True)]
                writer.write(pa.RecordBatch.from_arrays(columns, schema=schema))
                while writer.buffered_bytes > limits.buffered_bytes:
                    writer.flush_largest()
            return tuple(writer.close())
        except BaseException:
            writer.discard()
            raise

    def _as_written(self) -> TableSpec:
        table, metadata = self._table, self._table.metadata
        return TableSpec(
            ".".join(table.name()),
            metadata.schema().model_dump_json(),
            metadata.spec().model_dump_json(),
            metadata.location,
            {**metadata.properties, **self._properties},
            carried(table.io),
        )
