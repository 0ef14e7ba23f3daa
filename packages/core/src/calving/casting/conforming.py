"""Makes rows keep the required fields of the table's schema.

Arrow compares some types as equal although one may have nulls inside and the other may not, and a Parquet file written
by the wrong one cannot be read. So what a file is made of is looked at field by field.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from calving.errors import BadRecordError
from calving.records.arrays import children_of, entries, items_of


def conform(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows with exactly the types of the schema.

    :raises BadRecordError: a required field has no value.
    """
    columns = [_conformed(column, field) for column, field in zip(rows.columns, schema, strict=True)]
    if all(ours is theirs for ours, theirs in zip(columns, rows.columns, strict=True)):
        return rows
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _conformed(column: pa.Array, field: pa.Field) -> pa.Array:
    _check(column, field, 0, field.name)
    return column if _keeps(column, field.type) else _rebuilt(column, field)


def _check(column: pa.Array, field: pa.Field, above: int, path: str) -> None:
    """``above``: how many of its nulls are those of the struct that it is in."""
    if not field.nullable and column.null_count > above:
        raise BadRecordError(f"column '{path}' is required, and a record has no value for it")
    if _has_required(field.type):
        for inner, inner_field, hidden in _inside(column, field.type):
            _check(inner, inner_field, hidden, f"{path}.{inner_field.name}")


def _inside(column: pa.Array, kind: pa.DataType) -> Iterator[tuple[pa.Array, pa.Field, int]]:
    if pa.types.is_struct(kind):
        for child, field in zip(children_of(column), kind.fields, strict=True):
            yield child, field, column.null_count
    elif pa.types.is_map(kind):
        keys, values = entries(column)
        yield keys, kind.key_field, 0
        yield values, kind.item_field, 0
    else:
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
    kind = column.type
    if pa.types.is_struct(kind):
        return [column.field(i) for i in range(kind.num_fields)]
    if pa.types.is_map(kind):
        return [column.keys, column.items]
    return [column.values] if pa.types.is_list(kind) else []


def _keeps(column: pa.Array, kind: pa.DataType) -> bool:
    """Whether all inside is as nullable as it should be, and has a null only where that is so."""
    if column.type != kind:
        return False
    found = zip(_parts(column), _children(column.type), _children(kind), strict=True)
    return all(
        own.nullable == field.nullable and (field.nullable or not part.null_count) and _keeps(part, field.type)
        for part, own, field in found
    )


def _rebuilt(column: pa.Array, field: pa.Field) -> pa.Array:
    """A null of a required field stands below a null: whatever takes its place is never read."""
    kind = field.type
    parts = [_rebuilt(part, inner) for part, inner in zip(_parts(column), _children(kind), strict=True)]
    if pa.types.is_map(kind):
        parts = [pa.StructArray.from_arrays(parts, fields=_children(kind))]
    nullable = field.nullable and column.null_count > 0
    if pa.types.is_struct(kind):
        # A struct's parts begin where it begins.
        mask = pc.is_null(column) if nullable else None
        return pa.StructArray.from_arrays(parts, fields=_children(kind), mask=mask)
    plain = column.storage if isinstance(column.type, pa.BaseExtensionType) else column
    validity, *buffers = plain.buffers() if not parts else plain.buffers()[:2]
    found = pa.Array.from_buffers(
        plain.type if not parts else kind,
        len(column),
        [validity if nullable else None, *buffers],
        column.null_count if nullable else 0,
        column.offset,
        parts or None,
    )
    return kind.wrap_array(found) if isinstance(kind, pa.BaseExtensionType) else found
