"""Changes of rows on their way to the files of a mutation table: of each key the last one counts (rules M3, M4)."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from calving.model.mutations import RowMutations
from calving.writing.identity import Identity

INSERT, UPDATE, DELETE = 0, 1, 2
"""Operations: the effect of a change on the row of its key."""

OPERATION, SOURCE, OFFSET = " operation", " source", " offset"
_MARKS = (pa.field(OPERATION, pa.int8()), pa.field(SOURCE, pa.int64()), pa.field(OFFSET, pa.int64()))


def change_schema(rows: pa.Schema) -> pa.Schema:
    """Of changes: those of rows, none of whose columns is required, and what they do, and where they came from."""
    return pa.schema([*(field.with_nullable(True) for field in rows), *_MARKS])


def marked(
    rows: pa.RecordBatch, schema: pa.Schema, operations: pa.Array, source: int, offsets: pa.Array
) -> pa.RecordBatch:
    """Rows as changes. ``rows`` may have only some of the columns, and of a struct only some of its fields."""
    columns = [
        _filled(rows.column(place), field.type)
        if (place := rows.schema.get_field_index(field.name)) >= 0
        else pa.nulls(rows.num_rows, field.type)
        for field in list(schema)[: -len(_MARKS)]
    ]
    sources = pa.repeat(pa.scalar(source, pa.int64()), rows.num_rows)
    return pa.RecordBatch.from_arrays([*columns, operations, sources, offsets], schema=schema)


def rows_of(changes: pa.RecordBatch) -> pa.RecordBatch:
    """The rows alone."""
    return changes.select(range(changes.num_columns - len(_MARKS)))


class Last:
    """Reduces the changes of a batch to the last one of each key."""

    def __init__(self, identity: Identity, mutations: RowMutations) -> None:
        self._identity, self._mutations = identity, mutations

    def of(self, changes: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array]:
        """The last change of each key, and for each whether what the table has of its key goes."""
        changes = self._in_order(changes)
        if self._mutations.inserts == "upsert":
            replaces = pa.repeat(pa.scalar(True), changes.num_rows)
        else:
            replaces = pc.not_equal(changes.column(OPERATION), INSERT)
        names = [f"key {i}" for i in range(len(self._identity.columns))]
        columns = [column.of(changes) for column in self._identity.columns]
        places = pa.arange(0, changes.num_rows)
        table = pa.table([*columns, places, replaces.cast(pa.int8())], [*names, "place", "replaces"])
        wanted = [("place", "max")] if self._mutations.inserts == "upsert" else [("place", "max"), ("replaces", "max")]
        # One thread: the groups come in the order of their first rows.
        last = table.group_by(names, use_threads=False).aggregate(wanted)
        last = last.combine_chunks()
        if last.num_rows == changes.num_rows:
            return changes, replaces
        found = last.column("place_max").combine_chunks()
        if self._mutations.inserts == "upsert":
            return changes.take(found), replaces.slice(0, len(found))
        return changes.take(found), last.column("replaces_max").combine_chunks().cast(pa.bool_())

    def _in_order(self, changes: pa.RecordBatch) -> pa.RecordBatch:
        """By order value, then as they stood in the topic. Mostly they are so already."""
        order, offsets = self._identity.order, changes.column(OFFSET)
        if order is None and len(changes.column(SOURCE).unique()) <= 1:
            ascends = pc.all(pc.greater(offsets.slice(1), offsets.slice(0, max(0, len(offsets) - 1)))).as_py()
            if ascends is not False:
                return changes
        columns = {"source": changes.column(SOURCE), "offset": offsets}
        if order is not None:
            # A change without an order value comes before all changes with one.
            values = order.of(changes)
            columns = {"is known": values.is_valid(), "value": values, **columns}
        keys = [(name, "ascending") for name in columns]
        return changes.take(pc.sort_indices(pa.table(columns), sort_keys=keys))


def _filled(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A struct with all fields of its type, those that it lacks null."""
    if column.type == kind or not pa.types.is_struct(kind):
        return column
    parts = []
    for field in kind:
        place = column.type.get_field_index(field.name)
        found = pa.nulls(len(column), field.type) if place < 0 else _filled(column.field(place), field.type)
        parts.append(found)
    return pa.StructArray.from_arrays(parts, fields=list(kind), mask=column.is_null())


def pruned(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A struct with only those fields that its type has."""
    if not pa.types.is_struct(kind) or column.type == kind:
        return column
    parts = [pruned(column.field(column.type.get_field_index(field.name)), field.type) for field in kind]
    return pa.StructArray.from_arrays(parts, fields=list(kind), mask=column.is_null())
