"""Schemas and partition specs of new tables, and schema changes of existing ones."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, PrimitiveType, StructType

from calving.casting.evolution import UnfitError
from calving.errors import ConfigError
from calving.model.tables import SchemaChange
from calving.records.fields import primitive
from calving.records.inferred import InferredType, find
from calving.writing.terms import check_names, field_name, lacks_column, misfit, parse_term, takes


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
                    update.add_column(change.path, _iceberg_type(change.type, itertools.count(1)), required=False)


def spelt(kind: InferredType, names: Iterable[str]) -> InferredType:
    """The type with these fields spelled as in the settings; case is ignored in the comparison."""
    names = list(names)
    inside: dict[str, list[str]] = {}
    spelling: dict[str, str] = {}
    for head, _, rest in (name.partition(".") for name in names):
        spelling.setdefault(head.lower(), head)
        if rest:
            inside.setdefault(head.lower(), []).append(rest)
    spelling |= {name.lower(): name for name in names}

    def within(name: str, inner: InferredType) -> InferredType:
        is_struct = isinstance(inner, Mapping) and "struct" in inner
        return spelt(inner, inside.get(name.lower(), ())) if is_struct else inner

    return kind | {
        "struct": {spelling.get(name.lower(), name): within(name, inner) for name, inner in kind["struct"].items()},
        "required": [spelling.get(name.lower(), name) for name in kind.get("required", ())],
    }


def as_in(schema: Schema, names: Iterable[str], *, fold: bool) -> tuple[str, ...]:
    """The names as the schema spells them. With ``fold``, case is ignored. Unknown names stay as they are."""
    return tuple(_as_in(schema, name) for name in names) if fold else tuple(names)


def _as_in(schema: Schema, name: str) -> str:
    for exactly in (True, False):
        with suppress(ValueError):
            return schema.find_column_name(schema.find_field(name, exactly).field_id) or name
    return name


def schema_of(kind: InferredType, id_columns: Sequence[str], table: str) -> Schema:
    """The schema of a new table. The identifier fields, the structs around them, and the fields that the records'
    schema requires are required.

    :raises ConfigError: an id-column is not among the fields.
    """
    keys = set()
    for column in id_columns:
        place = find(kind, column)
        if place is None:
            fields = kind["struct"] if isinstance(kind, Mapping) else {}
            raise ConfigError(f"table {table}: id-column '{column}' is not among its fields: {', '.join(fields)}")
        keys.add(place[0])
    columns = _fields(kind if isinstance(kind, Mapping) else {"struct": {}}, itertools.count(1), keys)
    schema = Schema(*columns)
    return Schema(*columns, identifier_field_ids=sorted(schema.find_field(".".join(key)).field_id for key in keys))


def _fields(kind: InferredType, ids: Iterator[int], keys: Collection[Sequence[str]] = ()) -> list[NestedField]:
    """``keys`` are the paths of required fields."""
    required = kind.get("required") or ()
    fields = []
    for name, item in kind["struct"].items():
        inside = [key[1:] for key in keys if key[0] == name]
        number = next(ids)
        type_ = _iceberg_type(item, ids, [key for key in inside if key])
        fields.append(NestedField(number, name, type_, required=bool(inside) or name in required))
    return fields


def _iceberg_type(kind: InferredType, ids: Iterator[int], keys: Collection[Sequence[str]] = ()) -> IcebergType:
    if isinstance(kind, str):
        return primitive(kind)
    required = kind.get("required") or ()
    if "list" in kind:
        return ListType(next(ids), _iceberg_type(kind["list"], ids), element_required=bool(required))
    if "map" in kind:
        key, value = kind["map"]
        return MapType(
            next(ids), _iceberg_type(key, ids), next(ids), _iceberg_type(value, ids), value_required=bool(required)
        )
    return StructType(*_fields(kind, ids, keys))


def partition_spec(terms: Sequence[str], schema: Schema, table: str) -> PartitionSpec:
    """The spec of a new table with this schema.

    :raises ConfigError: a term is wrong; the Java sink would create an unpartitioned table instead.
    :raises UnfitError: a term's column is missing. Other records may bring it.
    """
    check_names(terms, schema.column_names, table)
    fields = []
    for number, term in enumerate(terms, 1000):
        column, transform, suffix = parse_term(term, table)
        try:
            source = schema.find_field(column)
        except ValueError as error:
            raise UnfitError((), lacks_column(term, table)) from error
        kind = source.field_type
        if not isinstance(kind, PrimitiveType) or not takes(transform, str(kind)):
            raise ConfigError(f"table {table}: {misfit(term, table, str(kind))}")
        name = field_name(column, suffix)
        fields.append(PartitionField(source_id=source.field_id, field_id=number, transform=transform, name=name))
    return PartitionSpec(*fields)
