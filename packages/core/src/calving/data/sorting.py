"""Rows in a table's sort order."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortOrder

from calving.data.conversion.fields import table_schema
from calving.data.partitioning import column_transform
from calving.data.spec import TableSpec


class Sorting:
    """Sorts by one order of a table."""

    def __init__(self, schema: Schema, order: SortOrder) -> None:
        self.order_id = order.order_id
        self.columns = [field.source_id for field in order.fields]
        self._keys = [(field, column_transform(schema, field)) for field in order.fields]

    def sort(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows in order; equal ones stay as they were."""
        return rows.take(self.indices(self.keys(rows)))

    def keys(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """What decides of each row."""
        columns: dict[str, pa.Array] = {}
        for i, (_, transform) in enumerate(self._keys):
            column = transform(rows)
            columns |= {f"{i} is valid": column.is_valid(), str(i): column}
        return pa.RecordBatch.from_pydict(columns)

    def indices(self, keys: pa.RecordBatch) -> pa.Array:
        """Where to find the rows with these keys, in order; equal ones stay as they were."""
        order = []
        for i, (field, _) in enumerate(self._keys):
            direction = "ascending" if field.direction == SortDirection.ASC else "descending"
            nulls = "ascending" if field.null_order == NullOrder.NULLS_FIRST else "descending"
            order += [(f"{i} is valid", nulls), (str(i), direction)]
        return pc.sort_indices(keys, sort_keys=order)


def sorting(table: TableSpec) -> Sorting | None:
    """None for a table without a sort order."""
    order = SortOrder.model_validate_json(table.sort_order_json) if table.sort_order_json else None
    if order is None or order.is_unsorted:
        return None
    return Sorting(table_schema(table.schema_json), order)
