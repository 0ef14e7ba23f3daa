"""Checks whether records can change the rows of an existing table, or of a table that is to be created."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyiceberg.schema import Schema

from calving.errors import ConfigError
from calving.iceberg.new_tables import VERSION_KEY
from calving.iceberg.schemas import as_in
from calving.model.mutations import RowMutations
from calving.writing.identity import identity


def check_mutations(
    name: str, version: int, schema: Schema, id_columns: Sequence[str], mutations: RowMutations, *, new: bool = False
) -> None:
    """``new``: the table is to be created with this format version and schema.

    :raises ConfigError: the table's rows cannot be changed as the settings say.
    """
    check_version(name, version, mutations, new=new)
    try:
        identity(name, schema, id_columns, mutations)
        for column in schema.fields:
            if column.name == mutations.soft_delete_field:
                check_soft_field(name, mutations, str(column.field_type))
    except ConfigError as error:
        if new:
            raise ConfigError(f"{error}; the table was not created") from error
        raise


def spelt_mutations(schema: Schema, mutations: RowMutations, *, fold: bool) -> RowMutations:
    """The settings, with the names of columns as the schema spells them. With ``fold``, case is ignored."""
    if not fold:
        return mutations
    order, soft = mutations.order_field, mutations.soft_delete_field
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


def check_soft_field(name: str, mutations: RowMutations, kind: str) -> None:
    """``kind``: the type of the column that has the name of the soft-delete-field.

    :raises ConfigError: a column of this type cannot mark deleted rows.
    """
    if mutations.delete_mode == "soft" and kind != "boolean":
        raise ConfigError(
            f"table {name}: its soft-delete-field {mutations.soft_delete_field} is {kind}, not boolean: name another"
            f" column (if the sink creates the table, iceberg.table.{name}.columns can declare this one as boolean)"
        )
