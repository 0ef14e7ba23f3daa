"""Key files: they name rows to delete by the values of their id columns. Those with partial rows also say what becomes
of these rows, and those of a table that keeps versions when each change counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import UUID

import pyarrow as pa
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema, prune_columns
from pyiceberg.types import BooleanType, NestedField, StringType

from calving.model.files import CHANGED_AT, CHANGES, DELETES, EVERY_ROW, KEYS, PARTIAL, DataFile, FileContent
from calving.model.record_path import Limits
from calving.model.tables import TableSpec
from calving.records.arrays import conform
from calving.records.fields import arrow_schema, table_schema
from calving.writing.changes import DELETE, KEPT, OPERATION, Identity, is_operation, optional, pruned, rows_of
from calving.writing.table import TableWriter
from calving.writing.versions import VersionPlaces

_BLOOM = "write.parquet.bloom-filter-"
_METRICS = "write.metadata.metrics."
_DELETES, _AT = " deletes", " at"
"""The columns of a change in a key file of a table that keeps versions."""


class KeyWriter:
    """Writes the keys of rows to delete, with their order values, into separate Parquet files."""

    def __init__(
        self, table: TableSpec, identity: Identity, task: int, limits: Limits, writer: UUID | None = None
    ) -> None:
        schema = identity.schema(table_schema(table.schema_json))
        self._ids = identity.ids
        self._schema = arrow_schema(schema)
        self._task, self._limits = task, limits
        self._table = _key_table(table, schema)
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
        return _uncounted(file, EVERY_ROW)

    def close(self) -> list[DataFile]:
        """Finish the files."""
        return [
            replace(file, content=FileContent.EQUALITY_DELETES, equality_ids=self._ids, sort_order_id=None)
            for file in self._writer.close()
        ]

    def discard(self) -> None:
        """Give up."""
        self._writer.discard()


class _OwnFiles:
    """Writes key files that only the commit of this version reads, with other columns than the table."""

    def __init__(self, schema: Schema, ids: tuple[int, ...], writer: TableWriter) -> None:
        """``ids``: the equality ids of the files."""
        self._ids, self._schema, self._writer = ids, arrow_schema(schema), writer

    @property
    def buffered_bytes(self) -> int:
        """About how many bytes are held in memory."""
        return self._writer.buffered_bytes

    def flush_largest(self) -> None:
        """Flush a part of the buffered rows."""
        self._writer.flush_largest()

    def _write(self, columns: Sequence[pa.Array]) -> None:
        fitting = [conform(column, kind) for column, kind in zip(columns, self._schema.types, strict=True)]
        self._writer.write(pa.RecordBatch.from_arrays(fitting, schema=self._schema))

    def close(self) -> list[DataFile]:
        """Finish the files."""
        return [_uncounted(file, self._ids) for file in self._writer.close()]

    def discard(self) -> None:
        """Give up."""
        self._writer.discard()


class PartialRowWriter(_OwnFiles):
    """Writes partial rows into separate Parquet files, each row with the ids of the columns that it lacks."""

    def __init__(self, table: TableSpec, identity: Identity, task: int, limits: Limits) -> None:
        schema = partial_row_schema(table_schema(table.schema_json))
        writer = TableWriter(_key_table(table, schema), task, limits, kind=KEYS)
        super().__init__(schema, (*identity.ids, PARTIAL), writer)

    def write(self, changes: pa.RecordBatch) -> None:
        """Write these changes."""
        if changes.num_rows:
            self._write([*rows_of(changes).columns, changes.column(KEPT)])


class VersionKeyWriter(_OwnFiles):
    """Writes what the commit has to know of the changes of a table that keeps versions, into separate Parquet files:
    their keys, whether they delete, and when they count.
    """

    def __init__(
        self,
        table: TableSpec,
        identity: Identity,
        places: VersionPlaces,
        task: int,
        limits: Limits,
        writer: UUID | None = None,
    ) -> None:
        """``writer``: that of the data files, for the names of the files."""
        whole, ids = table_schema(table.schema_json), identity.ids
        schema = version_key_schema(whole, ids, whole.fields[places.begin])
        files = TableWriter(_key_table(table, schema), task, limits, writer, kind=KEYS)
        super().__init__(schema, (*ids, CHANGES), files)
        self._places = places
        self._compared = identity.needed

    def write(self, changes: pa.RecordBatch) -> None:
        """Write what these changes are."""
        if changes.num_rows:
            names = self._schema.names[:-2]
            ids = [pruned(changes.column(name), self._schema.field(name).type) for name in names]
            deletes = is_operation(changes.column(OPERATION), DELETE)
            self._write([*ids, deletes, changes.column(self._places.begin)])

    def close(self) -> list[DataFile]:
        """Finish the files. Their counts tell a coordinator by which column they are ordered."""
        return [
            replace(file, value_counts=dict.fromkeys(self._compared, file.record_count)) for file in super().close()
        ]


def version_key_schema(schema: Schema, ids: Sequence[int], begin: NestedField) -> Schema:
    """The schema of key files of a table that keeps versions. ``begin``: the column that says when one begins."""
    keys = optional(prune_columns(schema, {*ids}), frozenset(ids))
    deletes = NestedField(CHANGES, _DELETES, BooleanType(), required=False)
    return Schema(*keys.fields, deletes, NestedField(CHANGED_AT, _AT, begin.field_type, required=False))


def partial_row_schema(schema: Schema) -> Schema:
    """The schema of files with partial rows of a table with this schema."""
    every = optional(schema, frozenset(schema.field_ids))
    return Schema(*every.fields, NestedField(PARTIAL, KEPT, StringType(), required=False))


def _key_table(table: TableSpec, schema: Schema) -> TableSpec:
    """The table as key files with this schema are written."""
    spec_id = PartitionSpec.model_validate_json(table.spec_json).spec_id
    return replace(
        table,
        schema_json=schema.model_dump_json(),
        # A key file has no partition, because the row of a key may be in any partition.
        spec_json=PartitionSpec(spec_id=spec_id).model_dump_json(),
        properties=key_file_properties(table.properties),
        sort_order_json=None,
        moved_to_json=None,
    )


def _uncounted(file: DataFile, equality_ids: tuple[int, ...]) -> DataFile:
    """A key file without the counts and bounds of its columns."""
    return DataFile(
        file_path=file.file_path,
        file_format=file.file_format,
        record_count=file.record_count,
        file_size_in_bytes=file.file_size_in_bytes,
        content=FileContent.EQUALITY_DELETES,
        spec_id=file.spec_id,
        equality_ids=equality_ids,
    )


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
