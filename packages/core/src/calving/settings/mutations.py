"""The mutation settings of tables."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from calving.errors import ConfigError
from calving.model.mutations import RowMutations
from calving.model.record_path import TransformSpec
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
        return None
    fields["cdc_field"] = fields["cdc_field"] or None
    fields["order_field"] = fields["order_field"] or None
    if fields["inserts"] is None:
        fields["inserts"] = "upsert" if fields["row_deletes"] == "positions" else "append"
    if fields["order_field"] is not None:
        _check_order(fields, changed, where)
    elif "order_type" in changed:
        raise ConfigError(f"{where}order-type has no effect without an order-field")
    return RowMutations(**fields)


def check_routed_tables(keys: SinkKeys, tables: Mapping[str, TableKeys], create_properties: Mapping[str, str]) -> None:
    """Check the defaults with dynamic routing: the sink creates tables that are not in the settings.

    :raises ConfigError: records could not change the rows of such tables.
    """
    mutations = row_mutations(keys)
    if mutations is None or not keys.auto_create or not keys.routes_freely:
        return
    if not keys.default_id_columns and not any(own.id_columns for own in tables.values()):
        key = "cdc-field" if mutations.cdc_field is not None else "upsert-mode-enabled"
        raise ConfigError(
            f"iceberg.tables.{key}: the tables that records are routed to would be created without id columns, and no"
            " row could be changed: set iceberg.tables.default-id-columns, or iceberg.tables.auto-create-enabled ="
            " false"
        )
    version = create_properties.get("format-version", "")
    why = mutations.refusal(int(version)) if version.isdigit() else None
    if why is not None:
        raise ConfigError(
            f"iceberg.tables.auto-create-props.format-version = {version}: the tables that records are routed to would"
            f" be created with it; {why}: set it to 2, or set iceberg.tables.auto-create-enabled = false"
        )


def unread_operations(mutations: Mapping[str, RowMutations | None], chain: Sequence[TransformSpec]) -> str | None:
    """The warning about tables in which deletes of a source are updates, because no cdc-field says where the transforms
    put the operation; None if there are no such tables. ``mutations``: by table, with an empty name for the defaults.
    """
    made = next((step for step in chain if step.type.rpartition(".")[2] in _MAKES_CDC), None)
    wrong = next((name for name, m in mutations.items() if m and m.cdc_field is None and m.tombstones == "skip"), None)
    if made is None or wrong is None:
        return None
    where = f"iceberg.table.{wrong}." if wrong else "iceberg.tables."
    return (
        f"{where}upsert-mode-enabled = true without a cdc-field: every event is an update, also a delete, whose row"
        f" stays; transform '{made.name}' puts the operation into _cdc.op: set {where}cdc-field = _cdc.op"
    )


_MAKES_CDC = ("DebeziumTransform", "DmsTransform")


def check_dead_letter_table(keys: SinkKeys, tables: Mapping[str, TableKeys]) -> None:
    """:raises ConfigError: the dead-letter table has keys that only tables of records have."""
    own = tables.get(keys.dead_letter_table or "")
    for name in () if own is None else ("columns", *MUTATIONS):
        if getattr(own, name):
            alias = TableKeys.model_fields[name].alias
            raise ConfigError(
                f"iceberg.table.{keys.dead_letter_table}.{alias} has no effect: its columns are fixed,"
                " and the sink only adds rows to the dead-letter table"
            )


def _check_order(found: Mapping[str, Any], changed: Collection[str], where: str) -> None:
    """:raises ConfigError: another key contradicts the order field."""
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
