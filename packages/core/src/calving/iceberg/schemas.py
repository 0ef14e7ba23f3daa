"""Schemas of new tables, schema changes of existing ones, and the partition terms of the settings: ``day(ts)``,
``bucket(user, 16)``, ``truncate(name, 4)``, ``country``.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TimeTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, PrimitiveType, StructType

from calving.errors import ConfigError
from calving.model.tables import SchemaChange
from calving.records.inferred import InferredType, find


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


def primitive(kind: str) -> PrimitiveType:
    """The type of this name, such as ``decimal(12, 2)``."""
    return NestedField.model_validate({"id": 1, "name": "x", "required": False, "type": kind}).field_type  # type: ignore[return-value]


_TERM = re.compile(r"(\w+)\((.+)\)")
_CALL = re.compile(r"(years?|months?|days?|hours?|bucket|truncate)[\[({]", re.IGNORECASE)
"""How a term with a wrong bracket begins."""
_MOST = 2**31 - 1
"""Java's Iceberg has numbers of buckets and widths as int."""
_TIMES: dict[str, Callable[[], Transform[Any, Any]]] = {
    name: transform
    for singular, transform in (
        ("year", YearTransform),
        ("month", MonthTransform),
        ("day", DayTransform),
        ("hour", HourTransform),
    )
    for name in (singular, f"{singular}s")
}


def partition_spec(terms: Sequence[str], schema: Schema, table: str) -> PartitionSpec:
    """The spec of a new table with this schema.

    :raises ConfigError: a term is wrong; the Java sink would create an unpartitioned table instead.
    """
    check_names(terms, schema.column_names, table)
    fields = []
    for number, term in enumerate(terms, 1000):
        column, transform, suffix = parse_term(term, table)
        kind = "timestamptz" if isinstance(transform, TimeTransform) else "string"
        declaration = f'iceberg.table.{table}.columns = "{column} {kind}"'
        try:
            source = schema.find_field(column)
        except ValueError as error:
            raise ConfigError(
                f"table {table}: partition-by '{term}': there is no column '{column}': no record of the first batch has"
                f" a value for it; declare it, such as {declaration}, or correct the term"
            ) from error
        if not transform.can_transform(source.field_type):
            raise ConfigError(
                f"table {table}: partition-by '{term}' cannot be applied to a {source.field_type}: declare another"
                f" type, such as {declaration}, or change the term"
            )
        name = _name(column, suffix)
        fields.append(PartitionField(source_id=source.field_id, field_id=number, transform=transform, name=name))
    return PartitionSpec(*fields)


def check_names(terms: Sequence[str], columns: Collection[str], table: str) -> None:
    """:raises ConfigError: two partition fields of a new table, or one and another column, would have the same name."""
    names: set[str] = set()
    for term in terms:
        column, _, suffix = parse_term(term, table)
        name = _name(column, suffix)
        if name in names:
            raise ConfigError(f"table {table}: two terms of its partition-by have the name '{name}': keep one of them")
        if name != column and name in columns:
            raise ConfigError(
                f"table {table}: partition-by '{term}' makes a partition field '{name}', so the table cannot have a"
                " column of this name: rename the column"
            )
        names.add(name)


def partition_names(terms: Sequence[str], table: str) -> tuple[str, ...]:
    """The names of partition fields that no column of a new table can have.

    :raises ConfigError: a term is not understood.
    """
    parsed = (parse_term(term, table) for term in terms)
    return tuple(name for column, _, suffix in parsed if (name := _name(column, suffix)) != column)


def _name(column: str, suffix: str) -> str:
    return column.replace(".", "_") + suffix


def takes(transform: Transform[Any, Any], kind: InferredType) -> bool:
    """Whether columns of this type can be partitioned by ``transform``."""
    return isinstance(kind, str) and transform.can_transform(primitive(kind))


def temporal(term: str, table: str) -> str | None:
    """The column of a term of time, such as ``day(ts)``; None for other terms."""
    column, transform, _ = parse_term(term, table)
    return column if isinstance(transform, TimeTransform) else None


def parse_term(term: str, table: str) -> tuple[str, Transform[Any, Any], str]:
    """The column, the transform, and the suffix that the partition field's name gets after the column's name.

    :raises ConfigError: the term is not understood.
    """
    match = _TERM.fullmatch(term)
    if match is None and not _CALL.match(term):
        return term, IdentityTransform(), ""
    call = ("", "") if match is None else match.groups()
    name, arguments = call[0].lower(), [a.strip() for a in call[1].split(",")]
    if name in _TIMES and len(arguments) == 1:
        return arguments[0], _TIMES[name](), f"_{name.removesuffix('s')}"
    if name in ("bucket", "truncate") and len(arguments) == 2 and arguments[1].isdecimal():
        size = int(arguments[1])
        if not 0 < size <= _MOST:
            raise ConfigError(f"table {table}: partition-by '{term}': {arguments[1]} must be from 1 to {_MOST}")
        if name == "bucket":
            return arguments[0], BucketTransform(size), "_bucket"
        return arguments[0], TruncateTransform(size), "_trunc"
    if name in ("bucket", "truncate") and len(arguments) == 2 and arguments[0].isdigit():
        raise ConfigError(
            f"table {table}: partition-by '{term}' has the column last: write {name}({arguments[1]}, {arguments[0]})"
        )
    raise ConfigError(
        f"table {table}: partition-by '{term}' is not understood: use year, month, day or hour(column),"
        " bucket(column, N), truncate(column, W), or a column"
    )
