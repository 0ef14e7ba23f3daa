"""The rules for tables: the settings by which they are created, format versions and schemas of missing tables, new
columns, and whether records can change the rows of a table.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.types import BooleanType

from calving.casting.evolution import UnfitError, check_partition_names
from calving.errors import ConfigError
from calving.iceberg.catalog import is_rest
from calving.iceberg.schemas import as_in
from calving.model.offsets import Coverage
from calving.model.record_path import TYPE_SHARE, Evolution, Limits
from calving.model.tables import (
    FORMER_SOFT_DELETE_FIELD,
    NO_COLUMN_BESIDE,
    PARTITIONED,
    RESERVED_COLUMNS,
    SOFT_DELETE_FIELD,
    VALID_TO,
    VERSION_COLUMNS,
    KeyFields,
    Landing,
    MissingTable,
    Moments,
    OnTypeChange,
    RowMutations,
    SchemaChange,
    Unit,
)
from calving.records.inferred import InferredType
from calving.writing.changes import identity
from calving.writing.sources import truncate_column
from calving.writing.versions import VersionColumns


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
    landing: Landing = PARTITIONED
    """Whether files are written into the table's partitions, or landed in none."""
    on_type_change: OnTypeChange = NO_COLUMN_BESIDE
    """What becomes of a value that does not fit its column."""

    @property
    def declared(self) -> Mapping[str, InferredType]:
        """All declared types. The column that marks deleted rows is boolean, whatever records have there."""
        soft = self.mutations is not None and self.mutations.delete_mode == "soft"
        marks = {self.mutations.soft_delete_field: "boolean"} if self.mutations is not None and soft else {}
        return {**marks, **self.types, **self.columns}

    @property
    def missing(self) -> MissingTable:
        """What records need to know about the table as long as it does not exist."""
        return MissingTable(self.id_columns, (*self.columns,), self.declared, self.partition_by, self.mutations)


@dataclass(frozen=True, slots=True)
class TableRules:
    """How tables are created and written."""

    write_properties: Mapping[str, str] = field(default_factory=dict)
    create_properties: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[str, TableSettings] = field(default_factory=dict)
    defaults: TableSettings = TableSettings()
    force_optional: bool = False
    schema_defaults: bool = False
    """Whether new columns get the default values that the records' schemas declare."""
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
    nanos: bool = False
    """Whether new columns for the nanoseconds of a schema count nanoseconds, in format versions that can."""
    tolerates: bool = False
    """Whether bad records become dead letters."""
    creator: str = ""
    """The owner that new tables name as the sink that has created them; empty: they name none."""
    configured: frozenset[str] | None = None
    """The tables that the settings name, if records name the others; None: records name no table."""

    def is_named_by_records(self, table: str) -> bool:
        """Whether records name this table. Then no fault of the table is a reason to stop the sink: any record can
        name a table that cannot take it.
        """
        return self.configured is not None and table not in self.configured

    def is_mark(self, table: str, change: SchemaChange) -> bool:
        """Whether the change adds a column that the sink fills itself: without it, the table takes no record."""
        mutations = self.of(table).mutations
        own = () if mutations is None else mutations.own_columns
        return change.kind == "add" and [*map(self.key, change.path)] in [[self.key(name)] for name in own]

    def created_by(self, table: str, keys: Collection[KeyFields]) -> TableRules:
        """The rules for a table that records create whose keys have these fields.

        :raises UnfitError: the keys do not agree on the id columns.
        """
        mine = self.of(table)
        if mine.mutations is None or not mine.mutations.by_key:
            return self
        if len(keys) > 1:
            named = "; ".join(", ".join(fields) or "none" for fields in sorted(keys))
            raise UnfitError((), f"the keys of its records do not name the same id columns: {named}")
        ids = next(iter(keys), ())
        mine = replace(mine, id_columns=ids, mutations=mine.mutations if ids else None)
        return replace(self, tables={**self.tables, table: mine})

    def moments(self, table: str, version: int) -> Moments:
        """The moments of the columns of a table of this format version."""
        return Moments(self.of(table).units, self.any_year, self.nanos and version >= NANOS_SINCE)

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
NANOS_SINCE = 3
"""The first format version with timestamps in nanoseconds."""


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


def in_use(schema: Schema, mutations: RowMutations | None) -> RowMutations | None:
    """The mutations of a table with this schema; None if its records have no keys, so that rows are only added."""
    if mutations is None or not mutations.by_key or schema.identifier_field_ids:
        return mutations
    return None if mutations.on_missing_key == "append" else mutations


def check_mutations(
    name: str, version: int, schema: Schema, id_columns: Sequence[str], mutations: RowMutations, *, new: bool = False
) -> None:
    """``new``: the table is to be created with this format version and schema.

    :raises ConfigError: the table's rows cannot be changed as the settings say.
    """
    check_version(name, version, mutations, new=new)
    try:
        identity(name, schema, id_columns, mutations)
        truncate_column(name, schema, mutations)
        kinds = {column.name: str(column.field_type) for column in schema.fields}
        if mutations.soft_delete_field in kinds:
            check_soft_field(name, mutations, kinds[mutations.soft_delete_field])
        else:
            check_soft_name(name, mutations)
        if mutations.has_versions:
            check_versions(name, schema, id_columns, mutations)
    except ConfigError as error:
        if new:
            raise ConfigError(f"{error}; the table was not created") from error
        raise


def check_soft_addition(name: str, mutations: RowMutations, schema: Schema, partition_names: Iterable[str]) -> None:
    """:raises ConfigError: a column that the sink fills itself is missing, and cannot be added."""
    known = [column.name for column in schema.fields]
    for own in (column for column in mutations.own_columns if column not in known):
        try:
            check_partition_names([own], {*partition_names})
        except ValueError as error:
            if mutations.has_versions:
                raise ConfigError(f"table {name}: history = on needs the column {own}: {error}") from error
            raise ConfigError(f"table {name}: soft-delete-field {own}: {error}; name another column") from error


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
    order, truncate = (
        name if name is None else as_in(schema, [name], fold=True)[0] for name in (order, mutations.truncate_field)
    )
    return replace(mutations, order_field=order, truncate_field=truncate, soft_delete_field=soft)


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


def check_versions(name: str, schema: Schema, id_columns: Iterable[str], mutations: RowMutations) -> None:
    """:raises ConfigError: the table cannot keep versions of its rows in this schema."""
    columns = VersionColumns.of(schema, mutations.order_field)
    for column in columns.known:
        if not columns.takes(column):
            wanted = columns.kinds[column.name.lower()]
            raise ConfigError(
                f"table {name}: its column {column.name} is {column.field_type}, and history = on needs {wanted} there:"
                " rename the column, or leave history out"
            )
        if column.required and column.name.lower() == VALID_TO:
            raise ConfigError(
                f"table {name}: its column {column.name} is required, and history = on leaves it empty in current"
                " versions: make it optional"
            )
    identifying = [schema.find_field(each).name for each in schema.identifier_field_ids]
    if named := [each for each in (*id_columns, *identifying) if each.lower() in VERSION_COLUMNS]:
        raise ConfigError(f"table {name}: {named[0]} is an id column, and history = on fills it with the time")


def lost_versions(name: str, schema: Schema, mutations: RowMutations) -> str | None:
    """The warning about a table whose versions changes delete; None if it has none."""
    if mutations.has_versions or not {column.name.lower() for column in schema.fields}.issuperset(VERSION_COLUMNS):
        return None
    return (
        f"table {name} has the columns of versions ({', '.join(VERSION_COLUMNS)}), and history is off: a change of a"
        " key deletes all of its versions; set history = on to keep them"
    )
