"""Checks whether records can change the rows of an existing table, or of a table that is to be created."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from pyiceberg.schema import Schema
from pyiceberg.types import BooleanType

from calving.casting.evolution import check_partition_names
from calving.errors import ConfigError
from calving.iceberg.new_tables import VERSION_KEY
from calving.iceberg.schemas import as_in
from calving.model.mutations import FORMER_SOFT_DELETE_FIELD, SOFT_DELETE_FIELD, RowMutations
from calving.model.tables import RESERVED_COLUMNS
from calving.writing.changes import identity


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
