"""The records of a campaign for mutation tables: each number is one change of one key."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Literal, NamedTuple

from campaign import records

Workload = Literal["append", "upsert", "cdc"]
PARTITIONS = 3
"""Of the source topic."""
_KEYS = 300
"""Of each of them."""


class Change(NamedTuple):
    """``proof`` is None if the row of the key is deleted."""

    table: str
    key: int
    proof: str | None


def change(number: int, tables: Sequence[str], workload: Workload) -> Change | None:
    """The change that the record of this number makes. None: it belongs in no table, or is appended.

    A key stays in its partition and its table.
    """
    if workload == "append" or records.place(number, tables)[0] not in tables:
        return None
    own = (number * 2654435761 >> 7) % _KEYS
    key = own * PARTITIONS + number * 7 % PARTITIONS  # the partition, as it is sent
    deletes = workload == "cdc" and number % 5 == 3
    proof = hashlib.sha256(str(number).encode()).hexdigest()[:16]
    return Change(tables[own % len(tables)], key, None if deletes else proof)


def place(number: int, tables: Sequence[str], workload: Workload) -> tuple[str, str]:
    """The table of a record, and its proof, or where else it goes."""
    found = change(number, tables, workload)
    return records.place(number, tables) if found is None else (found.table, found.proof or "")


def payload(number: int, tables: Sequence[str], workload: Workload) -> bytes | None:
    """The value of a record."""
    found = change(number, tables, workload)
    if found is None:
        return records.payload(number, tables)
    op = {"op": "d" if found.proof is None else "cu"[number % 2]} if workload == "cdc" else {}
    return json.dumps({"id": found.key, "route": found.table, "proof": found.proof or "", **op}).encode()


def settings(workload: Workload) -> dict[str, str | None]:
    """The keys that make records change rows."""
    if workload == "append":
        return {}
    how = {"iceberg.tables.cdc-field": "op"} if workload == "cdc" else {"iceberg.tables.upsert-mode-enabled": "true"}
    return {"iceberg.tables.default-id-columns": "id", **how}
