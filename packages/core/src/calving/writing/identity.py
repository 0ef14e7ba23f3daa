"""The columns that identify a row of a mutation table, and the column that orders its changes (rules M6, M8)."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema, prune_columns
from pyiceberg.types import DoubleType, FloatType, NestedField, PrimitiveType, StructType

from calving.errors import ConfigError
from calving.model.mutations import RowMutations
from calving.model.tables import TableSpec
from calving.records.fields import table_schema
from calving.records.foreign import takes_values


@dataclass(frozen=True, slots=True)
class ColumnPath:
    """A column, possibly within structs: its dotted name, its id, and its index in the row and in each struct."""

    name: str
    field_id: int
    path: tuple[int, ...]

    def of(self, rows: pa.RecordBatch) -> pa.Array:
        """The column's values in rows of the table's schema. A value is null if a struct around it is null."""
        first, *inner = self.path
        column = rows.column(first)
        for index in inner:
            column = pc.struct_field(column, index)
        return column.storage if isinstance(column, pa.ExtensionArray) else column


@dataclass(frozen=True, slots=True)
class Identity:
    """The id columns of a table, and its order column, if it has one."""

    columns: tuple[ColumnPath, ...]
    order: ColumnPath | None

    @property
    def needed(self) -> frozenset[int]:
        """The ids of the columns in which every change needs a value."""
        return frozenset(column.field_id for column in self.compared)

    @property
    def compared(self) -> tuple[ColumnPath, ...]:
        """The id columns, and the order column."""
        return self.columns if self.order is None else (*self.columns, self.order)

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids of the id columns."""
        return tuple(column.field_id for column in self.columns)

    def within(self, schema: Schema) -> Identity:
        """The same columns in a schema that may lack other columns."""

        def there(column: ColumnPath) -> ColumnPath:
            return ColumnPath(column.name, column.field_id, _find(schema.fields, column.field_id) or ())

        return Identity(tuple(map(there, self.columns)), None if self.order is None else there(self.order))

    def schema(self, whole: Schema) -> Schema:
        """The schema of key files, in which no column is required."""
        return optional(prune_columns(whole, set(self.needed)), self.needed)


def identity_of(table: TableSpec) -> Identity:
    """The identity of a mutation table's rows.

    :raises ConfigError: the table cannot be changed by its id columns.
    """
    if table.mutations is None:
        raise TypeError(f"table {table.name} is appended to")
    return identity(table.name, table_schema(table.schema_json), table.id_columns, table.mutations)


def identity(table: str, schema: Schema, id_columns: Sequence[str], mutations: RowMutations) -> Identity:
    """The identity of rows. ``id_columns`` are the names in the settings; without names, the table's identifier fields
    count.

    :raises ConfigError: the table cannot be changed by these columns.
    """
    names = id_columns or [schema.find_column_name(each) or "" for each in sorted(schema.identifier_field_ids)]
    if not names:
        raise no_id_columns(table)
    places = [_column_path(table, schema, name, "id column") for name in names]
    columns = tuple({place.field_id: place for place in places}.values())  # a column that is named twice counts once
    for column in columns:
        kind = schema.find_type(column.field_id)
        if isinstance(kind, FloatType | DoubleType):
            raise ConfigError(f"table {table}: id column {column.name} is {kind}: fractions do not identify a row")
    order = None if mutations.order_field is None else _column_path(table, schema, mutations.order_field, "order-field")
    return Identity(columns, order)


def no_id_columns(table: str) -> ConfigError:
    """The error for a mutation table without id columns."""
    return ConfigError(
        f"table {table} has no id columns: set iceberg.table.{table}.id-columns or iceberg.tables.default-id-columns"
    )


def optional(schema: Schema, wanted: Set[int]) -> Schema:
    """The schema, with the ``wanted`` columns and the structs around them made optional."""

    def relaxed(fields: Sequence[NestedField]) -> list[NestedField]:
        optionals = []
        for field in fields:
            kind = field.field_type
            if isinstance(kind, StructType) and any(_find(kind.fields, each) for each in wanted):
                kind = StructType(*relaxed(kind.fields))
            changed = kind is not field.field_type or field.field_id in wanted
            optionals.append(field.model_copy(update={"field_type": kind, "required": False}) if changed else field)
        return optionals

    return Schema(*relaxed(schema.fields), schema_id=schema.schema_id)


def _column_path(table: str, schema: Schema, name: str, what: str) -> ColumnPath:
    try:
        field = schema.find_field(name)
    except ValueError:
        raise ConfigError(
            f"table {table} has no column {name}, which is its {what}: correct that key, or add the column (if the sink"
            f" creates the table, declare it in iceberg.table.{table}.columns)"
        ) from None
    if not isinstance(field.field_type, PrimitiveType):
        raise ConfigError(f"table {table}: {what} {name} is {field.field_type}: only a single value can be compared")
    if not takes_values(field.field_type):
        raise ConfigError(f"table {table}: {what} {name} is {field.field_type}, which cannot be written")
    path = _find(schema.fields, field.field_id)
    if path is None:
        raise ConfigError(f"table {table}: {what} {name} is inside of a list or map, where a row has many values")
    return ColumnPath(name, field.field_id, path)


def _find(fields: Sequence[NestedField], field_id: int) -> tuple[int, ...] | None:
    for place, field in enumerate(fields):
        if field.field_id == field_id:
            return (place,)
        if isinstance(field.field_type, StructType):
            inner = _find(field.field_type.fields, field_id)
            if inner is not None:
                return (place, *inner)
    return None
