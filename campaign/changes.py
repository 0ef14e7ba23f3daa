"""The records of a campaign for mutation tables, which are of several kinds: each number is one change of one key."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Literal, NamedTuple

from campaign import records

Workload = Literal["append", "upsert", "cdc", "mixed"]
Warehouse = Literal["local", "rest", "s3"]
Kind = Literal[
    "plain",
    "by key",
    "equality",
    "by key, equality",
    "ordered",
    "by key, ordered",
    "ordered, soft",
    "by key, ordered, soft",
    "appended",
]
"""Of a table: partitioned by its key or not; its deletes are positions or keys; the offset of a record decides which
change is the last, or a column does; rows that are deleted go, or stay and are marked. Or each record is a row of its
own.
"""
GONE = "deleted by "
"""Before the proof of a row that is marked as deleted."""
PARTITIONS = 3
"""Of the source topic."""
_KEYS = 300
"""Of each of them."""
_LATE = 500
"""By so many records a late one is older than its place says."""


class Change(NamedTuple):
    """``proof`` is None if the row of the key goes, and begins with ``GONE`` if it stays, marked as deleted. Of the
    changes of a key the last with the greatest ``order`` counts.
    """

    table: str
    key: int
    proof: str | None
    order: int = 0


def kind(place: int, workload: Workload, warehouse: Warehouse) -> Kind:
    """The kind of the table that comes at this place among the tables. Those behind a REST catalog have format version
    3, which takes no keys as deletes. Where a column decides, no row goes: it would leave nothing that a late change
    could be compared with.
    """
    if workload == "mixed":
        return "appended" if place % 2 else "plain"
    kinds: list[Kind] = ["plain", "by key"]
    if warehouse == "local":
        kinds += ["equality", "by key, equality"]
    if workload == "upsert":
        kinds += ["ordered", "by key, ordered"]
    if workload == "cdc":
        kinds += ["ordered, soft", "by key, ordered, soft"]
    return kinds[place % len(kinds)]


def change(number: int, tables: Sequence[str], workload: Workload, warehouse: Warehouse = "local") -> Change | None:
    """The change that the record of this number makes. None: it belongs in no table, or is appended.

    A key stays in its partition and its table.
    """
    if workload == "append" or records.place(number, tables)[0] not in tables:
        return None
    own = (number * 2654435761 >> 7) % _KEYS
    key = own * PARTITIONS + number * 7 % PARTITIONS  # the partition, as it is sent
    at = own % len(tables)
    words = kind(at, workload, warehouse)
    if words == "appended":
        key = _KEYS * PARTITIONS + number
    proof: str | None = _proof(number)
    if _deletes(number, workload):
        proof = f"{GONE}{proof}" if "soft" in words else None
    return Change(tables[at], key, proof, _order(number) if "ordered" in words else 0)


def _proof(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()[:16]


def _deletes(number: int, workload: Workload) -> bool:
    return workload == "cdc" and number % 5 == 3


def _order(number: int) -> int:
    """One record in five comes late, half of the deletes among them. No two have the same."""
    return number - _LATE if number % 10 in (7, 8) else number


def place(number: int, tables: Sequence[str], workload: Workload) -> tuple[str, str]:
    """The table of a record, and its proof, or where else it goes."""
    found = change(number, tables, workload)
    return records.place(number, tables) if found is None else (found.table, found.proof or "")


def payload(number: int, tables: Sequence[str], workload: Workload, *, poisoned: bool = True) -> bytes | None:
    """The value of a record. ``poisoned``: see ``records.payload``."""
    found = change(number, tables, workload)
    if found is None:
        return records.payload(number, tables, poisoned=poisoned)
    op = {"op": "d" if _deletes(number, workload) else "cu"[number % 2]} if workload == "cdc" else {}
    row = {"id": found.key, "route": found.table, "proof": _proof(number), "seq": _order(number), **op}
    return json.dumps(row).encode()


def settings(workload: Workload, warehouse: Warehouse, tables: Sequence[str]) -> dict[str, str | None]:
    """The keys that make records change rows, and tables of several kinds."""
    if workload == "append":
        return {}
    if workload == "mixed":
        changed = [name for at, name in enumerate(tables) if kind(at, workload, warehouse) != "appended"]
        keys = {"upsert-mode-enabled": "true", "id-columns": "id"}
        return {f"iceberg.table.{name}.{key}": text for name in changed for key, text in keys.items()}
    how = {"iceberg.tables.cdc-field": "op"} if workload == "cdc" else {"iceberg.tables.upsert-mode-enabled": "true"}
    version = {} if warehouse == "local" else {"iceberg.tables.auto-create-props.format-version": "3"}
    own: dict[str, str | None] = {}
    for place, name in enumerate(tables):
        words = kind(place, workload, warehouse)
        if "by key" in words:
            own[f"iceberg.table.{name}.partition-by"] = "bucket(id, 3)"
        if "equality" in words:
            own |= {f"iceberg.table.{name}.row-deletes": "equality", f"iceberg.table.{name}.inserts": "upsert"}
        if "ordered" in words:
            own[f"iceberg.table.{name}.order-field"] = "seq"
        if "soft" in words:
            own[f"iceberg.table.{name}.delete-mode"] = "soft"
    return {"iceberg.tables.default-id-columns": "id", **how, **version, **own}
