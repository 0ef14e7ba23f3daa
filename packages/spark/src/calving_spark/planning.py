"""Plans a write where the catalog is: loads, creates or evolves the table for the DataFrame's columns (S2)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyspark.sql.types import StructType

from calving.casting.column_changes import ColumnChanges
from calving.casting.evolution import SchemaEvolution
from calving.casting.findings import Findings
from calving.errors import ConfigError
from calving.iceberg.catalog import open_catalog
from calving.iceberg.rules import TableRules, TableSettings
from calving.iceberg.tables import Tables
from calving.model.record_path import Evolution, Limits
from calving.model.tables import RowMutations, SchemaChange, TableSpec
from calving.records.arrays import children_of
from calving.records.fields import Target, name_mapping, table_schema
from calving.records.inferred import of_type
from calving_spark.changes import DeleteCondition, marks_of, spelt
from calving_spark.columns import one_row, row_type
from calving_spark.options import SourceOptions, WriteOptions

_KEPT = 8
"""The most catalogs whose connection is kept. Workers of Python are used again for later batches (S14a)."""


@dataclass(frozen=True, slots=True)
class WritePlan:
    """A table as tasks write it, without a catalog. ``uuid`` tells it from another table of its name. ``fold``: whether
    columns match in upper or lower case. ``deletes``: the rows that delete, if a condition says it.
    """

    spec: TableSpec
    uuid: str
    fold: bool
    deletes: DeleteCondition | None = None


def catalog_of(options: SourceOptions[Any]) -> Catalog:
    """The catalog that the options name; its connection is kept.

    :raises ConfigError, UnavailableError: the catalog cannot be opened.
    """
    return _opened(options.keys.catalog, tuple(sorted(options.catalog.items())))


@lru_cache(maxsize=_KEPT)
def _opened(name: str, properties: tuple[tuple[str, str], ...]) -> Catalog:
    return open_catalog(name, dict(properties))


def plan(options: WriteOptions, schema: StructType) -> WritePlan:
    """Load the table; create it, or add the columns that it lacks, if the options say so.

    :raises ConfigError: the options or the table must be changed.
    :raises UnavailableError: the catalog is away, or others kept changing the table; try again.
    """
    keys = options.keys
    name, mutations, deletes = keys.table, keys.mutations, keys.deletes
    if mutations is not None:
        mutations, deletes = spelt(name, mutations, deletes, schema)
    rules, marks = _rules(options, mutations), set() if mutations is None else marks_of(mutations, deletes)
    kind = row_type(name, schema, fold=rules.fold)
    tables = Tables(catalog_of(options), keys.catalog, rules)
    tables.refresh([name])
    if name in tables.missing:
        if not keys.auto_create:
            raise ConfigError(f"table {name} does not exist: create it, or set auto-create-enabled = true")
        tables.apply([SchemaChange(name, "create", type=of_type(_without(kind, marks)))])
    there = {field.name.lower() for field in table_schema(tables.specs()[name].schema_json).fields}
    kind = _without(kind, marks - there)
    if changes := _lacking(tables.specs()[name], kind, keys.case_insensitive):
        _refuse_unasked(name, changes, evolves=keys.evolve)
        if keys.evolve:
            tables.apply(changes)
            _lacking(tables.specs()[name], kind, keys.case_insensitive)  # what the catalog refuses is refused here
    return WritePlan(tables.specs()[name], str(tables.reference(name).table_uuid), rules.fold, deletes)


def _without(kind: pa.StructType, names: Collection[str]) -> pa.StructType:
    """``names``: in lower case."""
    return pa.struct([field for field in kind if field.name.lower() not in names])


def _refuse_unasked(name: str, changes: Sequence[SchemaChange], *, evolves: bool) -> None:
    new = [".".join(change.path) for change in changes if change.kind == "add"]
    if new and not evolves:
        raise ConfigError(
            f"table {name} has no column {', '.join(new)}: set evolve-schema-enabled = true to add what is missing, or"
            " leave it out of the DataFrame"
        )


def _rules(options: WriteOptions, mutations: RowMutations | None) -> TableRules:
    keys = options.keys
    return TableRules(
        write_properties=options.write_properties,
        create_properties=options.create_properties,
        tables={keys.table: TableSettings(keys.partition_by, keys.id_columns, keys.location, mutations)},
        force_optional=keys.force_optional,
        evolution=Evolution(create=keys.auto_create, evolve=keys.evolve, case_insensitive=keys.case_insensitive),
    )


def _lacking(spec: TableSpec, kind: pa.StructType, fold: bool) -> list[SchemaChange]:
    """The changes that rows of this type need.

    :raises ConfigError: the table cannot have a column of them.
    """
    schema: Schema = table_schema(spec.schema_json)
    evolution = SchemaEvolution(
        spec.name, schema, Evolution(evolve=True, case_insensitive=fold), Limits(), spec.partition_names, spec.refused
    )
    columns = schema.as_struct()
    target = Target(columns, name_mapping(spec.properties), case_insensitive=fold, promotes=True)
    changes, found, row = ColumnChanges(evolution, target), Findings(typed=True, records=1), one_row(kind)
    lookup = target.lookup(columns)
    for source, child in zip(kind, children_of(row), strict=True):
        column = lookup.find(source.name)
        if column is None:
            changes.missing(child, source, columns, (), True, found)
        else:
            changes.inner(child, column.field_type, (column.name,), True, found)
    for reason in found.reasons.values():
        raise ConfigError(f"table {spec.name}: {reason}")
    return found.changes
