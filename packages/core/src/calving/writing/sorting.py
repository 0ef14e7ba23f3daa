"""Rows in a table's sort order."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortOrder

from calving.model.tables import TableSpec
from calving.records.fields import table_schema
from calving.writing.keys import key


class Sorting:
    """Sorts by one order of a table."""

    def __init__(self, schema: Schema, order: SortOrder) -> None:
        self.order_id = order.order_id
        self.columns = [field.source_id for field in order.fields]
        self._fields = order.fields
        self._keys = [key(schema, field.source_id, field.transform) for field in order.fields]

    def sort(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows in order. Rows with equal keys keep their order."""
        return rows.take(self.indices(self.keys(rows)))

    def keys(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The sort key of each row.

        :raises BadRecordError: a row has a value that has no sort key.
        """
        columns: dict[str, pa.Array] = {}
        for i, make in enumerate(self._keys):
            column = make(rows)
            columns |= {f"{i} is valid": column.is_valid(), str(i): column}
        return pa.RecordBatch.from_pydict(columns)

    def indices(self, keys: pa.RecordBatch) -> pa.Array:
        """The indices of these keys in sort order. Equal keys keep their order."""
        order = []
        for i, field in enumerate(self._fields):
            direction = "ascending" if field.direction == SortDirection.ASC else "descending"
            nulls = "ascending" if field.null_order == NullOrder.NULLS_FIRST else "descending"
            order += [(f"{i} is valid", nulls), (str(i), direction)]
        return pc.sort_indices(keys, sort_keys=order)


def sorting(table: TableSpec) -> Sorting | None:
    """The sorting of a table; None for a table without a sort order.

    :raises ConfigError: the order does not fit the table's columns.
    """
    order = SortOrder.model_validate_json(table.sort_order_json) if table.sort_order_json else None
    if order is None or order.is_unsorted:
        return None
    return Sorting(table_schema(table.schema_json), order)
