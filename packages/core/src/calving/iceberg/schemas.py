"""Schema changes of existing tables, and the names of their columns and partition fields."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from contextlib import suppress

from pyiceberg.exceptions import ResolveError
from pyiceberg.schema import Schema, promote
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import create_mapping_from_schema
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, PrimitiveType, StructType

from calving.errors import CatalogRefusedError
from calving.iceberg.defaults import SINCE, warn_of_version, with_defaults
from calving.model.tables import SchemaChange
from calving.records.fields import NAME_MAPPING, awaits_type, primitive
from calving.records.foreign import singles
from calving.writing.schemas import iceberg_type


def spec_names(metadata: TableMetadata) -> tuple[str, ...]:
    """The names of the partition fields of all specs of a table. No column can be added with one of these names."""
    return tuple(sorted({field.name for spec in metadata.partition_specs for field in spec.fields}))


def is_open(change: SchemaChange, schema: Schema) -> bool:
    """Whether the schema still lacks this change, and can have it."""
    if change.kind == "rename":
        former, *new = change.path
        return former in schema.column_names and not {*new}.intersection(schema.column_names)
    path = ".".join(change.path)
    try:
        field = schema.find_field(path)
    except ValueError:
        return change.kind == "add"
    match change.kind:
        case "add":
            return awaits_type(field)
        case "optional":
            return bool(field.required)
        case "widen":
            return bool(str(field.field_type) != change.type)
    return False


def change_schema(table: Table, changes: Sequence[SchemaChange], *, defaults: bool = False) -> None:
    """Make all these changes in one commit. ``defaults``: whether new columns get the defaults that schemas declare.

    :raises CatalogRefusedError: the table's format version does not have the type of a column.
    """
    added = [change for change in changes if change.kind == "add"]
    renamed = [change for change in changes if change.kind == "rename"]
    changed = [change for change in changes if change.kind in ("widen", "optional")]
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
        if renamed:
            _rename(transaction, renamed)
        if added:
            with transaction.update_schema() as update:
                for change in added:
                    _add(update, change, table, defaults=defaults)


def _rename(transaction: Transaction, changes: Sequence[SchemaChange]) -> None:
    """Rename columns. They keep their former names in the table's name mapping, for records that come late."""
    metadata = transaction.table_metadata
    if metadata.name_mapping() is None:
        names = create_mapping_from_schema(metadata.schema())
        transaction.set_properties({NAME_MAPPING: names.model_dump_json()})
    for former, new in (pair for change in changes for pair in itertools.pairwise(change.path)):
        with transaction.update_schema() as update:
            update.rename_column(former, new)


def _add(update: UpdateSchema, change: SchemaChange, table: Table, *, defaults: bool) -> None:
    """:raises CatalogRefusedError: as ``change_schema``."""
    kind = iceberg_type(change.type, itertools.count(1))
    version, name = table.metadata.format_version, ".".join(table.name())
    later = next((each for _, each in singles(kind) if each.minimum_format_version() > version), None)
    if later is not None:
        since = later.minimum_format_version()
        raise CatalogRefusedError(f"a table of format version {version} has no type {later}: upgrade it to {since}")
    field = NestedField(0, change.path[-1], kind, required=False)
    if defaults:
        rows = {"struct": {field.name: change.type}, "defaults": {field.name: change.defaults}}
        if version < SINCE:
            warn_of_version(name, rows, version, "calving maintain --task upgrade makes it of version 3")
        else:
            (field,) = with_defaults(name, StructType(field), rows, initial=True).fields
    if _awaits_type(table.schema(), change.path):
        if isinstance(kind, PrimitiveType):
            update.update_column(change.path, field_type=kind)
            number = table.schema().find_field(".".join(change.path)).field_id
            known = {"write_default": field.write_default}  # rows that are there stay null
            update._updates[number] = update._updates[number].model_copy(update=known)
            return
        update.delete_column(change.path)  # no file has the column, and Iceberg promotes it to single values only
    update.add_column(change.path, field.field_type, required=False)
    number = update._added_name_to_id[".".join(change.path)]
    for fields in update._adds.values():  # add_column takes the defaults of some types only
        known = {"initial_default": field.initial_default, "write_default": field.write_default}
        fields[:] = [each.model_copy(update=known) if each.field_id == number else each for each in fields]


def _awaits_type(schema: Schema, path: Sequence[str]) -> bool:
    with suppress(ValueError):
        return awaits_type(schema.find_field(".".join(path)))
    return False


def unreadable(then: Schema, now: Schema) -> str | None:
    """A column of the schema of ``now`` that cannot be read from files with that of ``then``; None if all can."""
    return _unreadable(then.as_struct(), now.as_struct())


def _unreadable(then: StructType, now: StructType) -> str | None:
    former = {field.field_id: field for field in then.fields}
    for field in now.fields:
        before = former.get(field.field_id)
        if before is None:
            if field.required and field.initial_default is None:
                return field.name
        elif field.required and before.optional:
            return field.name
        elif isinstance(field.field_type, StructType) and isinstance(before.field_type, StructType):
            if (inside := _unreadable(before.field_type, field.field_type)) is not None:
                return f"{field.name}.{inside}"
        elif not _is_readable(before.field_type, field.field_type):
            return field.name
    return None


def _is_readable(then: IcebergType, now: IcebergType) -> bool:
    match then, now:
        case StructType(), StructType():
            return _unreadable(then, now) is None
        case ListType(), ListType():
            return then.element_id == now.element_id and _is_readable(then.element_type, now.element_type)
        case MapType(), MapType():
            return _is_readable(then.key_type, now.key_type) and _is_readable(then.value_type, now.value_type)
    if then == now:  # pyiceberg's `promote` knows no such case
        return True
    with suppress(ResolveError):
        promote(then, now)
        return True
    return False


def as_in(schema: Schema, names: Iterable[str], *, fold: bool) -> tuple[str, ...]:
    """The names as the schema spells them. With ``fold``, case is ignored. Unknown names stay as they are."""
    return tuple(_as_in(schema, name) for name in names) if fold else tuple(names)


def _as_in(schema: Schema, name: str) -> str:
    for exactly in (True, False):
        with suppress(ValueError):
            return schema.find_column_name(schema.find_field(name, exactly).field_id) or name
    return name
