"""The keys that name the id columns of tables, or leave it to the records' keys."""

from __future__ import annotations

from calving.errors import ConfigError
from calving.model.tables import BY_KEY
from calving.settings.keys import SinkKeys, TableKeys


def id_columns(keys: SinkKeys, own: TableKeys | None) -> tuple[str, ...]:
    """The id columns of a table with the keys ``own``; none if the records' keys name them."""
    names = _named(keys, own)
    return () if names == (BY_KEY,) else names


def is_by_key(keys: SinkKeys, own: TableKeys | None, where: str) -> bool:
    """Whether the records' keys name the id columns of a mutation table. ``where``: the prefix of its keys.

    :raises ConfigError: ``@key`` stands beside columns, or a key has no effect without it.
    """
    names = _named(keys, own)
    if BY_KEY in names and len(names) > 1:
        key = "iceberg.tables.default-id-columns" if own is None or own.id_columns is None else f"{where}id-columns"
        raise ConfigError(f"{key}: {BY_KEY} stands alone: the id columns are then all fields of the records' keys")
    if BY_KEY not in names and own is not None and own.on_missing_key is not None:
        raise ConfigError(f"{where}on-missing-key has no effect without id-columns = {BY_KEY}")
    return BY_KEY in names


def check_unused(own: TableKeys | None, where: str) -> None:
    """``own``: the keys of a table to which rows are only added.

    :raises ConfigError: its id columns are to come from keys, which only mutation tables read.
    """
    if own is not None and own.id_columns and BY_KEY in own.id_columns:
        raise ConfigError(
            f"{where}id-columns = {BY_KEY} has no effect without a cdc-field or upsert-mode-enabled = true"
        )


def _named(keys: SinkKeys, own: TableKeys | None) -> tuple[str, ...]:
    return keys.default_id_columns if own is None or own.id_columns is None else own.id_columns
