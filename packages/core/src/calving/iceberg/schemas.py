"""Schema changes of existing tables, and the names of their columns and partition fields."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from contextlib import suppress

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update.schema import UpdateSchema

from calving.model.tables import SchemaChange
from calving.records.fields import primitive
from calving.writing.schemas import iceberg_type


def spec_names(metadata: TableMetadata) -> tuple[str, ...]:
    """The names of the partition fields of all specs of a table. No column can be added with one of these names."""
    return tuple(sorted({field.name for spec in metadata.partition_specs for field in spec.fields}))


def is_open(change: SchemaChange, schema: Schema) -> bool:
    """Whether the schema still lacks this change."""
    path = ".".join(change.path)
    try:
        field = schema.find_field(path)
    except ValueError:
        return change.kind == "add"
    match change.kind:
        case "optional":
            return bool(field.required)
        case "widen":
            return bool(str(field.field_type) != change.type)
    return False


def change_schema(table: Table, changes: Sequence[SchemaChange]) -> None:
    """Make all these changes in one commit."""
    added = [change for change in changes if change.kind == "add"]
    changed = [change for change in changes if change.kind != "add"]
    with table.transaction() as transaction:
        if changed:
            # Keep the name mapping as it is: pyiceberg would add the columns' names, but no file was read by these
            # names so far.
            with UpdateSchema(transaction) as update:
                for change in changed:
                    if change.kind == "widen":
                        update.update_column(change.path, field_type=primitive(change.type))
                    else:
                        update.make_column_optional(change.path)
        if added:
            with transaction.update_schema() as update:
                for change in added:
                    update.add_column(change.path, iceberg_type(change.type, itertools.count(1)), required=False)


def as_in(schema: Schema, names: Iterable[str], *, fold: bool) -> tuple[str, ...]:
    """The names as the schema spells them. With ``fold``, case is ignored. Unknown names stay as they are."""
    return tuple(_as_in(schema, name) for name in names) if fold else tuple(names)


def _as_in(schema: Schema, name: str) -> str:
    for exactly in (True, False):
        with suppress(ValueError):
            return schema.find_column_name(schema.find_field(name, exactly).field_id) or name
    return name
