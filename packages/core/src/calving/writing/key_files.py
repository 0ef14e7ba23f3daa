"""Key files: they name rows to delete by the values of their id columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from uuid import UUID

import pyarrow as pa
from pyiceberg.partitioning import PartitionSpec

from calving.model.files import DELETES, EVERY_ROW, KEYS, DataFile, FileContent
from calving.model.record_path import Limits
from calving.model.tables import TableSpec
from calving.records.fields import arrow_schema, table_schema
from calving.writing.changes import Identity, pruned
from calving.writing.table import TableWriter

_BLOOM = "write.parquet.bloom-filter-"
_METRICS = "write.metadata.metrics."


class KeyWriter:
    """Writes the keys of rows to delete, with their order values, into separate Parquet files."""

    def __init__(
        self, table: TableSpec, identity: Identity, task: int, limits: Limits, writer: UUID | None = None
    ) -> None:
        schema = identity.schema(table_schema(table.schema_json))
        spec_id = PartitionSpec.model_validate_json(table.spec_json).spec_id
        self._ids = identity.ids
        self._schema = arrow_schema(schema)
        self._task, self._limits = task, limits
        self._table = replace(
            table,
            schema_json=schema.model_dump_json(),
            # A key file has no partition, because the row of a key may be in any partition.
            spec_json=PartitionSpec(spec_id=spec_id).model_dump_json(),
            properties=key_file_properties(table.properties),
            sort_order_json=None,
            moved_to_json=None,
        )
        is_equality = table.mutations is not None and table.mutations.row_deletes == "equality"
        self._writer = TableWriter(self._table, task, limits, writer, DELETES if is_equality else KEYS)

    @property
    def buffered_bytes(self) -> int:
        """About how many bytes are held in memory."""
        return self._writer.buffered_bytes

    def flush_largest(self) -> None:
        """Flush a part of the buffered rows."""
        self._writer.flush_largest()

    def write(self, changes: pa.RecordBatch) -> None:
        """Write the keys of these changes."""
        if changes.num_rows:
            columns = [changes.column(field.name) for field in self._schema]
            kinds = self._schema.types
            fitting = [c if c.type == kind else pruned(c, kind) for c, kind in zip(columns, kinds, strict=True)]
            self._writer.write(pa.RecordBatch.from_arrays(fitting, schema=self._schema))

    def of_every_row(self) -> DataFile:
        """A file that deletes all rows of the table. It has a row without a key, because no file is empty."""
        writer = TableWriter(self._table, self._task, self._limits, kind=KEYS)
        writer.write(
            pa.RecordBatch.from_arrays([pa.nulls(1, kind) for kind in self._schema.types], schema=self._schema)
        )
        (file,) = writer.close()
        return DataFile(
            file_path=file.file_path,
            file_format=file.file_format,
            record_count=file.record_count,
            file_size_in_bytes=file.file_size_in_bytes,
            content=FileContent.EQUALITY_DELETES,
            spec_id=file.spec_id,
            equality_ids=EVERY_ROW,
        )

    def close(self) -> list[DataFile]:
        """Finish the files."""
        return [
            replace(file, content=FileContent.EQUALITY_DELETES, equality_ids=self._ids, sort_order_id=None)
            for file in self._writer.close()
        ]

    def discard(self) -> None:
        """Give up."""
        self._writer.discard()


def key_file_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """A table's properties for key files. These are read whole, so they need no Bloom filters. Each of their columns is
    counted: by the counts a coordinator knows which columns a key file has.
    """
    counted = {
        name: "counts" if name.startswith(_METRICS) and value.lower() == "none" else value
        for name, value in properties.items()
        if not name.startswith(_BLOOM)
    }
    return {f"{_METRICS}default": "truncate(16)", **counted, "write.format.default": "parquet"}
