"""The keys that say what becomes of values that do not fit their column."""

from __future__ import annotations

from collections.abc import Mapping

from calving.errors import ConfigError
from calving.model.tables import NO_COLUMN_BESIDE, OnTypeChange, RowMutations
from calving.settings.keys import SinkKeys, TableKeys


def on_type_change(keys: SinkKeys, own: TableKeys | None) -> OnTypeChange:
    """What becomes of such values in a table with the keys ``own``."""
    return keys.on_type_change if own is None or own.on_type_change is None else own.on_type_change


def check_type_changes(
    keys: SinkKeys, tables: Mapping[str, TableKeys], mutations: Mapping[str, RowMutations | None]
) -> None:
    """``mutations``: of all tables, with an empty name for the defaults.

    :raises ConfigError: a column beside another one could not be added, or would keep a value that is no longer its
        row's.
    """
    for table, settings in mutations.items():
        own = tables.get(table)
        found = on_type_change(keys, own)
        if found == NO_COLUMN_BESIDE:
            continue
        where = "iceberg.tables." if own is None or own.on_type_change is None else f"iceberg.table.{table}."
        given = f"{where}on-type-change = {found}"
        if not keys.evolve:
            raise ConfigError(f"{given} needs iceberg.tables.evolve-schema-enabled = true: it adds columns")
        if settings is not None and settings.keeps:
            keeping = "unset-fields" if settings.keeps_unset else "on-unavailable-value"
            in_table = f" in table {table}" if table else ""
            raise ConfigError(
                f"{given} and {keeping} = keep exclude each other{in_table}: an update with a value for one of two"
                " columns beside each other would keep the former value of the other"
            )
