"""Changes of rows on their way to the files of a mutation table. Of each key, the last change counts (rules M3, M4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from calving.model.mutations import RowMutations
from calving.records.equal import are_last, numbered
from calving.records.positions import order_keys
from calving.writing.identity import Identity

INSERT, UPDATE, DELETE = 0, 1, 2
"""Operations: the effect of a change on the row of its key."""

OPERATION, SOURCE, OFFSET = " operation", " source", " offset"
_MARKS = (pa.field(OPERATION, pa.int8()), pa.field(SOURCE, pa.int64()), pa.field(OFFSET, pa.int64()))


def change_schema(rows: pa.Schema) -> pa.Schema:
    """The schema of changes: the columns of rows, all optional, and the operation, source and offset of each change."""
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


class LastChanges:
    """Reduces the changes of a batch to the last one of each key. If inserts append, the inserts of a key stay, except
    those before a change that replaces rows.
    """

    def __init__(self, identity: Identity, mutations: RowMutations) -> None:
        self._identity, self._appends, self._order_type = identity, mutations.inserts == "append", mutations.order_type

    def of(self, changes: Sequence[pa.RecordBatch]) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
        """The changes that stay; and for each of them whether it deletes the table's rows of its key."""
        parts = self._in_order(changes)
        if parts is None:
            whole = pa.concat_batches(changes)
            parts = [whole.take(self._order(whole))]
        is_last, replaces = self._last(parts)
        start = 0
        for part in parts:
            kept, own = is_last.slice(start, part.num_rows), replaces.slice(start, part.num_rows)
            start += part.num_rows
            # Parts without superseded changes are not copied.
            yield (part, own) if pc.all(kept, min_count=0).as_py() else (part.filter(kept), own.filter(kept))

    def _last(self, parts: Sequence[pa.RecordBatch]) -> tuple[pa.Array, pa.Array]:
        """For each change: whether it stays, and whether it is the one of its key that deletes rows."""
        columns = [_joined([column.of(part) for part in parts]) for column in self._identity.columns]
        numbers = numbered(columns)
        if not self._appends:
            is_last = are_last(numbers)
            return is_last, pa.repeat(pa.scalar(True), len(is_last))
        replacing = pc.indices_nonzero(pc.not_equal(_joined([part.column(OPERATION) for part in parts]), INSERT))
        keys = numbers.take(replacing)
        is_last = are_last(keys)
        places = replacing.filter(is_last).cast(pa.int64())
        last = places.take(pc.index_in(numbers, value_set=keys.filter(is_last)))
        own = pa.arange(0, len(numbers))
        return pc.fill_null(pc.greater_equal(own, last), True), pc.fill_null(pc.equal(own, last), False)

    def _in_order(self, changes: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch] | None:
        """The parts in the order of the topic, one after the other; None if single changes have to be sorted."""
        if self._identity.order is not None:
            return None
        runs = [_run(part) for part in changes if part.num_rows]
        if None in runs:
            return None
        order = sorted((run, place) for place, run in enumerate(runs) if run is not None)
        overlap = any(a[0] == b[0] and a[2] >= b[1] for (a, _), (b, _) in pairwise(order))
        parts = [part for part in changes if part.num_rows]
        return None if overlap else [parts[place] for _, place in order]

    def _order(self, changes: pa.RecordBatch) -> pa.Array:
        """The order of the changes: by order value if there is one, then by their place in the topic."""
        columns = {"source": changes.column(SOURCE), "offset": changes.column(OFFSET)}
        if self._identity.order is not None:
            columns = {"value": order_keys(self._identity.order.of(changes), self._order_type), **columns}
        keys = [(name, "ascending") for name in columns]
        return pc.sort_indices(pa.table(columns), sort_keys=keys)


def _run(changes: pa.RecordBatch) -> tuple[int, int, int] | None:
    """The source of the changes, and their first and last offset; None if they have several sources, or their offsets
    do not ascend.
    """
    sources, offsets = pc.min_max(changes.column(SOURCE)).as_py(), changes.column(OFFSET)
    ascends = pc.all(pc.greater(offsets.slice(1), offsets.slice(0, len(offsets) - 1)), min_count=0).as_py()
    if sources["min"] != sources["max"] or not ascends:
        return None
    return sources["min"], offsets[0].as_py(), offsets[-1].as_py()


def _joined(parts: Sequence[pa.Array]) -> pa.Array:
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


def _filled(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A struct with all fields of its type. Fields that the struct lacks are null."""
    if column.type == kind or not pa.types.is_struct(kind) or not isinstance(column, pa.StructArray):
        return column
    parts = []
    for field in kind:
        place = column.type.get_field_index(field.name)
        child = pa.nulls(len(column), field.type) if place < 0 else _filled(column.field(place), field.type)
        parts.append(child)
    return pa.StructArray.from_arrays(parts, fields=list(kind), mask=column.is_null())


def pruned(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A struct with only the fields of ``kind``."""
    if column.type == kind or not pa.types.is_struct(kind) or not isinstance(column, pa.StructArray):
        return column
    parts = [pruned(column.field(column.type.get_field_index(field.name)), field.type) for field in kind]
    return pa.StructArray.from_arrays(parts, fields=list(kind), mask=column.is_null())
