"""Schemas of missing tables, and columns that tables get: from records, and from declarations in the settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema, index_by_name
from pyiceberg.table import Table

from calving.casting.growth import distinct
from calving.errors import ConfigError
from calving.iceberg.partition_terms import parse_term, partition_spec, temporal
from calving.iceberg.rules import TableRules
from calving.iceberg.schemas import schema_of, spelt
from calving.model.tables import SchemaChange
from calving.records.declared import with_declared
from calving.records.inferred import InferredType, all_optional, find

_MOMENTS = ("string", "int", "long", "double")
"""Types of schemaless values that may be timestamps: ISO text, or milliseconds."""


def new_table(name: str, kind: InferredType, rules: TableRules) -> tuple[Schema, PartitionSpec]:
    """The schema and the partition spec of a table that is created from records of this inferred type.

    :raises ConfigError: it cannot be created as the settings say.
    """
    mine, fold = rules.of(name), rules.case_insensitive
    kind = distinct(kind, (), set(), rules.key) or {"struct": {}}
    terms = [parse_term(term, name)[0] for term in mine.partition_by]
    if fold:
        kind = spelt(kind, [*mine.id_columns, *terms, *mine.declared])
    kind = with_declared(kind, _moments(name, kind, rules), fold=fold)
    kind = with_declared(kind, mine.declared, everywhere=mine.columns, fold=fold)
    schema = schema_of(all_optional(kind) if rules.force_optional else kind, mine.id_columns, name)
    return schema, partition_spec(mine.partition_by, schema, name)


def _moments(name: str, kind: InferredType, rules: TableRules) -> dict[str, InferredType]:
    """Columns that a partition term cuts by time: they become timestamps, although the records do not say so."""
    columns = [column for term in rules.of(name).partition_by if (column := temporal(term, name)) is not None]
    found = {column: find(kind, column, rules.key) for column in columns}
    return {column: "timestamptz" for column, there in found.items() if there is not None and there[1] in _MOMENTS}


def possible(table: Table, changes: Sequence[SchemaChange], rules: TableRules) -> list[SchemaChange]:
    """The changes without those that would give two columns one name; the result does not depend on their order.

    :raises ConfigError: too many columns.
    """
    name = ".".join(table.name())
    declared, fold = rules.of(name).declared, rules.case_insensitive
    taken = {rules.key(known) for known in index_by_name(table.schema())}
    found: list[SchemaChange] = []
    added = 0
    for change in sorted(changes, key=lambda n: (n.kind, len(n.path), [*map(rules.key, n.path)])):
        if change.kind == "add":
            there = len(taken)
            type_ = with_declared(change.type, declared, fold=fold, within=change.path)
            new = distinct({"struct": {change.path[-1]: type_}}, change.path[:-1], taken, rules.key)
            if new is None:
                continue
            added += len(taken) - there
            kind = new["struct"][change.path[-1]]
            change = replace(change, type=all_optional(kind) if rules.force_optional else kind)
        found.append(change)
    if added > rules.new_columns:
        raise ConfigError(
            f"table {name}: the records of one batch ask for {added} new columns, such as"
            f" {', '.join('.'.join(n.path) for n in found if n.kind == 'add')[:200]}; raise"
            f" iceberg.limits.new-columns = {rules.new_columns}, or make them one map or text column"
        )
    if added and len(table.schema().column_names) + added > rules.columns:
        raise ConfigError(
            f"table {name} has {len(table.schema().column_names)} columns, and {added} more would exceed"
            f" iceberg.limits.columns = {rules.columns}: raise it, or make them one map or text column"
        )
    return found
