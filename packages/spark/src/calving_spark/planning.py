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
from calving.records.inferred import InferredType, find, of_type
from calving.writing.terms import parse_term
from calving_spark.changes import DeleteCondition, marks_of, spelt
from calving_spark.columns import check_names, one_row, row_type
from calving_spark.options import SourceOptions, WriteOptions
from calving_spark.wording import as_options

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
    try:
        return _plan(options, schema)
    except ConfigError as error:
        raise ConfigError(as_options(str(error))) from error


def _plan(options: WriteOptions, schema: StructType) -> WritePlan:
    keys = options.keys
    name, mutations, deletes, told = keys.table, keys.mutations, keys.deletes, set[str]()
    if mutations is not None:
        mutations, deletes = spelt(name, mutations, deletes, schema)
        told = marks_of(mutations, deletes)
    rules = _rules(options, mutations)
    check_names(name, schema, fold=rules.fold)
    kind = row_type(name, schema)
    tables = Tables(catalog_of(options), keys.catalog, rules)
    tables.refresh([name])
    if name in tables.missing:
        if not keys.auto_create:
            raise ConfigError(f"table {name} does not exist: create it, or set auto-create-enabled = true")
        new = of_type(_without(kind, told))
        _check_terms(name, keys.partition_by, new, rules)
        tables.apply([SchemaChange(name, "create", type=new)])
    if (reason := tables.refused.get(name)) is not None:
        raise ConfigError(f"table {name}: {reason}")
    there = {rules.key(field.name) for field in table_schema(tables.specs()[name].schema_json).fields}
    kind = _without(kind, {each for each in told if rules.key(each) not in there})
    if changes := _lacking(tables.specs()[name], kind, keys.case_insensitive):
        _refuse_unwanted(tables.specs()[name], changes, evolves=keys.evolve)
        if keys.evolve:
            tables.apply(changes)
            _lacking(tables.specs()[name], kind, keys.case_insensitive)  # what the catalog refuses is refused here
    return WritePlan(tables.specs()[name], str(tables.reference(name).table_uuid), rules.fold, deletes)


def _without(kind: pa.StructType, names: Collection[str]) -> pa.StructType:
    return pa.struct([field for field in kind if field.name not in names])


def _check_terms(name: str, terms: Sequence[str], new: InferredType, rules: TableRules) -> None:
    """:raises ConfigError: the new table would lack the column of a partition term."""
    for term in terms:
        column = parse_term(term, name)[0]
        if find(new, column, rules.key) is None:
            raise ConfigError(f"table {name}: default-partition-by {term}: the DataFrame has no column {column}")


def _refuse_unwanted(spec: TableSpec, changes: Sequence[SchemaChange], *, evolves: bool) -> None:
    """:raises ConfigError: the table would get a column that nobody has asked for."""
    new = [".".join(change.path) for change in changes if change.kind == "add"]
    names = table_schema(spec.schema_json).column_names
    there = {name.lower(): name for name in names}
    twin = next((column for column in new if column.lower() in there and column not in names), None)
    if twin is not None:
        raise ConfigError(
            f"table {spec.name} has a column {there[twin.lower()]}, and the DataFrame {twin}, which Spark and most"
            " engines could not tell apart: rename it, or set schema-case-insensitive = true, by which they are one"
        )
    if new and not evolves:
        raise ConfigError(
            f"table {spec.name} has no column {', '.join(new)}: set evolve-schema-enabled = true to add what is"
            " missing, or leave it out of the DataFrame"
        )


def _rules(options: WriteOptions, mutations: RowMutations | None) -> TableRules:
    keys = options.keys
    return TableRules(
        write_properties=options.write_properties,
        create_properties=options.create_properties,
        tables={keys.table: TableSettings(keys.partition_by, keys.id_columns, keys.location, mutations)},
        force_optional=keys.force_optional,
        any_year=keys.timestamp_range == "any",
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
