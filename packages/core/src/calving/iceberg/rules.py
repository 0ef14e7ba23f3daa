"""The rules for tables: the settings by which they are created, format versions and schemas of missing tables, new
columns, and whether records can change the rows of a table.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema, index_by_name
from pyiceberg.table import Table
from pyiceberg.types import BooleanType

from calving.casting.evolution import check_partition_names, distinct, paths_of
from calving.casting.type_counts import OutvotedValues, decide
from calving.errors import BadRecordError, ConfigError
from calving.iceberg.catalog import is_rest
from calving.iceberg.schemas import as_in, parse_term, partition_spec, schema_of, spec_names, spelt, temporal
from calving.model.offsets import Coverage
from calving.model.record_path import TYPE_SHARE, Evolution, Limits
from calving.model.tables import (
    FORMER_SOFT_DELETE_FIELD,
    RESERVED_COLUMNS,
    SOFT_DELETE_FIELD,
    RowMutations,
    SchemaChange,
    Unit,
)
from calving.records.declared import declaration, with_declared
from calving.records.inferred import InferredType, all_optional, find, merge
from calving.writing.changes import identity


@dataclass(frozen=True, slots=True)
class TableSettings:
    """How one table is created and changed; ``mutations`` is None if records are appended."""

    partition_by: tuple[str, ...] = ()
    id_columns: tuple[str, ...] = ()
    location: str | None = None
    mutations: RowMutations | None = None
    columns: Mapping[str, InferredType] = field(default_factory=dict)
    """Columns with which the table is created."""
    types: Mapping[str, InferredType] = field(default_factory=dict)
    """The types that columns get when they occur in records, by name."""
    units: Mapping[str, Unit] = field(default_factory=dict)
    """The units in which whole numbers count moments, by the dotted name of the column."""

    @property
    def declared(self) -> Mapping[str, InferredType]:
        """All declared types."""
        return {**self.types, **self.columns}


@dataclass(frozen=True, slots=True)
class TableRules:
    """How tables are created and written."""

    write_properties: Mapping[str, str] = field(default_factory=dict)
    create_properties: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[str, TableSettings] = field(default_factory=dict)
    defaults: TableSettings = TableSettings()
    force_optional: bool = False
    left_out: Callable[[str, Mapping[str, str]], Coverage] = lambda name, properties: {}
    """The offsets to skip for a table with these properties."""
    evolution: Evolution = field(default_factory=Evolution)
    limits: Limits = field(default_factory=Limits)
    share: float = TYPE_SHARE
    """If at most this share of a new column's values needs a wider type, these values do not decide the type of the
    column.
    """
    any_year: bool = False
    """Whether dates and timestamps outside the years 1 to 9999 are taken."""
    tolerates: bool = False
    """Whether bad records become dead letters."""

    def of(self, table: str) -> TableSettings:
        return self.tables.get(table, self.defaults)

    @property
    def fold(self) -> bool:
        """Whether names of columns that differ only in case are one name."""
        return self.evolution.case_insensitive

    def key(self, name: str) -> str:
        """The form of a column's name that must be unique in a table."""
        return name.lower() if self.fold else name


log = logging.getLogger(__name__)

VERSION_KEY = "iceberg.tables.auto-create-props.format-version"
_MOMENTS = ("string", "int", "long", "double")
"""Types of schemaless values that may be timestamps: ISO text, or milliseconds."""


def new_version(catalog: Catalog, properties: Mapping[str, str]) -> int:
    """The expected format version of a table that the catalog creates with these properties. A REST catalog may have
    another default, which it does not tell.

    :raises ConfigError: the configured version is no number.
    """
    told = catalog.properties.get("table-default.format-version") if is_rest(catalog) else None
    version = properties.get("format-version", told or "2")
    if not version.isdecimal():
        raise ConfigError(f"{VERSION_KEY} = {version}: it is a number")
    return int(version)


def new_table(name: str, change: SchemaChange, rules: TableRules) -> tuple[Schema, PartitionSpec]:
    """The schema and the partition spec of a table that is created from the records that ask for it.

    :raises ConfigError: the table cannot be created as the settings say.
    :raises BadRecordError: a few values would be bad, and bad records are not tolerated.
    """
    mine, fold = rules.of(name), rules.fold
    kind = _decided(name, change, rules)
    kind = distinct(kind, (), set(), rules.key) or {"struct": {}}
    terms = [parse_term(term, name)[0] for term in mine.partition_by]
    if fold:
        kind = spelt(kind, [*mine.id_columns, *terms, *mine.declared])
    kind = with_declared(kind, _moments(name, kind, rules), fold=fold)
    check_declared(name, mine.columns, fold=fold)
    kind = with_declared(kind, mine.declared, everywhere=mine.columns, fold=fold)
    count = sum(1 for _ in paths_of(kind))
    if count > rules.limits.columns:
        raise ConfigError(
            f"table {name} would have {count} columns, more than iceberg.limits.columns ="
            f" {rules.limits.columns}: raise it, or declare some of them as one map or text column"
        )
    schema = schema_of(all_optional(kind) if rules.force_optional else kind, mine.id_columns, name)
    return schema, partition_spec(mine.partition_by, schema, name)


def check_declared(name: str, columns: Iterable[str], *, fold: bool) -> None:
    """Check the names of columns with which the table is to be created.

    :raises ConfigError: Iceberg reserves one of them.
    """
    for column in columns:
        if (column.lower() if fold else column) in RESERVED_COLUMNS:
            raise ConfigError(
                f"table {name}: iceberg.table.{name}.columns: Iceberg reserves the name {column}, and Spark could not"
                " read the table: choose another name"
            )


def _decided(name: str, change: SchemaChange, rules: TableRules) -> InferredType | None:
    """The type that the records alone decide, without declared types.

    :raises BadRecordError: a few values would be bad, and bad records are not tolerated.
    """
    if change.seen is None:
        return change.type
    decision = decide(change.seen, rules.share, change.path)
    fixed = [*rules.of(name).declared]
    if change.kind == "create":
        fixed += [column for term in rules.of(name).partition_by if (column := temporal(term, name)) is not None]
    fixed = [rules.key(column) for column in fixed]
    for few in decision.outvoted:
        column = rules.key(".".join(few.path))
        if not any(column == each or column.startswith(f"{each}.") for each in fixed):
            _mind(name, few, rules)
    return merge(change.type, decision.kind)


def _mind(name: str, few: OutvotedValues, rules: TableRules) -> None:
    """:raises BadRecordError: bad records are not tolerated, so an operator has to declare the column."""
    column = ".".join(few.path)
    text = (
        f"table {name}, column '{column}': {few.kept} of its first values are {declaration(few.kind)}, and {few.count}"
        f" would make it {declaration(merge(few.kind, few.needs))}, such as {', '.join(few.examples)}"
    )
    if rules.tolerates:
        log.warning("%s: the column becomes %s; records whose values do not fit are bad", text, declaration(few.kind))
        return
    raise BadRecordError(
        f'{text}: declare it, iceberg.table.{name}.columns = "{column} {declaration(few.all)}" takes them all and'
        f' "{column} {declaration(few.kind)}" refuses the others; or set iceberg.tables.type-share = 0, by which every'
        " value counts, or errors.tolerance = all, by which the others become dead letters"
    )


def _moments(name: str, kind: InferredType, rules: TableRules) -> dict[str, InferredType]:
    """Columns with a partition term of time. They become timestamps, although the records' values are not declared as
    timestamps.
    """
    columns = [column for term in rules.of(name).partition_by if (column := temporal(term, name)) is not None]
    places = {column: find(kind, column, rules.key) for column in columns}
    return {column: "timestamptz" for column, there in places.items() if there is not None and there[1] in _MOMENTS}


def possible(table: Table, changes: Sequence[SchemaChange], rules: TableRules) -> list[SchemaChange]:
    """The changes, without changes that would give a column the name of another, or of a partition field. The result
    does not depend on the order of ``changes``.

    :raises ConfigError: the table would have too many columns.
    :raises BadRecordError: a few values would be bad, and bad records are not tolerated.
    """
    name = ".".join(table.name())
    declared, fold = rules.of(name).declared, rules.fold
    taken = {rules.key(known) for known in (*index_by_name(table.schema()), *spec_names(table.metadata))}
    allowed: list[SchemaChange] = []
    added = 0
    for change in sorted(changes, key=lambda n: (n.kind, len(n.path), [*map(rules.key, n.path)])):
        if change.kind == "add":
            there = len(taken)
            type_ = with_declared(_decided(name, change, rules), declared, fold=fold, within=change.path)
            new = distinct({"struct": {change.path[-1]: type_}}, change.path[:-1], taken, rules.key)
            if new is None:
                continue
            added += len(taken) - there
            kind = new["struct"][change.path[-1]]
            change = replace(change, type=all_optional(kind) if rules.force_optional else kind)
        allowed.append(change)
    if added > rules.limits.new_columns:
        raise ConfigError(
            f"table {name}: the records of one batch ask for {added} new columns, such as"
            f" {', '.join('.'.join(n.path) for n in allowed if n.kind == 'add')[:200]}; raise"
            f" iceberg.limits.new-columns = {rules.limits.new_columns}, or make them one map or text column"
        )
    if added and len(table.schema().column_names) + added > rules.limits.columns:
        raise ConfigError(
            f"table {name} has {len(table.schema().column_names)} columns, and {added} more would exceed"
            f" iceberg.limits.columns = {rules.limits.columns}: raise it, or make them one map or text column"
        )
    return allowed


def check_mutations(
    name: str, version: int, schema: Schema, id_columns: Sequence[str], mutations: RowMutations, *, new: bool = False
) -> None:
    """``new``: the table is to be created with this format version and schema.

    :raises ConfigError: the table's rows cannot be changed as the settings say.
    """
    check_version(name, version, mutations, new=new)
    try:
        identity(name, schema, id_columns, mutations)
        kinds = {column.name: str(column.field_type) for column in schema.fields}
        if mutations.soft_delete_field in kinds:
            check_soft_field(name, mutations, kinds[mutations.soft_delete_field])
        else:
            check_soft_name(name, mutations)
    except ConfigError as error:
        if new:
            raise ConfigError(f"{error}; the table was not created") from error
        raise


def check_soft_addition(name: str, mutations: RowMutations, schema: Schema, partition_names: Iterable[str]) -> None:
    """:raises ConfigError: the column that marks deleted rows is missing, and cannot be added."""
    soft = mutations.soft_delete_field
    if mutations.delete_mode == "soft" and soft not in [column.name for column in schema.fields]:
        try:
            check_partition_names([soft], {*partition_names})
        except ValueError as error:
            raise ConfigError(f"table {name}: soft-delete-field {soft}: {error}; name another column") from error


def spelt_mutations(schema: Schema, mutations: RowMutations, *, fold: bool) -> RowMutations:
    """The settings, with the names of columns as the schema spells them. With ``fold``, case is ignored.

    A table whose deleted rows an earlier version has marked in its default column keeps that column.
    """
    order, soft = mutations.order_field, mutations.soft_delete_field
    marks = {column.name for column in schema.fields if isinstance(column.field_type, BooleanType)}
    if soft == SOFT_DELETE_FIELD not in schema.column_names and FORMER_SOFT_DELETE_FIELD in marks:
        soft = FORMER_SOFT_DELETE_FIELD
    if not fold:
        return replace(mutations, soft_delete_field=soft)
    top = [column.name for column in schema.fields]
    if soft not in top:
        soft = next((name for name in top if name.lower() == soft.lower()), soft)
    if order is not None:
        (order,) = as_in(schema, [order], fold=True)
    return replace(mutations, order_field=order, soft_delete_field=soft)


def check_version(name: str, version: int, mutations: RowMutations, *, new: bool = False) -> None:
    """:raises ConfigError: tables of this format version do not take these mutations."""
    why = mutations.refusal(version)
    if why is None:
        return
    if new:
        or_else = " or row-deletes = positions" if version > 2 else ""
        raise ConfigError(
            f"table {name} would be created with format version {version}; {why}: set {VERSION_KEY} = 2{or_else}"
        )
    raise ConfigError(f"table {name} has format version {version}; {why}")


def check_soft_name(name: str, mutations: RowMutations) -> None:
    """Check the name of a soft-delete-field that is to be added.

    :raises ConfigError: Iceberg reserves the name.
    """
    if mutations.delete_mode == "soft" and mutations.soft_delete_field in RESERVED_COLUMNS:
        raise ConfigError(
            f"table {name}: soft-delete-field = {mutations.soft_delete_field}: Iceberg reserves this name, and Spark"
            f" could not read the table: choose another name, such as {SOFT_DELETE_FIELD}"
        )


def reserved_mark(name: str, mutations: RowMutations) -> str | None:
    """The warning about a table whose soft-delete-field has a name that Iceberg reserves; None if it has not."""
    if mutations.delete_mode != "soft" or mutations.soft_delete_field not in RESERVED_COLUMNS:
        return None
    return (
        f"table {name} marks deleted rows in the column {mutations.soft_delete_field}, a name that Iceberg reserves:"
        f" Spark cannot read the table. Rename it: ALTER TABLE {name} RENAME COLUMN {mutations.soft_delete_field} TO"
        f" {SOFT_DELETE_FIELD}; if soft-delete-field is set, stop the sink before, and leave the key out afterwards"
    )


def check_soft_field(name: str, mutations: RowMutations, kind: str) -> None:
    """``kind``: the type of the column that has the name of the soft-delete-field.

    :raises ConfigError: a column of this type cannot mark deleted rows.
    """
    if mutations.delete_mode == "soft" and kind != "boolean":
        raise ConfigError(
            f"table {name}: its soft-delete-field {mutations.soft_delete_field} is {kind}, not boolean: name another"
            f" column (if the sink creates the table, iceberg.table.{name}.columns can declare this one as boolean)"
        )
