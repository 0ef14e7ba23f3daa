"""The column that says from which source a row of a mutation table is: a truncate event deletes those of its own."""

from __future__ import annotations

from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, FloatType

from calving.errors import ConfigError
from calving.model.tables import RowMutations
from calving.writing.changes import ColumnPath, column_path


def truncate_column(table: str, schema: Schema, mutations: RowMutations) -> ColumnPath | None:
    """The column whose value a truncate event names; None if it deletes all rows.

    :raises ConfigError: the table has no such column, or it holds no single value.
    """
    if mutations.truncate_field is None:
        return None
    column = column_path(table, schema, mutations.truncate_field, "truncate-field")
    kind = schema.find_type(column.field_id)
    if isinstance(kind, FloatType | DoubleType):
        raise ConfigError(f"table {table}: truncate-field {column.name} is {kind}: fractions do not identify a source")
    return column
