"""The schemas that records give tables: those of new tables, and the new columns of existing ones."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from calving.casting.evolution import Path, distinct, fitting, names_in_use, size_of
from calving.casting.metadata import MetadataColumns
from calving.casting.type_counts import OutvotedValues, Seen, decide
from calving.errors import BadRecordError
from calving.iceberg.defaults import SINCE, warn_of_version, with_defaults
from calving.iceberg.rules import VERSION_KEY, TableRules, TableSettings, check_declared
from calving.iceberg.schemas import as_in, spec_names
from calving.model.tables import NO_COLUMN_BESIDE, SchemaChange
from calving.records.declared import declaration, with_declared
from calving.records.inferred import InferredType, all_optional, in_micros, merge
from calving.writing.schemas import moments, new_type, partition_spec, schema_of
from calving.writing.terms import parse_term

log = logging.getLogger(__name__)


def new_table(name: str, change: SchemaChange, rules: TableRules, version: int) -> tuple[Schema, PartitionSpec]:
    """The schema and the partition spec of a table that is created from the records that ask for it, in this format
    version.

    :raises ConfigError: the table cannot be created as the settings say.
    :raises BadRecordError: a few values would be bad, and bad records are not tolerated.
    """
    mine = rules.of(name)
    check_declared(name, mine.columns, fold=rules.fold)
    if mine.mutations is not None:
        change = _without_metadata(name, change, mine, fold=rules.fold)
    new = replace(mine.missing, moments=rules.moments(name, version))
    kind = new_type(name, _decided(name, change, rules), new, fold=rules.fold)
    kind = _within_limit(name, kind, change, rules)
    schema = schema_of(all_optional(kind) if rules.force_optional else kind, mine.id_columns, name)
    if rules.schema_defaults and version < SINCE:
        warn_of_version(name, kind, version, f"{VERSION_KEY} = {SINCE} creates tables that have them")
    elif rules.schema_defaults:
        columns = with_defaults(name, schema.as_struct(), kind, initial=False)
        schema = Schema(*columns.fields, identifier_field_ids=schema.identifier_field_ids)
    return schema, partition_spec(mine.partition_by, schema, name)


def _without_metadata(name: str, change: SchemaChange, mine: TableSettings, *, fold: bool) -> SchemaChange:
    """The fields of records, without those about changes that no setting asks for."""
    terms = [parse_term(term, name)[0] for term in mine.partition_by]
    chosen = () if mine.mutations is None else mine.mutations.metadata_columns
    needed = [*mine.id_columns, *terms, *mine.missing.told_fields]
    return MetadataColumns([*chosen, *needed], fold=fold).of_change(change)


def _decided(name: str, change: SchemaChange, rules: TableRules) -> InferredType | None:
    """The type that the records alone decide, without declared types.

    :raises BadRecordError: a few values would be bad, and bad records are not tolerated.
    """
    if change.seen is None:
        return change.type
    decision = decide(change.seen, rules.share, change.path)
    mine = rules.of(name)
    fixed = [rules.key(column) for column in mine.declared]
    if change.kind == "create":
        everything = merge(change.type, decision.all)
        fixed += [rules.key(column) for column, _ in moments(name, everything, mine.missing, fold=rules.fold)]
    for few in decision.outvoted:
        column = rules.key(".".join(few.path))
        if not any(column == each or column.startswith(f"{each}.") for each in fixed):
            _log_outvoted(name, few, rules)
    return merge(change.type, decision.kind)


def _log_outvoted(name: str, few: OutvotedValues, rules: TableRules) -> None:
    """:raises BadRecordError: nothing takes these values: an operator has to declare the column."""
    column = ".".join(few.path)
    text = (
        f"table {name}, column '{column}': {few.kept} of its first values are {declaration(few.kind)}, and {few.count}"
        f" would make it {declaration(merge(few.kind, few.needs))}, such as {', '.join(few.examples)}"
    )
    has_beside = rules.of(name).on_type_change != NO_COLUMN_BESIDE
    if rules.tolerates or has_beside:
        what = "values that do not fit go into a column beside it" if has_beside else _BAD
        log.warning("%s: the column becomes %s; %s", text, declaration(few.kind), what)
        return
    raise BadRecordError(
        f'{text}: declare it, iceberg.table.{name}.columns = "{column} {declaration(few.all)}" takes them all and'
        f' "{column} {declaration(few.kind)}" refuses the others; or set iceberg.tables.type-share = 0, by which every'
        " value counts, or errors.tolerance = all, by which the others become dead letters, or"
        " iceberg.tables.on-type-change = column, by which they go into a column beside it"
    )


_BAD = "records whose values do not fit are bad"


def possible(table: Table, changes: Sequence[SchemaChange], rules: TableRules) -> list[SchemaChange]:
    """The changes, without changes that would give a column the name of another, also of one that is renamed, or of a
    partition field. The result does not depend on the order of ``changes``.

    :raises BadRecordError: a few values would be bad, and bad records are not tolerated.
    """
    name = ".".join(table.name())
    declared, fold = rules.of(name).declared, rules.fold
    schema = table.schema()
    taken = {rules.key(known) for known in (*names_in_use(schema), *spec_names(table.metadata))}
    allowed: list[SchemaChange] = []
    renames = {change.path for change in changes if change.kind == "rename"}
    changes = [change for change in changes if not _is_begun(change, renames)]
    taken |= {rules.key(name) for path in renames for name in path[1:]}
    added = 0
    for change in sorted(changes, key=lambda n: (n.kind, len(n.path), [*map(rules.key, n.path)])):
        if change.kind == "add":
            there = len(taken)
            decided = _decided(name, change, rules)
            decided = decided if rules.moments(name, table.metadata.format_version).nanos else in_micros(decided)
            type_ = with_declared(decided, declared, fold=fold, within=change.path)
            new = distinct({"struct": {change.path[-1]: type_}}, change.path[:-1], taken, rules.key)
            if new is None:
                continue
            added += len(taken) - there
            kind = new["struct"][change.path[-1]]
            change = replace(change, type=all_optional(kind) if rules.force_optional else kind)
            if rules.fold:  # a column that has no type yet keeps its name
                (spelt,) = as_in(schema, [".".join(change.path)], fold=True)
                change = replace(change, path=(*change.path[:-1], spelt[-len(change.path[-1]) :]))
        allowed.append(change)
    room = rules.limits.columns - len(schema.column_names)
    return allowed if added <= room else _within_room(name, allowed, room, rules)


def _is_begun(change: SchemaChange, renames: Iterable[Path]) -> bool:
    """Whether the change is a rename, and the first part of another one."""
    there = (path[: len(change.path)] == change.path and path != change.path for path in renames)
    return change.kind == "rename" and any(there)


def _within_limit(name: str, kind: InferredType, change: SchemaChange, rules: TableRules) -> InferredType:
    """The columns of a new table, at most as many as a table may have: first those of the settings, then those for
    which most records have values. Records that need the others are bad.
    """
    mine, most, count = rules.of(name), rules.limits.columns, size_of(kind) - 1
    if count <= most:
        return kind
    terms = [parse_term(term, name)[0] for term in mine.partition_by]
    names = (*mine.id_columns, *mine.missing.told_fields, *terms, *mine.declared)
    needed = [f"{rules.key(column)}." for column in names]
    given = {} if change.seen is None else change.seen.get("fields", {})

    def rank(path: Path) -> tuple[bool, int, Path]:
        dotted = f"{rules.key('.'.join(path))}."
        is_needed = any(column.startswith(dotted) or dotted.startswith(column) for column in needed)
        return not is_needed, -_times(given.get(path[0])) if len(path) == 1 else 0, path

    log.warning(_TOO_MANY, name, count, most)
    return fitting(kind, most + 1, rank) or {"struct": {}}


def _within_room(name: str, changes: Sequence[SchemaChange], room: int, rules: TableRules) -> list[SchemaChange]:
    """The changes, without columns for which the table has no room. Columns for which most records have values go
    first; those that the sink fills itself always have room. Records that need the others are bad.
    """
    mutations = rules.of(name).mutations
    log.warning(_TOO_MANY, name, sum(size_of(n.type) for n in changes if n.kind == "add"), room)
    allowed: list[SchemaChange] = []
    for change in sorted(changes, key=lambda n: (-_times(n.seen), n.path)):
        is_own = mutations is not None and change.path in [(name,) for name in mutations.own_columns]
        if change.kind == "add" and not is_own:
            kind = fitting(change.type, room)
            if kind is None:
                continue
            room -= size_of(kind)
            change = replace(change, type=kind)
        allowed.append(change)
    return allowed


_TOO_MANY = (
    "table %s: records ask for %d new columns, and it has room for %d (iceberg.limits.columns): raise it, or declare"
    " one map or text column for fields with many names; records that need the others are bad"
)


def _times(seen: Seen | None) -> int:
    """The number of values without a schema that a column is for."""
    return 0 if seen is None else sum(seen["kinds"].values())
