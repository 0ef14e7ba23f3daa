"""The keys that say whether and how records change the rows of a table."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from calving.errors import ConfigError
from calving.model.tables import VERSION_COLUMNS, RowMutations
from calving.settings.id_columns import check_unused, is_by_key
from calving.settings.keys import MUTATIONS, SinkKeys, TableKeys


def row_mutations(keys: SinkKeys, table: str = "", own: TableKeys | None = None) -> RowMutations | None:
    """The mutation settings of a table from the sink's keys and the table's ``own``; None: rows are only appended.

    :raises ConfigError: the keys contradict each other.
    """
    fields = {name: getattr(keys, name) for name in MUTATIONS}
    changed = {name: value for name in MUTATIONS if (value := getattr(own, name, None)) is not None}
    fields |= changed
    where = f"iceberg.table.{table}." if table else "iceberg.tables."
    if not fields["cdc_field"] and not fields["upsert"]:
        if idle := sorted(changed.keys() - {"cdc_field", "upsert"}):
            alias = TableKeys.model_fields[idle[0]].alias
            raise ConfigError(f"{where}{alias} has no effect without a cdc-field or upsert-mode-enabled = true")
        check_unused(own, where)
        return None
    fields["cdc_field"] = fields["cdc_field"] or None
    fields["order_field"] = fields["order_field"] or None
    fields["truncate_field"] = _truncate_field(fields, changed, where)
    if fields["inserts"] is None:
        fields["inserts"] = "upsert" if fields["row_deletes"] == "positions" else "append"
    _check_order_field(fields, changed, where)
    _check_keeping(fields, where)
    _check_history(fields, where)
    mutations = RowMutations(**fields, by_key=is_by_key(keys, own, where))
    if (why := mutations.contradiction) is not None:
        raise ConfigError(f"{where}{why}")
    return mutations


def _truncate_field(found: Mapping[str, Any], changed: Mapping[str, Any], where: str) -> str | None:
    """The truncate-field of a table whose truncate events delete rows.

    :raises ConfigError: the table has one of its own, and its truncate events delete none.
    """
    if found["on_truncate"] == "delete":
        return found["truncate_field"] or None
    if changed.get("truncate_field"):
        raise ConfigError(f"{where}truncate-field has no effect without on-truncate = delete")
    return None


def _check_keeping(found: Mapping[str, Any], where: str) -> None:
    """:raises ConfigError: another key contradicts that updates keep stored values."""
    keys = [key for key in ("on-unavailable-value", "unset-fields") if found[key.replace("-", "_")] == "keep"]
    if not keys:
        return
    keeping = f"{where}{keys[0]} = keep"
    if found["row_deletes"] != "positions":
        raise ConfigError(f"{keeping} needs row-deletes = positions: the stored row is found by its position")
    if found["inserts"] == "append":
        raise ConfigError(
            f"{keeping} and inserts = append exclude each other: a key with several rows has no one row whose values"
            " are kept"
        )
    if found["order_field"] is not None:
        raise ConfigError(
            f"{keeping} and order-field exclude each other: a change that comes late would keep values that are newer"
            " than itself; without an order-field the order of the topic counts"
        )


def _check_order_field(found: Mapping[str, Any], changed: Collection[str], where: str) -> None:
    """:raises ConfigError: another key contradicts the order field, or has no effect without one."""
    if found["order_field"] is None:
        if "order_type" in changed:
            raise ConfigError(f"{where}order-type has no effect without an order-field")
        return
    if found["row_deletes"] != "positions":
        raise ConfigError(f"{where}order-field needs row-deletes = positions")
    if found["inserts"] == "append":
        raise ConfigError(
            f"{where}order-field and inserts = append exclude each other: an insert would keep its row whatever its"
            " order value; leave one of them out"
        )
    if found["tombstones"] == "delete":
        by_tombstones, by_order = (
            where if name in changed else "iceberg.tables." for name in ("tombstones", "order_field")
        )
        raise ConfigError(
            f"{by_tombstones}tombstones = delete and {by_order}order-field = {found['order_field']} exclude each other:"
            " a record without a value has no order value, and would delete nothing; set tombstones = skip, and delete"
            " by a cdc-field, or leave out the order-field"
        )


def _check_history(found: Mapping[str, Any], where: str) -> None:
    """:raises ConfigError: another key contradicts that the table keeps the versions of its rows."""
    if found["history"] == "off":
        return
    history = f"{where}history = on"
    if found["row_deletes"] != "positions":
        raise ConfigError(f"{history} needs row-deletes = positions: the version that a change ends is written anew")
    excluded = (
        ("inserts", "append", "an insert begins a version, and ends the one before it"),
        ("delete_mode", "soft", "a deleted row stays anyway, and its last version ends with the delete"),
        ("on_truncate", "delete", "a truncate event names no row whose version it would end; set skip or fail"),
        ("on_unavailable_value", "keep", "each version is written whole; the source has to send all values"),
        ("unset_fields", "keep", "each version is written whole; the source has to send all fields"),
    )
    for name, value, why in excluded:
        if found[name] == value:
            raise ConfigError(f"{history} and {name.replace('_', '-')} = {value} exclude each other: {why}")
    if (found["order_field"] or "").lower() in VERSION_COLUMNS:
        raise ConfigError(
            f"{history} and order-field = {found['order_field']} exclude each other: calving fills this column from the"
            " order-field; name another column"
        )
