"""A Postgres table as Debezium mirrors it, by seed: a snapshot of its rows, then changes, in the shapes of Debezium's
documentation (connector for PostgreSQL): inserts, updates, deletes with their tombstones, rows that come back.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from calving.model.record_path import TransformSpec
from calving.model.tables import RowMutations

Row = dict[str, Any]
DEBEZIUM = TransformSpec("unwrap", "DebeziumTransform")
CDC = RowMutations("_cdc.op", tombstones="delete")
COLUMNS = ("id", "email", "quantity")
_SOURCE = {
    "version": "2.7.0.Final",
    "connector": "postgresql",
    "name": "PostgreSQL_server",
    "snapshot": "false",
    "db": "postgres",
    "schema": "public",
    "table": "customers",
}


@dataclass
class Shop:
    """``rows`` is what the source table has after the records so far. ``lacks``: whether an update leaves out an e-mail
    address that did not change, and the row before it, as Postgres does with large values under its default identity.
    """

    seed: int
    keys: int
    lacks: bool = False
    rows: dict[int, Row] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._chance, self._lsn = random.Random(self.seed), 0

    def records(self, count: int) -> Iterator[tuple[bytes, bytes | None]]:
        """So many keys and values, of which the first half of the keys are the snapshot."""
        made = 0
        for key in range(self.keys // 2):
            yield self._event("r", key, self._row(key))
            made += 1
        while made < count:
            for record in self._change(self._chance.randrange(self.keys)):
                yield record
                made += 1

    def _row(self, key: int) -> Row:
        number = self._chance.randrange(1_000_000)
        return {"id": key, "email": None if number % 50 == 0 else f"user{number}@example.com", "quantity": number % 97}

    def _change(self, key: int) -> Iterator[tuple[bytes, bytes | None]]:
        if key not in self.rows:
            yield self._event("c", key, self._row(key))
        elif self._chance.random() < 0.1:
            yield self._event("d", key, None)
            yield _bytes({"id": key}), None
        else:
            row = self._row(key)
            if self.lacks and self._chance.random() < 0.6:
                row["email"] = self.rows[key]["email"]
            yield self._event("u", key, row)

    def _event(self, op: str, key: int, after: Row | None) -> tuple[bytes, bytes]:
        before = self.rows.get(key)
        self._lsn += 1
        if after is None:
            before = {"id": key, "email": None, "quantity": None}  # REPLICA IDENTITY DEFAULT
            del self.rows[key]
        else:
            self.rows[key] = after
        if op == "u" and self.lacks:
            if after is not None and before is not None and after["email"] == before["email"]:
                after = {**after, "email": "__debezium_unavailable_value"}
            before = None
        moment = 1_700_000_000_000 + self._lsn
        event = {"before": before, "after": after, "source": {**_SOURCE, "ts_ms": moment, "lsn": self._lsn}}
        return _bytes({"id": key}), _bytes({**event, "op": op, "ts_ms": moment})

    def expected(self) -> list[tuple[Any, ...]]:
        """The rows in the order of their keys."""
        return [tuple(row[name] for name in COLUMNS) for _, row in sorted(self.rows.items())]


def _bytes(what: Row) -> bytes:
    return json.dumps(what, separators=(",", ":")).encode()
