"""Seeded histories of a table that keeps the versions of its rows, beside a timeline of each key.

``python -m tests.mutations.lifetimes --seeds 1000`` plays inserts, updates that may change keys, and deletes; by order fields of several
types, late and with ties, and by the timestamps of records, which go back; in format versions 2 and 3, with partitions that follow a key, a
value or the ends of versions, cut into batches and commits at random. The timeline knows the rules of ``docs/reference/row-mutations.md``,
and nothing of calving: it notes from which moment on which row is there.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import BooleanType, IcebergType, LongType, NestedField, StringType, TimestampType

from calving.model.record_path import TransformSpec
from calving.model.tables import RowMutations
from calving.services.rest_catalog import RestCatalog
from calving.writing.schemas import partition_spec
from harness.blocks import MILLIS
from harness.duckdb_extensions import duckdb_rows
from harness.structure import check
from tests.iceberg.reader import rows_of
from tests.mutations.changing import Changing, Message

_KEYS = 6
_COLUMNS = "id", "g", "name", "valid_from", "valid_to", "is_current"
_DAY = datetime(2024, 1, 1)
_ORDERS: Mapping[str, tuple[IcebergType, Callable[[int], Any], Callable[[int], Any]]] = {
    "long": (LongType(), int, int),
    "timestamp": (TimestampType(), lambda n: f"{_DAY + timedelta(seconds=n)}", lambda n: _DAY + timedelta(seconds=n)),
    "Postgres": (StringType(), lambda n: f"{n >> 4:X}/{n & 15:X}", lambda n: f"{n >> 4:X}/{n & 15:X}"),
}
"""Order fields: the column's type, its value in a record, and in a row, for a number."""
_LAYOUTS: Sequence[Sequence[str]] = ((), ("bucket(id, 3)",), ("g",), ("is_current",), ("g", "truncate(valid_from, 5)"))
Moment = int


@dataclass(frozen=True)
class Change:
    """An insert, update or delete (c, u, d) of a key at a moment. ``old``: the key that an update has changed."""

    op: str
    key: int
    at: Moment
    row: str
    g: int
    old: int | None = None


class Timeline:
    """Which row of a key is there from a moment on, until the next moment; None: no row is."""

    def __init__(self, *, is_ordered: bool) -> None:
        self._ordered = is_ordered
        self._moments: defaultdict[int, list[tuple[Moment, Change | None]]] = defaultdict(list)

    def take(self, batch: Sequence[Change]) -> None:
        """A batch: by its moments if they order changes, of equal ones the last; else as its changes come."""
        effects = [(change.at, key, row) for change in batch for key, row in _effects(change)]
        if self._ordered:
            last = {(at, key): row for at, key, row in effects}
            effects = sorted(((at, key, row) for (at, key), row in last.items()), key=lambda effect: effect[0])
        for at, key, row in effects:
            (self._set if self._ordered else self._add)(self._moments[key], at, row)

    def _add(self, moments: list[tuple[Moment, Change | None]], at: Moment, row: Change | None) -> None:
        if row is not None or (moments and moments[-1][1] is not None):
            moments.append((max(at, moments[-1][0]) if moments else at, row))

    def _set(self, moments: list[tuple[Moment, Change | None]], at: Moment, row: Change | None) -> None:
        others = [each for each in moments if each[0] != at]
        if len(others) < len(moments) or row is not None or self._there(moments, at):
            others.append((at, row))
        moments[:] = []
        for moment, there in sorted(others, key=lambda each: each[0]):
            if there is not None or (moments and moments[-1][1] is not None):
                moments.append((moment, there))

    def _there(self, moments: list[tuple[Moment, Change | None]], at: Moment) -> bool:
        past = [row for moment, row in moments if moment <= at]
        return bool(past) and past[-1] is not None

    def rows(self, value: Callable[[Moment], Any]) -> list[tuple[Any, ...]]:
        """The versions; ``value``: of a moment."""
        found = []
        for key, moments in self._moments.items():
            for place, (moment, change) in enumerate(moments):
                if change is not None:
                    end = value(moments[place + 1][0]) if place + 1 < len(moments) else None
                    found.append((key, change.g, change.row, value(moment), end, end is None))
        return sorted(found, key=repr)


def _effects(change: Change) -> list[tuple[int, Change | None]]:
    left = [(change.old, None)] if change.old is not None else []
    return [*left, (change.key, None if change.op == "d" else change)]


class Lifetimes:
    """One table, its changes, and its timeline."""

    def __init__(self, folder: Path, seed: int, rest: str | None) -> None:
        """``rest``: the address of a REST catalog, for version 3; None for version 2."""
        self.chance = chance = random.Random(seed)
        self.order = None if chance.random() < 0.4 else chance.choice([*_ORDERS])
        self.partitions, slots = chance.choice([1, 2, 3]), chance.choice([1, 2])
        layout = chance.choice([each for each in _LAYOUTS if self.order == "long" or len(each) < 2])
        self.shape = (
            f"order {self.order}, {self.partitions} partitions, {slots} tasks, {layout}, version {3 if rest else 2}"
        )
        self.timeline = Timeline(is_ordered=self.order is not None)
        self.counts: Counter[str] = Counter()
        self._times: dict[tuple[int, int], int] = {}
        self._read: Counter[int] = Counter()
        self._serial = 0
        name = f"db.t{uuid4().hex}"
        kind = _ORDERS[self.order][0] if self.order is not None else None
        columns: dict[str, str] = {"id": "long", "g": "long", "name": "string"}
        columns |= {"n": str(kind), "valid_from": str(kind)} if kind is not None else {}
        columns |= {"is_current": "boolean"} if "is_current" in layout else {}
        schema = Schema(
            *(
                NestedField(number, column, _TYPES[type_], required=False)
                for number, (column, type_) in enumerate(columns.items(), 1)
            )
        )
        self.sink = Changing(
            folder,
            RowMutations("_cdc.op", order_field=None if self.order is None else "n", history="on"),
            name=name,
            keys={"type": "rest", "uri": rest} if rest is not None else None,
            slots=slots,
            transforms=_UNWRAP,
            clock=lambda partition, offset: MILLIS + 1000 * self._times[partition, offset],
        )
        self.sink.catalog.create_namespace_if_not_exists("db")
        self.sink.catalog.create_table(
            name,
            schema,
            partition_spec=partition_spec(layout, schema, name),
            properties={"format-version": "3" if rest is not None else "2"},
        )

    def play(self, batches: int = 8) -> None:
        waiting: list[Any] = []
        for number in range(batches):
            batch = {p: [self._change(p) for _ in range(self.chance.randrange(0, 12))] for p in range(self.partitions)}
            batch = {p: changes for p, changes in batch.items() if changes}
            if batch:
                outcome = self.sink.read({p: [*map(self._message, changes)] for p, changes in batch.items()})
                assert not outcome.dead_letters, (self.shape, self.sink.reasons(outcome))
                self.timeline.take([change for _, changes in sorted(batch.items()) for change in changes])
                self.counts["changes"] += sum(map(len, batch.values()))
                waiting.append(outcome)
            if waiting and (self.chance.random() < 0.6 or number == batches - 1):
                self.sink.commit(*waiting)
                self.counts["commits"] += 1
                waiting.clear()
                self.compare()
        if waiting:
            self.sink.commit(*waiting)
        self.compare()

    def _change(self, partition: int) -> Change:
        """A change of a key of the partition; with an order field, of any key."""
        chance = self.chance
        self._serial += 1
        keys = range(_KEYS) if self.order is not None else range(partition, _KEYS, self.partitions)
        at = max(0, self._serial // 2 + chance.randrange(-12, 8))
        key, op = chance.choice(keys), chance.choice("cuuud")
        old = chance.choice(keys) if op == "u" and chance.random() < 0.2 else key
        self._times[partition, self._read[partition]] = at
        self._read[partition] += 1
        self.counts["moved"] += old != key
        return Change(op, key, at, f"v{self._serial}", chance.randrange(3), old if old != key else None)

    def _message(self, change: Change) -> Message:
        order = {} if self.order is None else {"n": _ORDERS[self.order][1](change.at)}
        row = {"id": change.key, "g": change.g, "name": change.row, **order}
        before = {"id": change.old} if change.old is not None else None
        sides = (row, None) if change.op == "d" else (before, row)
        source = {"db": "shop", "schema": "public", "table": "t"}
        return None, {"op": change.op, "ts_ms": 5, "before": sides[0], "after": sides[1], "source": source}

    def compare(self) -> None:
        """:raises AssertionError: a reader sees other versions than the timeline has."""
        table = self.sink.table
        check(table)
        value = _ORDERS[self.order][2] if self.order is not None else _of_record
        expected = self.timeline.rows(value)
        self.counts["versions"] += len(expected)
        for reader, found in _readers(table).items():
            assert found == expected, f"{self.shape}, read by {reader}: the rows {found} are not {expected}"


_TYPES: Mapping[str, IcebergType] = {
    "long": LongType(),
    "string": StringType(),
    "timestamp": TimestampType(),
    "boolean": BooleanType(),
}
_UNWRAP = (TransformSpec("unwrap", "DebeziumTransform"),)


def _of_record(moment: Moment) -> datetime:
    return datetime.fromtimestamp(MILLIS / 1000 + moment, UTC)


def _readers(table: Table) -> dict[str, list[tuple[Any, ...]]]:
    names = [each.name for each in table.schema().fields]
    places = [names.index(name) for name in _COLUMNS]
    rows = table.scan(selected_fields=_COLUMNS).to_arrow().to_pylist()
    found = {
        "the specification": [tuple(row[place] for place in places) for row in rows_of(table)],
        "DuckDB": [tuple(map(_in_utc, row)) for row in duckdb_rows(table, ", ".join(_COLUMNS))],
        "pyiceberg": [tuple(row[name] for name in _COLUMNS) for row in rows],
    }
    return {reader: sorted(map(_utc, rows), key=repr) for reader, rows in found.items()}


def _utc(row: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(map(_in_utc, row))


def _in_utc(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo is not None else value


def played(folder: Path, seed: int, rest: str | None = None) -> Lifetimes:
    """A history, to its end.

    :raises AssertionError: the table has other versions than the timeline. The message has the history's shape.
    """
    history = Lifetimes(folder, seed, rest)
    history.play()
    return history


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--version", type=int, choices=[2, 3], help="of one format version only")
    args = parser.parse_args()
    counts: Counter[str] = Counter()
    failed = 0
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        catalogs: list[str | None] = [None] if args.version != 3 else []
        if args.version != 2:
            server = RestCatalog(Path(folder) / "rest")
            stack.callback(server.stop)
            catalogs.append(server.uri)
        for seed in range(args.first, args.first + args.seeds):
            for rest in catalogs:
                try:
                    counts += played(Path(folder) / f"{seed}-{bool(rest)}", seed, rest).counts
                except Exception as error:
                    failed += 1
                    version = 2 if rest is None else 3
                    print(f"seed {seed}, version {version}: {type(error).__name__}: {error}", flush=True)
                counts["histories"] += 1
    print(f"{dict(counts)}, {failed} failed")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
