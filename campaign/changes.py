"""The records of a campaign for mutation tables, which are of several kinds: each number is one change of one key."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from campaign import records

Workload = Literal["append", "upsert", "cdc", "mixed", "partial", "history"]
OF_THIS_VERSION: Sequence[Workload] = ("partial", "history")
"""A former version has no such settings."""
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
    "partial, emptied",
    "by key, partial, skipping",
    "by key, of sources",
    "history",
    "by key, history",
    "history, ordered",
    "by key, history, ordered",
]
"""Of a table: partitioned by its key or not; its deletes are positions or keys; the offset of a record decides which
change is the last, or a column does; rows that are deleted go, or stay and are marked. Or each record is a row of its
own. Updates of a partial table lack values; without a stored row they add one, or are skipped. Truncates empty a table,
or delete the rows of one of its sources. A table with history keeps all versions of its rows.
"""
Others = Mapping[str, Any]
"""Values of a row beside its proof, by the names of columns; of a struct, by those of its fields."""
NO_OTHERS: Others = MappingProxyType({})
OTHERS = ("source", "name", "x", "y")
GONE = "deleted by "
"""Before the proof of a row that is marked as deleted."""
PARTITIONS = 3
"""Of the source topic."""
_KEYS = 300
"""Of each of them."""
_LATE = 500
"""By so many records a late one is older than its place says."""
_SAME = 3000
"""So many records have one order, of those that do not have their own."""
_LEFT_OUT = "__debezium_unavailable_value"
"""In place of a text that a source has left out."""
_COLUMNS = (
    "id long, route string, proof string, seq long, op string, source string, name string,"
    " inner struct<x: long, y: string>"
)

_SETTINGS: Mapping[str, Mapping[str, str]] = {
    "by key": {"partition-by": "bucket(id, 3)"},
    "equality": {"row-deletes": "equality", "inserts": "upsert"},
    "ordered": {"order-field": "seq"},
    "soft": {"delete-mode": "soft"},
    "partial": {"on-unavailable-value": "keep", "unset-fields": "keep", "inserts": "upsert"},
    "skipping": {"on-missing-row": "skip"},
    "emptied": {"on-truncate": "delete"},
    "of sources": {"on-truncate": "delete", "truncate-field": "source", "inserts": "upsert"},
    "history": {"history": "on", "inserts": "upsert"},
}
"""The settings of a table whose kind has these words."""


class Change(NamedTuple):
    """``proof`` is None if the row of the key goes, and begins with ``GONE`` if it stays, marked as deleted. Of the
    changes of a key the last with the greatest ``order`` counts.

    ``key``: None if the rows of all keys go; with a ``source`` among the ``others`` those with that value. ``keeps``:
    the row keeps its values that are not among the ``others``. ``skips``: and without a row nothing happens.
    """

    table: str
    key: int | None
    proof: str | None
    order: int = 0
    others: Others = NO_OTHERS
    keeps: bool = False
    skips: bool = False


def told(proof: str, others: Others) -> str:
    """A row of a table as text: its proof, and its other values, without nulls."""
    return " ".join([proof, *(f"{name}={others[name]}" for name in OTHERS if others.get(name) is not None)])


def kind(place: int, workload: Workload, warehouse: Warehouse) -> Kind:
    """The kind of the table that comes at this place among the tables. Those behind a REST catalog have format version
    3, which takes no keys as deletes. Where a column decides, no row goes: it would leave nothing that a late change
    could be compared with.
    """
    if workload == "mixed":
        return "appended" if place % 2 else "plain"
    kinds: list[Kind] = ["plain", "by key"]
    if workload == "partial":
        kinds = ["by key, partial, skipping", "by key, of sources", "partial, emptied"]
    if workload == "history":
        kinds = ["history, ordered", "by key, history", "by key, history, ordered", "history"]
    if warehouse == "local" and workload in ("upsert", "cdc"):
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
    found = _made(number, tables, workload, warehouse)
    return None if found is None or _is_timeless(number, tables, found, workload) else found


def _made(number: int, tables: Sequence[str], workload: Workload, warehouse: Warehouse = "local") -> Change | None:
    """The change that a record is made for."""
    if workload == "append" or records.place(number, tables)[0] not in tables:
        return None
    own = (number * 2654435761 >> 7) % _KEYS
    partition = number * 7 % PARTITIONS  # as it is sent
    key = own * PARTITIONS + partition
    at = own % len(tables)
    if "emptied" in kind(at, workload, warehouse) and partition:
        at = (at + 1) % len(tables)  # a truncate has no order with other partitions
    words = kind(at, workload, warehouse)
    if workload == "partial":
        return _partial(number, tables[at], key, words)
    if workload == "history":
        return _version(number, tables[at], key, may_be_late="ordered" in words and own // len(tables) % 2 == 0)
    if words == "appended":
        key = _KEYS * PARTITIONS + number
    proof: str | None = _proof(number)
    if _deletes(number, workload):
        proof = f"{GONE}{proof}" if "soft" in words else None
    return Change(tables[at], key, proof, _order(number) if "ordered" in words else 0)


def _partial(number: int, table: str, key: int, words: Kind) -> Change:
    """A change of a table with sources has all values: its rows say whose they are. The others lack some."""
    source = f"{key % PARTITIONS}-{number // PARTITIONS % 2}"
    if _truncates(number) and "partial" not in words:
        return Change(table, None, None, others={"source": source})
    if _truncates(number) and "emptied" in words:
        return Change(table, None, None)
    if _deletes(number, "partial"):
        return Change(table, key, None)
    others = {"source": source, "name": f"name {number}", "x": number, "y": f"y {number}"}
    bits = hashlib.sha256(f"others of {number}".encode()).digest()
    others |= {name: None for name, bit in zip(("name", "x", "y"), bits, strict=False) if bit % 8 == 0}
    if "partial" in words and number % 4 != 0:
        others = {name: value for (name, value), bit in zip(others.items(), bits[8:], strict=False) if bit % 2}
    keeps = len(others) < len(OTHERS)
    return Change(table, key, _proof(number), 0, others, keeps, keeps and "skipping" in words)


def _version(number: int, table: str, key: int, *, may_be_late: bool) -> Change:
    """If older rows come after a delete that has found no row, the division into batches decides what becomes of them.
    So keys with late changes have no deletes.
    """
    if may_be_late:
        return Change(table, key, _proof(number), number // _SAME * _SAME if number % 10 == 4 else _order(number))
    return Change(table, key, None if _deletes(number, "history") else _proof(number), number)


def _is_timeless(number: int, tables: Sequence[str], made: Change, workload: Workload) -> bool:
    """Whether nothing says when the change counts, in a table where the timestamps of records do."""
    words = kind(tables.index(made.table), workload, "local")
    return workload == "history" and "ordered" not in words and records.has_odd_timestamp(number)


def _proof(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()[:16]


def _deletes(number: int, workload: Workload) -> bool:
    return workload in ("cdc", "partial", "history") and number % 5 == 3


def _truncates(number: int) -> bool:
    return number % 97 == 5


def _order(number: int) -> int:
    """One record in five comes late, half of the deletes among them. No two have the same."""
    return number - _LATE if number % 10 in (7, 8) else number


def place(number: int, tables: Sequence[str], workload: Workload) -> tuple[str, str]:
    """The table of a record, and its proof, or where else it goes."""
    found = change(number, tables, workload)
    if found is None:
        elsewhere, proof = records.place(number, tables)
        return (records.BAD, "") if workload == "history" and elsewhere in tables else (elsewhere, proof)
    return (found.table, found.proof or "") if found.key is not None else (records.FILTERED, "")


def payload(number: int, tables: Sequence[str], workload: Workload, *, poisoned: bool = True) -> bytes | None:
    """The value of a record. ``poisoned``: see ``records.payload``."""
    found = _made(number, tables, workload)
    if found is None:
        return records.payload(number, tables, poisoned=poisoned)
    if workload == "partial":
        return json.dumps(_lacking(number, found)).encode()
    is_gone = found.proof is None or found.proof.startswith(GONE)
    op = {"op": "d" if is_gone else "cu"[number % 2]} if workload in ("cdc", "history") else {}
    seq = found.order if workload == "history" else _order(number)
    row = {"id": found.key, "route": found.table, "proof": _proof(number), "seq": seq, **op}
    return json.dumps(row).encode()


def _lacking(number: int, made: Change) -> dict[str, Any]:
    """The record of a change, without what it lacks; some texts have a placeholder instead."""
    if made.key is None:
        return {"route": made.table, "op": "t", **made.others}
    if made.proof is None:
        return {"id": made.key, "route": made.table, "op": "d"}
    said = dict(made.others)
    if made.keeps and number % 3:
        said = dict.fromkeys(("name", "y")[: number % 3], _LEFT_OUT) | said
    inner = {name: said.pop(name) for name in ("x", "y") if name in said}
    row = {"id": made.key, "route": made.table, "proof": made.proof, "seq": number, "op": "cu"[number % 4 != 0]}
    return row | said | ({"inner": inner} if inner else {})


def settings(workload: Workload, warehouse: Warehouse, tables: Sequence[str]) -> dict[str, str | None]:
    """The keys that make records change rows, and tables of several kinds."""
    if workload == "append":
        return {}
    if workload == "mixed":
        changed = [name for at, name in enumerate(tables) if kind(at, workload, warehouse) != "appended"]
        keys = {"upsert-mode-enabled": "true", "id-columns": "id"}
        return {f"iceberg.table.{name}.{key}": text for name in changed for key, text in keys.items()}
    how = {"iceberg.tables.upsert-mode-enabled": "true"} if workload == "upsert" else {"iceberg.tables.cdc-field": "op"}
    version = {} if warehouse == "local" else {"iceberg.tables.auto-create-props.format-version": "3"}
    own: dict[str, str | None] = {}
    for place, name in enumerate(tables):
        words = kind(place, workload, warehouse)
        for word, texts in _SETTINGS.items():
            if word in words:
                own |= {f"iceberg.table.{name}.{key}": text for key, text in texts.items()}
        if workload == "partial":
            own[f"iceberg.table.{name}.columns"] = _COLUMNS
    return {"iceberg.tables.default-id-columns": "id", **how, **version, **own}
