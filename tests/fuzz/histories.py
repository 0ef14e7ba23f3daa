"""Tables that have had other columns, names and partition specs before, and a row of that time."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import NullOrder, SortDirection, SortOrder
from pyiceberg.transforms import BucketTransform, IdentityTransform, VoidTransform
from pyiceberg.types import IcebergType, LongType, NestedField, StringType, StructType

from tests.fuzz.tables import fields_within

OLD_ROWS = "fuzz.old-rows"
"""The property of a table that has rows of an earlier time, in which all columns of today are null."""
MAPPING = "schema.name-mapping.default"
_GONE = ("gone", "new", "extra", "n1")
_WAS = "was_"


@dataclass(frozen=True)
class Wanted:
    """The table of today. Its name mapping has the ids of ``schema``."""

    schema: Schema
    spec: PartitionSpec
    order: SortOrder
    properties: Mapping[str, str]


@dataclass
class _Past:
    """What a table had, and how it came to its columns of today."""

    fields: list[NestedField] = field(default_factory=list)
    renamed: list[tuple[tuple[str, ...], str]] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    added: list[NestedField] = field(default_factory=list)


def create(catalog: Catalog, name: str, wanted: Wanted, seed: int) -> None:
    """Create a table that ends as it is wanted, under other ids."""
    schema, properties = wanted.schema, {**wanted.properties}
    mapping = properties.pop(MAPPING, None)
    random, ids = Random(seed), itertools.count(10_000)
    past = _past(random, schema, ids)
    version = random.choice(("1", "2", "2"))
    table = catalog.create_table(name, Schema(*past.fields), properties={"format-version": version})
    if not any(f.required for f in past.fields) and not any(_has_required(f.field_type) for f in past.fields):
        _append(table, past)
        properties = properties | {OLD_ROWS: "1"}
    with table.transaction() as transaction:
        transaction.set_properties(properties)
    _partition_once(random, table, past)
    with table.update_schema() as update:
        for path, after in past.renamed:
            update.rename_column(path, after)
        for column in past.dropped:
            update.delete_column(column)
    with table.update_schema() as update:
        for new in past.added:
            update.add_column((new.name,), new.field_type)
    rare = Random(f"{seed}/rare")
    taken = {f.source_id for f in table.spec().fields}
    now = [f for f in table.schema().fields if f.field_id not in taken]
    unpartitioned = [f.name for f in now if isinstance(f.field_type, LongType | StringType)]
    void = rare.choice(unpartitioned) if is_void(seed) and unpartitioned else None
    if wanted.spec.fields or void:
        with table.update_spec() as change:
            for part in wanted.spec.fields:
                change.add_field(str(schema.find_column_name(part.source_id)), part.transform, part.name)
            if void:
                change.add_field(void, VoidTransform(), "part_void")
    _order(rare, table, wanted)
    if mapping is not None:
        today = table.schema()
        found = {i: today.find_field(str(schema.find_column_name(i))).field_id for i in schema._lazy_id_to_field}
        with table.transaction() as transaction:
            transaction.set_properties({MAPPING: json.dumps(_mapped(json.loads(mapping), found))})


def is_void(seed: int) -> bool:
    """Whether the table gets a field of the transform void, in whatever format version it has."""
    return seed % 3 == 0


def _order(random: Random, table: Table, wanted: Wanted) -> None:
    """Sort the table as it is wanted, mostly after another order."""
    simple = [f.name for f in table.schema().fields if isinstance(f.field_type, LongType | StringType)]
    if simple and (wanted.order.fields or random.random() < 0.2) and random.random() < 0.7:
        with table.update_sort_order() as change:
            change.desc(random.choice(simple), IdentityTransform(), NullOrder.NULLS_LAST)
    with table.update_sort_order() as change:
        for part in wanted.order.fields:
            add = change.asc if part.direction == SortDirection.ASC else change.desc
            add(str(wanted.schema.find_column_name(part.source_id)), part.transform, part.null_order)


def _mapped(mapping: list[dict[str, Any]], ids: Mapping[int, int]) -> list[dict[str, Any]]:
    """The mapping of these names to the table's own ids."""
    return [{**m, "field-id": ids[m["field-id"]], "fields": _mapped(m["fields"], ids)} for m in mapping]


def _past(random: Random, schema: Schema, ids: Iterator[int]) -> _Past:
    past = _Past()
    for column in schema.fields:
        choice = 1.0 if column.required or "." in column.name else random.random()
        if choice < 0.2:
            other = random.choice((LongType(), StringType()))
            past.fields.append(NestedField(next(ids), column.name, other, required=False))
            past.dropped.append(column.name)
            past.added.append(column)
        elif choice < 0.3:
            past.added.append(column)
        elif choice < 0.6:
            past.renamed.append(((_WAS + column.name,), column.name))
            past.fields.append(column.model_copy(update={"name": _WAS + column.name}))
        else:
            past.fields.append(_inner_renamed(random, column, past))
    there = {f.name for f in schema.fields}
    for name in random.sample([name for name in _GONE if name not in there], 2):
        past.fields.append(NestedField(next(ids), name, random.choice((LongType(), StringType())), required=False))
        past.dropped.append(name)
    return past


def _has_required(kind: IcebergType) -> bool:
    """Whether a struct has fields that must not be null: pyiceberg cannot write a struct that is null then."""
    inner = fields_within(kind)
    return (isinstance(kind, StructType) and any(f.required for f in inner)) or any(
        _has_required(f.field_type) for f in inner
    )


def _inner_renamed(random: Random, column: NestedField, past: _Past) -> NestedField:
    kind = column.field_type
    if not isinstance(kind, StructType) or random.random() < 0.3:
        return column
    place = random.randrange(len(kind.fields))
    chosen = kind.fields[place]
    inner = [*kind.fields]
    inner[place] = chosen.model_copy(update={"name": _WAS + chosen.name})
    past.renamed.append(((column.name, _WAS + chosen.name), chosen.name))
    return column.model_copy(update={"field_type": StructType(*inner)})


def _partition_once(random: Random, table: Table, past: _Past) -> None:
    """Partition the table by columns of which some are dropped later, and no longer. Version 1 keeps void fields."""
    simple = [f for f in past.fields if isinstance(f.field_type, LongType | StringType)]
    if not simple or random.random() < 0.4:
        return
    chosen = random.sample(simple, min(len(simple), random.choice((1, 2))))
    with table.update_spec() as change:
        for number, column in enumerate(chosen):
            change.add_field(column.name, random.choice((IdentityTransform(), BucketTransform(4))), f"old_{number}")
    with table.update_spec() as change:
        for number in range(len(chosen)):
            change.remove_field(f"old_{number}")


def _append(table: Table, past: _Past) -> None:
    """A row whose values are all in columns that are dropped later."""
    kinds = {f.name: f.field_type for f in past.fields}
    fields = schema_to_pyarrow(table.schema(), include_field_ids=False)
    row = [
        pa.nulls(1, f.type) if f.name not in past.dropped else pa.array([7 if kinds[f.name] == LongType() else "old"])
        for f in fields
    ]
    table.append(pa.Table.from_arrays([each.cast(f.type) for each, f in zip(row, fields, strict=True)], schema=fields))
