"""Schemas and partition specs of tables as records make them: those of new tables, and of tables with changes."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DoubleType,
    FloatType,
    IcebergType,
    ListType,
    MapType,
    NestedField,
    PrimitiveType,
    StructType,
)

from calving.casting.evolution import UnfitError, distinct, names_in_use
from calving.casting.type_counts import decide
from calving.errors import ConfigError
from calving.model.tables import MissingTable, SchemaChange, TableSpec
from calving.records.declared import with_declared
from calving.records.fields import primitive, table_schema
from calving.records.inferred import InferredType, all_optional, find, in_micros, merge
from calving.writing.terms import (
    becomes_moment,
    check_names,
    field_name,
    lacks_column,
    misfit,
    parse_term,
    takes,
)


def new_type(name: str, kind: InferredType | None, new: MissingTable, *, fold: bool) -> InferredType:
    """The columns of a new table, of which records have this type. ``fold``: names are compared ignoring case."""
    kind = distinct(kind if new.moments.nanos else in_micros(kind), (), set(), str.lower if fold else str)
    kind = kind or {"struct": {}}
    if fold:
        terms = [parse_term(term, name)[0] for term in new.partition_by]
        kind = spelt(kind, [*new.id_columns, *terms, *new.declared])
    kind = with_declared(kind, dict(moments(name, kind, new, fold=fold)), fold=fold)
    return with_declared(kind, new.declared, everywhere=new.columns, fold=fold)


def planned(name: str, kind: InferredType | None, new: MissingTable, *, fold: bool) -> TableSpec:
    """A new table as records of this type alone would make it, but without required columns, and appended to.

    :raises ConfigError, UnfitError: they cannot make it.
    """
    schema = schema_of(all_optional(new_type(name, kind, new, fold=fold)), (), name)
    spec = partition_spec(new.partition_by, schema, name)
    return TableSpec(
        name,
        schema.model_dump_json(),
        spec.model_dump_json(),
        location="",
        properties=new.properties,
        io_properties={},
        moments=new.moments,
    )


def moments(name: str, kind: InferredType, new: MissingTable, *, fold: bool) -> Iterator[tuple[str, InferredType]]:
    """The columns that become timestamps because they have a partition term of time, although the records' values are
    not declared as timestamps.
    """
    for term in new.partition_by:
        column, transform, _ = parse_term(term, name)
        place = find(kind, column, str.lower if fold else str)
        if place is not None and becomes_moment(transform, place[1]):
            yield column, "timestamptz"


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

    def known(name: str) -> str:
        return spelling.get(name.lower(), name)

    return kind | {
        "struct": {known(name): within(name, inner) for name, inner in kind["struct"].items()},
        "required": [*map(known, kind.get("required", ()))],
        "defaults": {known(name): texts for name, texts in kind.get("defaults", {}).items()},
    }


def schema_of(kind: InferredType, id_columns: Sequence[str], table: str) -> Schema:
    """The schema of a new table. The identifier fields, the structs around them, and the fields that the records'
    schema requires are required.

    :raises ConfigError: an id-column is not among the fields, or its type cannot identify a row.
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
    fields = {".".join(key): schema.find_field(".".join(key)) for key in keys}
    for column, field in fields.items():
        if not isinstance(field.field_type, PrimitiveType) or isinstance(field.field_type, FloatType | DoubleType):
            raise ConfigError(f"table {table}: id column {column} is {field.field_type}, which cannot identify a row")
    return Schema(*columns, identifier_field_ids=sorted(field.field_id for field in fields.values()))


def _fields(kind: InferredType, ids: Iterator[int], keys: Collection[Sequence[str]] = ()) -> list[NestedField]:
    """``keys`` are the paths of required fields."""
    required = kind.get("required") or ()
    fields = []
    for name, item in kind["struct"].items():
        inside = [key[1:] for key in keys if key[0] == name]
        number = next(ids)
        type_ = iceberg_type(item, ids, [key for key in inside if key])
        fields.append(NestedField(number, name, type_, required=bool(inside) or name in required))
    return fields


def iceberg_type(kind: InferredType, ids: Iterator[int], keys: Collection[Sequence[str]] = ()) -> IcebergType:
    """The type of a column. ``ids``: those of the fields inside; ``keys``: the paths of those that are required."""
    if isinstance(kind, str):
        return primitive(kind)
    required = kind.get("required") or ()
    if "list" in kind:
        return ListType(next(ids), iceberg_type(kind["list"], ids), element_required=bool(required))
    if "map" in kind:
        key, value = kind["map"]
        return MapType(
            next(ids), iceberg_type(key, ids), next(ids), iceberg_type(value, ids), value_required=bool(required)
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


def evolved(table: TableSpec, changes: Sequence[SchemaChange], *, fold: bool) -> TableSpec:
    """The table with these changes, as far as they are possible together. The ids of new columns are not those that
    the table would give them.
    """
    if not changes:
        return table
    schema = table_schema(table.schema_json)
    ids = itertools.count(schema.highest_field_id + 1)
    key = str.lower if fold else str
    taken = {*map(key, names_in_use(schema))}
    fields: Sequence[NestedField] = schema.fields
    for change in changes:
        kind = change.type if change.seen is None else merge(change.type, decide(change.seen, 0).kind)
        if change.kind == "add":
            kind = kind if table.moments.nanos else in_micros(kind)
            kind = with_declared(kind, table.declared, fold=fold, within=change.path) or kind
            new = distinct({"struct": {change.path[-1]: kind}}, change.path[:-1], taken, key)
            if new is None:
                continue
            kind = new["struct"][change.path[-1]]
        fields = _with(fields, change.path, change.kind, kind, ids)
    changed = Schema(*fields, schema_id=schema.schema_id, identifier_field_ids=schema.identifier_field_ids)
    return replace(table, schema_json=changed.model_dump_json())


def is_declared(table: TableSpec, change: SchemaChange, *, fold: bool) -> bool:
    """Whether the settings declare a type of the column that a change adds, or of one inside it."""
    key = str.lower if fold else str
    column = key(".".join(change.path))
    return change.kind == "add" and any(f"{key(name)}.".startswith(f"{column}.") for name in table.declared)


def _with(
    fields: Sequence[NestedField], path: Sequence[str], change: str, kind: InferredType, ids: Iterator[int]
) -> list[NestedField]:
    """The fields with a change of the column at this path."""
    name, *inner = path
    if not inner and change == "add":
        number = next(ids)
        kept = [field for field in fields if field.name != name]  # one that has no type yet
        return [*kept, NestedField(number, name, iceberg_type(kind, ids), required=False)]
    return [_changed(each, inner, change, kind, ids) if each.name == name else each for each in fields]


def _changed(
    field: NestedField, inner: Sequence[str], change: str, kind: InferredType, ids: Iterator[int]
) -> NestedField:
    if not inner:
        how = {"field_type": primitive(kind)} if change == "widen" else {"required": False}
        return field.model_copy(update=how)
    known = field.field_type
    match known:
        case StructType():
            known = StructType(*_with(known.fields, inner, change, kind, ids))
        case ListType():
            (element,) = _with([known.element_field], inner, change, kind, ids)
            known = ListType(known.element_id, element.field_type, element_required=element.required)
        case MapType():
            _, value = _with([known.key_field, known.value_field], inner, change, kind, ids)
            known = MapType(
                known.key_id, known.key_type, known.value_id, value.field_type, value_required=value.required
            )
    return field.model_copy(update={"field_type": known})
