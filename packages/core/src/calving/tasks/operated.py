"""What routed values do to the rows of their mutation tables: the operation of each value, and truncate events, which
concern all rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from calving.model.dead_letters import Stage
from calving.model.tables import MissingTable, TableSpec
from calving.records.arrays import compose, without
from calving.tasks.operations import UNCLEAR, operations
from calving.tasks.selection import Routed
from calving.writing.changes import INSERT, TRUNCATE, is_operation


class Operated(NamedTuple):
    """Values with their operations. ``truncates``: truncate events, with the tables that they empty."""

    routed: Routed
    truncates: Routed | None = None


def operated(routed: Routed, tables: Mapping[str, TableSpec], *, fold: bool) -> Operated:
    """The values with their operations, without truncate events: these are no rows, and are bad or filtered. ``fold``:
    case is ignored in the name of the cdc-field.
    """
    accounts = routed.selected.accounts
    lacking: dict[str, int] = {}
    known = {name: tables[name].mutations for name in routed.tables if name in tables}
    settings = {name: mutations for name, mutations in known.items() if mutations is not None}
    fails = any(mutations.on_truncate == "fail" for mutations in settings.values())
    emptied = tuple(name for name, mutations in settings.items() if mutations.on_truncate == "delete")
    found: Routed | None = None
    for table, mutations in settings.items():
        named = operations(routed.values, mutations, fold=fold)
        if named.null_count:
            lacking[f"without a value in cdc-field {mutations.cdc_field}"] = named.null_count
            named = pc.fill_null(named, INSERT)
        unclear = is_operation(named, UNCLEAR)
        if odd := len(pc.indices_nonzero(unclear)):
            lacking[f"whose text in cdc-field {mutations.cdc_field} names no operation"] = odd
            named = pc.if_else(unclear, pa.scalar(INSERT, pa.int8()), named)
        routed = replace(routed, operations={**routed.operations, table: named})
        truncates = pc.indices_nonzero(is_operation(named, TRUNCATE)).to_pylist()
        if not truncates:
            continue
        if fails:
            places = compose(routed.values.index, truncates)
            accounts.reject(places, Stage.CONVERSION, "UnfitError", "truncate event")
        else:
            accounts.filtered["truncate event"] += len(truncates)
            found = replace(routed.choose(truncates), tables=emptied) if emptied else None
        routed = routed.choose(without(len(named), dict.fromkeys(truncates)))
    accounts.unnamed.update(lacking)
    return Operated(routed, found)


def complete_only(routed: Routed, tables: Mapping[str, TableSpec | MissingTable]) -> Routed:
    """The values, unless they have only changed fields, and records change the rows of one of their tables, which does
    not complete such rows. ``tables``: also those that are missing.
    """
    content = routed.values.content
    if content not in ("partial row", "changed fields"):
        return routed
    for name in routed.tables:
        mutations = None if (table := tables.get(name)) is None else table.mutations
        if mutations is None or (content == "partial row" and mutations.keeps_unavailable):
            continue
        advice = (
            "a transform behind MongoDebeziumTransform may have changed the names of these fields: leave it out"
            if mutations.keeps_unavailable
            else "set on-unavailable-value = keep, which keeps these"
        )
        reason = (
            f"table {name}: the update has only the changed fields, and would empty all others: {advice}, or let the"
            " connector write whole documents (Debezium for MongoDB: capture.mode = change_streams_update_full)"
        )
        routed.selected.accounts.reject(routed.values.index, Stage.CONVERSION, "PartialUpdateError", reason)
        return routed.choose([])
    return routed
