"""How the rows of a table become files: by partition, in the table's sort order and format, with statistics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortOrder
from pyiceberg.types import ListType, MapType, NestedField, StructType

from calving.errors import BadRecordError, ConfigError
from calving.model.tables import TableSpec
from calving.records.arrays import children_of, entries, items_of, joined
from calving.records.fields import arrow_schema, table_schema
from calving.records.foreign import takes_values, writable
from calving.writing.changes import pruned
from calving.writing.formats.interface import FileFormat, format_of
from calving.writing.formats.metrics import Metrics, measured
from calving.writing.keys import key
from calving.writing.partitioning import Numbers, Partitioner, partitioner
from calving.writing.properties import WriteProperties


class Sorting:
    """Sorts by one order of a table."""

    def __init__(self, schema: Schema, order: SortOrder) -> None:
        self.order_id = order.order_id
        self.columns = [field.source_id for field in order.fields]
        self._keys = [key(schema, field.source_id, field.transform) for field in order.fields]
        self.sort_keys = [*_sort_keys(order)]

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
        return pc.sort_indices(keys, sort_keys=self.sort_keys)


def _sort_keys(order: SortOrder) -> Iterator[tuple[str, str]]:
    """The columns of ``Sorting.keys`` with their directions."""
    for i, field in enumerate(order.fields):
        yield f"{i} is valid", "ascending" if field.null_order == NullOrder.NULLS_FIRST else "descending"
        yield str(i), "ascending" if field.direction == SortDirection.ASC else "descending"


def sorting(table: TableSpec) -> Sorting | None:
    """The sorting of a table; None for a table without a sort order.

    :raises ConfigError: the order does not fit the table's columns.
    """
    order = SortOrder.model_validate_json(table.sort_order_json) if table.sort_order_json else None
    if order is None or order.is_unsorted:
        return None
    return Sorting(table_schema(table.schema_json), order)


def _moved(table: TableSpec) -> Partitioner | None:
    """The partitions into which landed rows are moved; None if rows are not landed."""
    return None if table.moved_to_json is None else partitioner(replace(table, spec_json=table.moved_to_json))


Placed = tuple[pa.RecordBatch, Numbers]
"""Rows as files hold them, with their partitions."""


class Layout:
    """The layout of one table's files.

    :raises ConfigError: the table's schema, spec, order or properties do not allow writing it.
    """

    def __init__(self, table: TableSpec) -> None:
        whole = table_schema(table.schema_json)
        self.properties = WriteProperties.of(table.properties, table.name)
        try:
            format_class = format_of(self.properties)
            schema = writable(whole, variants=format_class.holds_variants)
            if not schema.fields:
                raise ConfigError("it has no columns: add one to it")
            self._whole = None if schema is whole else whole
            if self._whole is not None:
                table = replace(table, schema_json=schema.model_dump_json())
            self.partitioner = partitioner(table)
            self._moved = _moved(table)
            order = sorting(table)
            self.format = format_class(schema, self.properties)
        except ConfigError as error:
            raise ConfigError(f"table {table.name}: {error}") from error
        self.order = order if self._moved is None else None
        """The order of the rows in a file. Landed rows are sorted later."""
        self._sorting = None if table.has_sorted_rows else order
        """The order in which each row needs a place."""
        self.sorts = self._sorting if self._moved is None else None
        """The order into which rows are brought before they are written."""
        self._schema = arrow_schema(schema)
        sources = self._moved.sources if self._moved is not None else ()  # readers find landed rows by their bounds
        self._measured = measured(schema, self.properties, (*(order.columns if order else ()), *sources))

    @property
    def refuses(self) -> bool:
        """Whether ``place`` may refuse rows whose values fit their columns. Further columns do not change that."""
        kind = type(self.format)
        checks = (kind.check, kind.check_compared) != (FileFormat.check, FileFormat.check_compared)
        parts = (self._moved, self._sorting)
        is_divided = self.partitioner.only is None or any(part is not None for part in parts)
        return is_divided or checks or self._whole is not None

    def place(self, rows: pa.RecordBatch, longest: int | None = None) -> Placed:
        """The rows with their partitions. After this check no known cause can make writing fail because of a single
        value. ``longest``: the most bytes of a partition value; None: any number.

        :raises BadRecordError: a row has no partition, or a longer one, no place in the sort order, or a value that
            files cannot hold.
        """
        if self._whole is not None:
            rows = _of_files(rows, self._whole, self._schema, type(self.format))
        rows = _checked(rows, self._schema)
        self.format.check(rows)
        if self._sorting is not None:
            self._sorting.keys(rows)
        if self._moved is not None:
            self._moved.check(rows, longest)
        only = self.partitioner.only
        return rows, self.partitioner.numbers(rows, longest) if only is None else only

    def path(self, number: int) -> str:
        """The path of the partition with this number."""
        return self.partitioner.partition(number).path

    def metrics(self) -> Metrics:
        """Statistics of a new file."""
        return Metrics(self._measured, self.format.measures_up_to)

    def arrange(self, rows: pa.Table) -> pa.Table:
        """Rows of one file, in the table's order if it has one."""
        batches = rows.to_batches() if self.sorts is None else [self.sorts.sort(joined(rows))]
        # Arrow's ``take`` loses the required flags inside maps and lists.
        return pa.Table.from_batches([_checked(batch, self._schema) for batch in batches], self._schema)

    def trial(self, rows: pa.RecordBatch) -> None:
        """Write rows into a file in memory, which is thrown away, with all steps of a real file.

        :raises Exception: whatever makes a step fail.
        """
        self._try(self.place(rows)[0])

    def _try(self, rows: pa.RecordBatch) -> None:
        """Write placed rows into a file in memory, which is thrown away."""
        table = self.arrange(pa.Table.from_batches([rows]))
        metrics = self.metrics()
        writer = self.format.open(BytesIO())
        try:
            writer.write(table)
            metrics.add(table)
        finally:
            metrics.end(writer.close())


def _of_files(rows: pa.RecordBatch, whole: Schema, schema: pa.Schema, format_class: type[FileFormat]) -> pa.RecordBatch:
    """The rows without columns that take no values, which files do not have.

    :raises BadRecordError: one of these columns has a value, such as an empty list.
    """
    for column, field in zip(rows.columns, whole.fields, strict=True):
        _check_empty(column, field, field.name, format_class)
    return pa.RecordBatch.from_arrays([pruned(rows.column(each.name), each.type) for each in schema], schema=schema)


def _check_empty(column: pa.Array, field: NestedField, path: str, format_class: type[FileFormat]) -> None:
    kind = field.field_type
    if not takes_values(kind, variants=format_class.holds_variants):
        if column.null_count < len(column):
            into = f" to {format_class.name} files" if takes_values(kind) else ""
            raise BadRecordError(f"column '{path}': columns of type {kind} cannot be written{into}")
    elif isinstance(column, pa.StructArray) and isinstance(kind, StructType):
        for child, inner in zip(children_of(column), kind.fields, strict=True):
            _check_empty(child, inner, f"{path}.{inner.name}", format_class)
    elif isinstance(column, pa.MapArray) and isinstance(kind, MapType):
        _check_empty(entries(column)[1], kind.value_field, f"{path}.value", format_class)
    elif isinstance(column, pa.ListArray) and isinstance(kind, ListType):
        _check_empty(items_of(column), kind.element_field, f"{path}.element", format_class)


def _checked(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows with exactly the types of the schema.

    Arrow compares some types as equal although only one of them allows nulls inside. A Parquet file that is written
    with the wrong type cannot be read. So the fields are compared one by one.

    :raises BadRecordError: a required field has no value.
    """
    columns = [_checked_column(column, field) for column, field in zip(rows.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _checked_column(column: pa.Array, field: pa.Field) -> pa.Array:
    _check_required(column, field, 0, field.name)
    return column if _keeps(column, field.type) else _rebuilt(column, field)


def _check_required(column: pa.Array, field: pa.Field, above: int, path: str) -> None:
    """``above``: how many of the column's nulls are nulls of the struct around it."""
    if not field.nullable and column.null_count > above:
        raise BadRecordError(f"column '{path}' is required, and a record has no value for it")
    if _has_required(field.type):
        for inner, inner_field, hidden in _inside(column, field.type):
            _check_required(inner, inner_field, hidden, f"{path}.{inner_field.name}")


def _inside(column: pa.Array, kind: pa.DataType) -> Iterator[tuple[pa.Array, pa.Field, int]]:
    if pa.types.is_struct(kind) and isinstance(column, pa.StructArray):
        for child, field in zip(children_of(column), kind.fields, strict=True):
            yield child, field, column.null_count
    elif pa.types.is_map(kind) and isinstance(column, pa.MapArray):
        keys, values = entries(column)
        yield keys, kind.key_field, 0
        yield values, kind.item_field, 0
    elif pa.types.is_list(kind) and isinstance(column, pa.ListArray):
        yield items_of(column), kind.value_field, 0


def _children(kind: pa.DataType) -> list[pa.Field]:
    if pa.types.is_struct(kind):
        return list(kind.fields)
    if pa.types.is_map(kind):
        return [kind.key_field, kind.item_field]
    return [kind.value_field] if pa.types.is_list(kind) else []


def _has_required(kind: pa.DataType) -> bool:
    return any(not field.nullable or _has_required(field.type) for field in _children(kind))


def _parts(column: pa.Array) -> list[pa.Array]:
    if isinstance(column, pa.StructArray):
        return [column.field(i) for i in range(column.type.num_fields)]
    if isinstance(column, pa.MapArray):
        return [column.keys, column.items]
    return [column.values] if isinstance(column, pa.ListArray) else []


def _keeps(column: pa.Array, kind: pa.DataType) -> bool:
    """Whether all inner fields are as nullable as in ``kind``, and only nullable fields have nulls."""
    if column.type != kind:
        return False
    children = zip(_parts(column), _children(column.type), _children(kind), strict=True)
    return all(
        own.nullable == field.nullable and (field.nullable or not part.null_count) and _keeps(part, field.type)
        for part, own, field in children
    )


def _rebuilt(column: pa.Array, field: pa.Field) -> pa.Array:
    """The column with exactly the field's type. If a required field is null, a struct around it is null, too; so the
    value in its place is never read.
    """
    kind = field.type
    parts = [_rebuilt(part, inner) for part, inner in zip(_parts(column), _children(kind), strict=True)]
    if pa.types.is_map(kind):
        parts = [pa.StructArray.from_arrays(parts, fields=_children(kind))]
    nullable = field.nullable and column.null_count > 0
    if pa.types.is_struct(kind):
        # The parts of a struct begin at the struct's first row.
        mask = pc.is_null(column) if nullable else None
        return pa.StructArray.from_arrays(parts, fields=_children(kind), mask=mask)
    plain = column.storage if isinstance(column, pa.ExtensionArray) else column
    validity, *buffers = plain.buffers() if not parts else plain.buffers()[:2]
    array = pa.Array.from_buffers(
        plain.type if not parts else kind,
        len(column),
        [validity if nullable else None, *buffers],
        column.null_count if nullable else 0,
        column.offset,
        parts or None,
    )
    return kind.wrap_array(array) if isinstance(kind, pa.BaseExtensionType) else array
