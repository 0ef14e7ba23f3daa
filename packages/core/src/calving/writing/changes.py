"""Rows that records change: the columns that identify a row of a mutation table, the column that orders its changes
(rules M6, M8), and the changes on their way to the table's files. Of each key, the last change counts (rules M3, M4).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema, prune_columns
from pyiceberg.types import DoubleType, FloatType, NestedField, PrimitiveType, StructType

from calving.errors import ConfigError
from calving.model.tables import BY_KEY, RowMutations, TableSpec
from calving.records.fields import table_schema
from calving.records.foreign import is_compared
from calving.records.positions import order_keys
from calving.writing.key_runs import are_last, numbered


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
            return ColumnPath(column.name, column.field_id, find_path(schema.fields, column.field_id) or ())

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
        raise no_id_columns(table, mutations)
    places = [column_path(table, schema, name, "id column") for name in names]
    columns = tuple({place.field_id: place for place in places}.values())  # a column that is named twice counts once
    for column in columns:
        kind = schema.find_type(column.field_id)
        if isinstance(kind, FloatType | DoubleType):
            raise ConfigError(f"table {table}: id column {column.name} is {kind}: fractions do not identify a row")
    order = None if mutations.order_field is None else column_path(table, schema, mutations.order_field, "order-field")
    return Identity(columns, order)


def no_id_columns(table: str, mutations: RowMutations) -> ConfigError:
    """The error for a mutation table without id columns."""
    if mutations.by_key:
        return ConfigError(
            f"table {table} has no identifier fields, which id-columns = {BY_KEY} needs of a table that exists: set"
            f" them (in Spark, ALTER TABLE {table} SET IDENTIFIER FIELDS ...), or set iceberg.table.{table}.id-columns;"
            " with on-missing-key = append rows are only added"
        )
    return ConfigError(
        f"table {table} has no id columns: set iceberg.table.{table}.id-columns or iceberg.tables.default-id-columns"
    )


def optional(schema: Schema, wanted: Set[int]) -> Schema:
    """The schema, with the ``wanted`` columns and the structs around them made optional."""

    def relaxed(fields: Sequence[NestedField]) -> list[NestedField]:
        optionals = []
        for field in fields:
            kind = field.field_type
            if isinstance(kind, StructType) and any(find_path(kind.fields, each) for each in wanted):
                kind = StructType(*relaxed(kind.fields))
            changed = kind is not field.field_type or field.field_id in wanted
            optionals.append(field.model_copy(update={"field_type": kind, "required": False}) if changed else field)
        return optionals

    return Schema(*relaxed(schema.fields), schema_id=schema.schema_id)


def row_schema(table: TableSpec) -> Schema:
    """The schema into which a record is converted."""
    schema = table_schema(table.schema_json)
    if table.mutations is None:
        return schema
    own = {*map(str.lower, table.mutations.own_columns)} if table.mutations.has_versions else set()
    filled_later = {each.field_id for each in schema.fields if each.name.lower() in own}
    # Whether these columns have values is checked when the change is made, so that no record makes them optional.
    return optional(schema, identity_of(table).needed | filled_later)


def column_path(table: str, schema: Schema, name: str, what: str) -> ColumnPath:
    """The column of this name, whose values are compared.

    :raises ConfigError: the table has no such column, or a row has several values there, or none that compare.
    """
    try:
        field = schema.find_field(name)
    except ValueError:
        raise ConfigError(
            f"table {table} has no column {name}, which is its {what}: correct that key, or add the column (if the sink"
            f" creates the table, declare it in iceberg.table.{table}.columns)"
        ) from None
    if not isinstance(field.field_type, PrimitiveType):
        raise ConfigError(f"table {table}: {what} {name} is {field.field_type}: only a single value can be compared")
    if not is_compared(field.field_type):
        raise ConfigError(f"table {table}: {what} {name} is {field.field_type}, which cannot be compared")
    path = find_path(schema.fields, field.field_id)
    if path is None:
        raise ConfigError(f"table {table}: {what} {name} is inside of a list or map, where a row has many values")
    return ColumnPath(name, field.field_id, path)


def find_path(fields: Sequence[NestedField], field_id: int) -> tuple[int, ...] | None:
    """The index of a column, and its index in each struct around it; None if there is no such column, or it is inside
    of a list or map.
    """
    for place, field in enumerate(fields):
        if field.field_id == field_id:
            return (place,)
        if isinstance(field.field_type, StructType):
            inner = find_path(field.field_type.fields, field_id)
            if inner is not None:
                return (place, *inner)
    return None


INSERT, UPDATE, DELETE = 0, 1, 2
"""Operations: the effect of a change on the row of its key."""
TRUNCATE = 3
"""The operation of a truncate event: the source table was emptied. It concerns all rows, and has no key."""

OPERATION, SOURCE, OFFSET, KEPT = " operation", " source", " offset", " kept"
"""Marks of a change. ``KEPT``: the columns that a partial row lacks; null for a whole row (M15)."""
_MARKS = (
    pa.field(OPERATION, pa.int8()),
    pa.field(SOURCE, pa.int64()),
    pa.field(OFFSET, pa.int64()),
    pa.field(KEPT, pa.string()),
)


def is_operation(operations: pa.Array, operation: int) -> pa.Array:
    """Whether each operation is this one. Compared as they are stored: a number of Python's would widen them all."""
    return pc.equal(operations, pa.scalar(operation, pa.int8()))


def change_schema(rows: pa.Schema) -> pa.Schema:
    """The schema of changes: the columns of rows, all optional, and the marks of each change."""
    return pa.schema([*(field.with_nullable(True) for field in rows), *_MARKS])


def marked(
    rows: pa.RecordBatch,
    schema: pa.Schema,
    operations: pa.Array,
    source: int,
    offsets: pa.Array,
    kept: pa.Array,
) -> pa.RecordBatch:
    """Rows as changes. ``rows`` may have only some of the columns, and of a struct only some of its fields. ``kept``:
    the text for what each row lacks; null for whole rows.
    """
    columns = [
        filled(rows.column(place), field.type)
        if (place := rows.schema.get_field_index(field.name)) >= 0
        else pa.nulls(rows.num_rows, field.type)
        for field in list(schema)[: -len(_MARKS)]
    ]
    sources = pa.repeat(pa.scalar(source, pa.int64()), rows.num_rows)
    return pa.RecordBatch.from_arrays([*columns, operations, sources, offsets, kept], schema=schema)


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
        replacing = pc.indices_nonzero(
            pc.invert(is_operation(_joined([part.column(OPERATION) for part in parts]), INSERT))
        )
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
        runs = [run_of(part) for part in changes if part.num_rows]
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


def run_of(changes: pa.RecordBatch) -> tuple[int, int, int] | None:
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


def filled(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A struct with all fields of its type. Fields that the struct lacks are null."""
    if column.type == kind or not pa.types.is_struct(kind) or not isinstance(column, pa.StructArray):
        return column
    parts = []
    for field in kind:
        place = column.type.get_field_index(field.name)
        child = pa.nulls(len(column), field.type) if place < 0 else filled(column.field(place), field.type)
        parts.append(child)
    return pa.StructArray.from_arrays(parts, fields=list(kind), mask=column.is_null())


def pruned(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A struct with only the fields of ``kind``."""
    if column.type == kind or not pa.types.is_struct(kind) or not isinstance(column, pa.StructArray):
        return column
    parts = [pruned(column.field(column.type.get_field_index(field.name)), field.type) for field in kind]
    return pa.StructArray.from_arrays(parts, fields=list(kind), mask=column.is_null())
