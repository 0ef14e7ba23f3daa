"""Schemas of new tables, and changes of those that exist."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, PrimitiveType, StructType

from calving.errors import ConfigError
from calving.model.tables import SchemaChange
from calving.records.inferred import InferredType


def is_open(change: SchemaChange, schema: Schema) -> bool:
    """Whether the schema has not been changed so yet."""
    path = ".".join(change.path)
    try:
        found = schema.find_field(path)
    except ValueError:
        return change.kind == "add"
    match change.kind:
        case "optional":
            return bool(found.required)
        case "widen":
            return bool(str(found.field_type) != change.type)
    return False


def change_schema(table: Table, changes: Sequence[SchemaChange]) -> None:
    """Make all these changes in one commit."""
    added = [change for change in changes if change.kind == "add"]
    changed = [change for change in changes if change.kind != "add"]
    with table.transaction() as transaction:
        if changed:
            # Without the name mapping, to which it would add the columns' own names: by those nothing was found so far.
            with UpdateSchema(transaction) as update:
                for change in changed:
                    if change.kind == "widen":
                        update.update_column(change.path, field_type=_primitive(change.type))
                    else:
                        update.make_column_optional(change.path)
        if added:
            with transaction.update_schema() as update:
                for change in added:
                    update.add_column(change.path, _iceberg_type(change.type, itertools.count(1)), required=False)


def spelt(kind: InferredType, names: Iterable[str]) -> InferredType:
    """The kind of a table with the fields of these names as the settings spell them, whatever their case."""
    spelling = {name.lower(): name for name in names}
    return kind | {
        "struct": {spelling.get(name.lower(), name): inner for name, inner in kind["struct"].items()},
        "required": [spelling.get(name.lower(), name) for name in kind.get("required", ())],
    }


def schema_of(kind: InferredType, id_columns: Sequence[str], table: str) -> Schema:
    """The schema of a new table; required are the identifier fields, and what the records' schema says is.

    :raises ConfigError: an id-column is not among the fields.
    """
    fields = kind["struct"] if isinstance(kind, Mapping) else {}
    for column in id_columns:
        if column not in fields:
            raise ConfigError(f"table {table}: id-column '{column}' is not among its fields: {', '.join(fields)}")
    ids = itertools.count(1)
    required = kind.get("required", ()) if isinstance(kind, Mapping) else ()
    columns = [
        NestedField(next(ids), name, _iceberg_type(item, ids), required=name in id_columns or name in required)
        for name, item in fields.items()
    ]
    return Schema(*columns, identifier_field_ids=[c.field_id for c in columns if c.name in id_columns])


def _iceberg_type(kind: InferredType, ids: Iterator[int]) -> IcebergType:
    if isinstance(kind, str):
        return _primitive(kind)
    required = kind.get("required") or ()
    if "list" in kind:
        return ListType(next(ids), _iceberg_type(kind["list"], ids), element_required=bool(required))
    if "map" in kind:
        key, value = kind["map"]
        return MapType(
            next(ids), _iceberg_type(key, ids), next(ids), _iceberg_type(value, ids), value_required=bool(required)
        )
    return StructType(
        *(NestedField(next(ids), n, _iceberg_type(k, ids), required=n in required) for n, k in kind["struct"].items())
    )


def _primitive(kind: str) -> PrimitiveType:
    return NestedField.model_validate({"id": 1, "name": "x", "required": False, "type": kind}).field_type  # type: ignore[return-value]
