"""Seeded histories of records that change rows, through the whole record path, beside rows that a replay leaves.

``python -m tests.mutations.histories --seeds 1000`` plays histories of Debezium, AWS DMS and plain records: inserts that replace or are
added, updates that change keys, deletes that remove or mark rows, order fields of several types with ties and late changes, id columns and
order fields with initial defaults, with ``--partial`` updates that lack values, with ``--unset`` updates that lack fields, also in a struct, and with ``--sources`` truncate events of one of several sources; in format versions 2 and 3, cut into batches and commits at random. The oracle knows the rules of ``docs/reference/row-mutations.md``, and nothing of calving. It needs no order of texts: a change has a
number, and the text is made from the number.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import IcebergType, LongType, NestedField, StringType, StructType, TimestampType

from calving.iceberg.catalog import table_id
from calving.iceberg.maintenance import Maintenance
from calving.model.record_path import TransformSpec
from calving.model.tables import RowMutations
from calving.services.rest_catalog import RestCatalog
from calving.writing.schemas import partition_spec
from harness.duckdb_extensions import duckdb_rows
from harness.structure import check
from tests.iceberg.reader import rows_of
from tests.mutations.changing import KEY, Changing, Message

Row = dict[str, Any]
_KEYS, _TENANTS = 8, ("eu", "us")
_MARK = "_cdc_deleted"
_LEFT_OUT = "__debezium_unavailable_value"
_UNSET = object()
_INNER = ("x", "y")
"""The fields of the struct in ``--unset``."""
_LAYOUTS: Mapping[str, Sequence[str]] = {"flat": (), "by key": ("bucket(id, 3)",), "moving": ("g",)}
_ORDERS: Mapping[str, tuple[IcebergType, Callable[[int], Any]]] = {
    "long": (LongType(), lambda n: n),
    "timestamp": (TimestampType(), lambda n: f"2024-01-01T{n // 3600:02}:{n // 60 % 60:02}:{n % 60:02}"),
    "number": (StringType(), lambda n: str(n - 20)),
    "decimal": (StringType(), lambda n: f"{n // 10}.{n % 10}"),
    "sequence": (StringType(), lambda n: json.dumps([str(n // 7) if n >= 7 else None, str(n)])),
    "Postgres": (StringType(), lambda n: f"{n >> 4:X}/{n & 15:X}"),
    "SQL Server": (StringType(), lambda n: f"00000027:{n:08x}:0002"),
    "binary log": (StringType(), lambda n: f"mysql-bin.{n // 10:06}:{n % 10}"),
    "letters": (StringType(), lambda n: f"k{n:04}"),
}
"""Order fields: the column's type, and its value for a number."""
_GTID = "3E11FA47-71CA-11E1-9E33-C80AA9429562:23"
"""A text without an order: the change is a bad record."""


@dataclass(frozen=True)
class Shape:
    """What a history is about."""

    version: int
    source: str
    delete: str
    inserts: str
    row_deletes: str
    order: str | None
    layout: str
    partitions: int
    slots: int
    grows: bool
    """Whether an id column, and the order field, are added midway, with defaults."""
    lacks: bool = False
    """Whether updates may lack values, and keep the stored ones."""
    skips: bool = False
    """Whether such an update without a stored row is left out."""
    unset: bool = False
    """Whether updates may lack fields, and keep the stored values of their columns."""
    sources: bool = False
    """Whether truncate events delete the rows of one source, which ``g`` names. Each source writes one partition."""

    def with_gaps(self, chance: random.Random, *, unset: bool) -> Shape:
        """A shape whose updates lack values or fields, and so without what excludes that."""
        source = chance.choice(["Debezium", "plain", "upsert"])
        plain = replace(self, source=source, inserts="upsert", row_deletes="positions", order=None)
        plain = replace(plain, lacks=True, skips=chance.random() < 0.4)
        return replace(plain, unset=True, lacks=chance.random() < 0.5) if unset else plain

    def with_sources(self) -> Shape:
        """A shape with truncate events of one source, and so without what excludes them."""
        return replace(self, source="plain", delete="hard", row_deletes="positions", order=None, sources=True)

    @property
    def empties(self) -> bool:
        """Whether there are truncate events. Between partitions they have no order."""
        if self.sources:
            return True
        is_plain = self.row_deletes == "positions" and self.order is None and self.delete == "hard"
        return is_plain and self.partitions == 1 and self.source in ("Debezium", "plain")

    @staticmethod
    def of(chance: random.Random, version: int) -> Shape:
        order = None if chance.random() < 0.4 else chance.choice([*_ORDERS])
        return Shape(
            version,
            chance.choice(["Debezium", "Debezium", "DMS", "DMS fields", "plain", "upsert"]),
            chance.choice(["hard", "soft"]),
            "upsert" if order is not None else chance.choice(["upsert", "append"]),
            "positions" if version == 3 or order is not None else chance.choice(["positions", "equality"]),
            order,
            chance.choice([*_LAYOUTS]),
            chance.choice([1, 2, 3]),
            chance.choice([1, 2]),
            chance.random() < 0.3,
        )


@dataclass(frozen=True)
class Change:
    """An insert, update, delete or truncate (c, u, d, t). ``row``: after it, or what a delete says. ``before``: the image of an update.

    ``number``: its place in the order; None if the text of its order field has none.
    """

    op: str
    row: Row
    before: Row | None = None
    number: int | None = 0


@dataclass
class Oracle:
    """The rows that the changes leave."""

    shape: Shape
    ids: tuple[str, ...] = ("id",)
    is_ordered: bool = False
    rows: list[tuple[Row, int | None]] = field(default_factory=list)
    """Each row with the number of its change."""

    def take(self, batch: Mapping[int, Sequence[Change]]) -> None:
        """A batch, by partition."""
        found = [
            (change.number or 0, partition, place, effect)
            for partition, changes in sorted(batch.items())
            for place, change in enumerate(changes)
            if change.number is not None
            for effect in self._effects(change)
        ]
        if self.is_ordered:  # of each key the greatest number, then the greater partition, then the later record
            last = {}
            for number, partition, place, effect in sorted(found, key=lambda each: each[:3]):
                last[self._key(effect[1])] = number, partition, place, effect
            found = [*last.values()]
        for number, _, _, (keeps, key, row) in found:
            if not key:  # all rows, or those of a source
                self.rows = [held for held in self.rows if row is not None and held[0]["g"] != row["g"]]
                continue
            if row is None or (row := self._filled(row)) is not None:
                self._apply(number, key, row, keeps=keeps)

    def _filled(self, row: Row) -> Row | None:
        """The row with the values that it lacks; None if it is left out."""
        gaps = {name for name, value in row.items() if value in (_LEFT_OUT, _UNSET)}
        part = row.get("s")
        inside = {name for name, value in part.items() if value is _UNSET} if isinstance(part, dict) else set()
        held = next((held for held, _ in self.rows if self._key(held) == self._key(row)), None)
        if not (gaps or inside) or (held is None and self.shape.skips):
            return None if gaps or inside else row
        filled = {**row, **{name: (held or {}).get(name) for name in gaps}}
        if inside:
            stored = (held or {}).get("s") or {}
            filled["s"] = {name: stored.get(name) if name in inside else value for name, value in (part or {}).items()}
        return filled

    def _given(self, row: Row, *, keeps: bool) -> Row:
        """The row with a mark, or null, for each field that it lacks."""
        if not self.shape.unset:
            return row
        nothing = _UNSET if keeps else None
        given = {"name": nothing, "g": nothing, "s": nothing, **row}
        if isinstance(given["s"], dict):
            given["s"] = {name: given["s"].get(name, nothing) for name in _INNER}
        return given

    def _apply(self, number: int, key: Row, row: Row | None, *, keeps: bool) -> None:
        same = [held for held in self.rows if self._key(held[0]) == self._key(key)]
        if self.is_ordered and any(held is not None and held > number for _, held in same):
            return
        if not keeps:
            self.rows = [held for held in self.rows if self._key(held[0]) != self._key(key)]
        if row is not None:
            self.rows.append((row, number))

    def _effects(self, change: Change) -> list[tuple[bool, Row, Row | None]]:
        """Whether the rows of a key stay; the key, or nothing for a truncate event; and the row that comes, or that names
        the source of the event.
        """
        if change.op == "t":
            return [(False, {}, change.row or None)]
        is_soft = self.shape.delete == "soft"
        found: list[tuple[bool, Row, Row | None]] = []
        if change.before is not None and change.op == "u":
            old = {**{name: change.row[name] for name in self.ids}, **change.before}
            if self._key(old) != self._key(change.row):
                if "seq" in change.row:
                    old["seq"] = change.row["seq"]
                found.append((False, old, {**old, _MARK: True} if is_soft else None))
        if change.op == "d":
            row = self._given(change.row, keeps=True)
            return [*found, (False, change.row, {**row, _MARK: True} if is_soft else None)]
        mark = {_MARK: False} if is_soft else {}
        keeps = change.op == "c" and self.shape.inserts == "append" and self.shape.source != "upsert"
        return [*found, (keeps, change.row, {**self._given(change.row, keeps=change.op == "u"), **mark})]

    def _key(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.ids)

    def grow(self, **defaults: Any) -> None:
        """Columns are added; rows have their defaults."""
        self.rows = [({**row, **defaults}, 0 if "seq" in defaults else number) for row, number in self.rows]

    def found(self, names: Sequence[str]) -> list[tuple[Any, ...]]:
        return sorted((tuple(row.get(name) for name in names) for row, _ in self.rows), key=repr)


class History:
    """One table, its changes, and its oracle."""

    def __init__(self, folder: Path, seed: int, rest: str | None, *, partial: bool, unset: bool, sources: bool) -> None:
        """``rest``: the address of a REST catalog, for version 3; None for version 2. ``partial``: whether updates lack
        values. ``unset``: whether they lack fields. ``sources``: whether truncate events are of one of several sources.
        """
        self.chance = random.Random(seed)
        self._gaps = random.Random(seed)
        shape = Shape.of(self.chance, 2 if rest is None else 3)
        self.shape = shape = shape.with_gaps(self._gaps, unset=unset) if partial or unset else shape
        self.shape = shape = shape.with_sources() if sources else shape
        self.oracle = Oracle(shape)
        self.counts: Counter[str] = Counter()
        self._serial = 0
        self._has_tenant = False
        catalog = {"type": "rest", "uri": rest} if rest is not None else None
        name = f"db.t{uuid4().hex}"
        self.sink = Changing(folder, RowMutations(), name=name, keys=catalog, slots=shape.slots)
        kind = _ORDERS[shape.order][0] if shape.order is not None else LongType()
        order = (NestedField(4, "seq", kind, required=False),) if shape.order is not None and not shape.grows else ()
        schema = Schema(
            NestedField(1, "id", LongType(), required=True),
            NestedField(2, "name", StringType(), required=False),
            NestedField(3, "g", LongType(), required=False),
            *order,
            *([NestedField(5, "s", _struct(), required=False)] if shape.unset else []),
        )
        self.sink.catalog.create_namespace_if_not_exists("db")
        self.sink.catalog.create_table(
            name,
            schema,
            partition_spec=partition_spec(_LAYOUTS[shape.layout], schema, name),
            properties={"format-version": str(shape.version)},
        )
        self._orders(bool(order), ("id",))

    def _orders(self, is_ordered: bool, ids: tuple[str, ...]) -> None:
        """Go on with these id columns, and perhaps with the order field."""
        shape = self.shape
        mutations = RowMutations(
            {"Debezium": "_cdc.op", "DMS": "_cdc.op", "DMS fields": "_cdc.op", "plain": "op"}.get(shape.source),
            upsert=shape.source == "upsert",
            row_deletes=shape.row_deletes,  # type: ignore[arg-type]
            inserts=shape.inserts,  # type: ignore[arg-type]
            order_field="seq" if is_ordered else None,
            order_type="text" if shape.order == "letters" else "parsed",
            delete_mode=shape.delete,  # type: ignore[arg-type]
            on_truncate="delete" if shape.empties and not is_ordered else "fail",
            truncate_field="g" if shape.sources else None,
            on_unavailable_value="keep" if shape.lacks else "fail",
            unset_fields="keep" if shape.unset else "null",
            on_missing_row="skip" if shape.skips else "insert",
        )
        unwrap = {"Debezium": "DebeziumTransform", "DMS": "DmsTransform", "DMS fields": "DmsTransform"}.get(
            shape.source
        )
        transforms = (TransformSpec("unwrap", unwrap),) if unwrap else ()
        self.sink = self.sink.with_(mutations=mutations, id_columns=ids, transforms=transforms)
        self.oracle.is_ordered, self.oracle.ids = is_ordered, ids

    def play(self, batches: int = 8) -> None:
        waiting: list[Any] = []
        for number in range(batches):
            if number == batches // 2 and self.shape.grows:
                self._commit(waiting)
                self._grow()
            batch = {
                p: [self._with_gaps(self._without_fields(self._change(p))) for _ in range(self.chance.randrange(0, 12))]
                for p in range(self.shape.partitions)
            }
            outcome = self.sink.read({p: [*map(self._message, changes)] for p, changes in batch.items() if changes})
            bad = sum(change.number is None for changes in batch.values() for change in changes)
            assert len(outcome.dead_letters) == bad, (self.shape, self.sink.reasons(outcome))
            self.counts["bad"] += bad
            self.counts["changes"] += sum(map(len, batch.values()))
            self.oracle.take(batch)
            waiting.append(outcome)
            if self.chance.random() < 0.7:
                self._commit(waiting)
        self._commit(waiting)

    def _commit(self, waiting: list[Any]) -> None:
        if waiting:
            self.sink.commit(*waiting)
            self.counts["commits"] += 1
            waiting.clear()
        table = self.sink.table
        if table.current_snapshot() is not None:
            check(table, self.shape.row_deletes == "equality")
        if self.shape.row_deletes == "equality" and self.chance.random() < 0.2:
            list(Maintenance(self.sink.catalog, table_id(self.sink.name), KEY, {}).convert())
            self.counts["conversions"] += 1

    def _grow(self) -> None:
        """An id column comes, and the order field; both have defaults, which the rows so far have."""
        kind, form = _ORDERS[self.shape.order or "long"]
        defaults: Row = {"tenant": "eu"}
        with self.sink.table.update_schema() as change:
            change.add_column("tenant", StringType(), default_value="eu")
            if self.shape.order is not None:
                value = form(0)
                change.add_column("seq", kind, default_value=value)
                defaults["seq"] = value
        self._has_tenant = True
        self._orders(self.shape.order is not None, ("id", "tenant"))
        self.oracle.grow(**defaults)
        self.counts["grown"] += 1

    def _change(self, partition: int) -> Change:
        """A change of a key of the partition; with an order field, of any key."""
        chance = self.chance
        if self.shape.empties and not self.oracle.is_ordered and chance.random() < 0.05:
            self.counts["truncates"] += 1
            return Change("t", {"g": self._source(partition)} if self.shape.sources else {})
        op = chance.choice("ccuuudr")
        row = self._row(partition)
        number: int | None = self._number()
        before = None
        if op == "u" and chance.random() < 0.4:
            before = self._row(partition)
            for name in ("name", "g", "tenant"):  # an image may have the key alone
                if chance.random() < 0.3:
                    before.pop(name, None)
        if self.oracle.is_ordered:
            row["seq"] = _ORDERS[self.shape.order or ""][1](number or 0)
            if (
                _ORDERS[self.shape.order or ""][0] == StringType()
                and self.shape.order != "letters"
                and chance.random() < 0.04
            ):
                row["seq"], number = _GTID, None
            if before is not None and chance.random() < 0.5:
                before["seq"] = _ORDERS[self.shape.order or ""][1](self._number())
        if self.shape.source == "upsert":
            return Change("u", row, None, number)
        if op == "d" and self.shape.source == "plain":  # its key is enough, and what orders it
            needed = {*self.oracle.ids, "seq"}
            row = {name: value for name, value in row.items() if name in needed or chance.random() < 0.5}
        return Change("c" if op == "r" else op, row, before if self.shape.source != "plain" else None, number)

    def _without_fields(self, change: Change) -> Change:
        """The change without some of its fields. It is bad if it changes its key then, and is no insert."""
        chance = self._gaps
        if not self.shape.unset or change.op == "t":
            return change
        inner = {name: chance.choice([None, chance.randrange(9)]) for name in _INNER if chance.random() < 0.6}
        row = {name: value for name, value in change.row.items() if name not in ("name", "g") or chance.random() < 0.6}
        if chance.random() < 0.6:
            row["s"] = inner if chance.random() < 0.8 else None
        part = row.get("s")
        is_whole = {"name", "g", "s"} <= row.keys() and not (isinstance(part, dict) and len(part) < len(_INNER))
        self.counts["unset"] += not is_whole
        old = {**row, **(change.before or {})}
        moves = change.op == "u" and any(old[name] != row[name] for name in self.oracle.ids)
        return replace(change, row=row, number=None if moves and not is_whole else change.number)

    def _with_gaps(self, change: Change) -> Change:
        """The change, from which the source may have left out values. Then it must not be an insert, or change its key."""
        gaps = [name for name in ("name", "g") if name in change.row and self._gaps.random() < 0.4]
        is_row = change.op in "cu" or (change.op == "d" and self.shape.delete == "soft")
        if not (self.shape.lacks and gaps and is_row and (change.op != "c" or self._gaps.random() < 0.1)):
            return change
        row: Row = {**change.row, **dict.fromkeys(gaps, _LEFT_OUT)}
        old = {**row, **(change.before or {})} if change.op == "u" else row
        moves = any(old[name] != row[name] for name in self.oracle.ids)
        self.counts["partial"] += 1
        return replace(change, row=row, number=None if change.op == "c" or moves else change.number)

    def _number(self) -> int:
        """Near the last ones: late ones and ties come too."""
        self._serial += 1
        return max(0, self._serial // 2 + self.chance.randrange(-9, 9))

    def _row(self, partition: int) -> Row:
        shape = self.shape
        keys = range(_KEYS) if self.oracle.is_ordered else range(partition, _KEYS, shape.partitions)
        row = {"id": self.chance.choice(keys), "name": f"v{self._serial}"}
        row["g"] = self._source(partition) if shape.sources else self.chance.randrange(3)
        return row | ({"tenant": self.chance.choice(_TENANTS)} if self._has_tenant else {})

    def _source(self, partition: int) -> int:
        return partition + self.shape.partitions * self.chance.randrange(2)

    def _message(self, change: Change) -> Message:
        """As its source writes it."""
        row = change.row
        match self.shape.source:
            case "Debezium":
                sides = (row, None) if change.op == "d" else (change.before, row or None)
                source = {"db": "shop", "schema": "public", "table": "t"}
                return None, {"op": change.op, "ts_ms": 5, "before": sides[0], "after": sides[1], "source": source}
            case "DMS" | "DMS fields":
                operation = {"c": "insert", "u": "update", "d": "delete"}[change.op]
                about = {"operation": operation, "record-type": "data", "schema-name": "s", "table-name": "t"}
                if change.before is None:
                    return None, {"data": row, "metadata": about}
                if self.shape.source == "DMS":
                    return None, {"data": row, "metadata": about, "before-image": change.before}
                image = {f"BI_{name}": value for name, value in change.before.items()}
                return None, {"data": {**row, **image}, "metadata": about}
        return None, {**row, "op": change.op}

    def compare(self) -> None:
        """:raises AssertionError: a reader sees other rows than the oracle."""
        table = self.sink.table
        if table.current_snapshot() is None:
            assert not self.oracle.rows
            return
        names = [each.name for each in table.schema().fields]
        wanted = [name for name in ("id", "tenant", "name", "g", "s", "seq", _MARK) if name in names]
        expected = self.oracle.found(wanted)
        for reader, found in self._read(table, wanted).items():
            assert found == expected, f"{self.shape}, read by {reader}: the rows {found} are not {expected}"

    def _read(self, table: Table, names: Sequence[str]) -> dict[str, list[tuple[Any, ...]]]:
        places = [[each.name for each in table.schema().fields].index(name) for name in names]
        by_rule = [tuple(_plain(row[place]) for place in places) for row in rows_of(table)]
        found = {"the specification": sorted(by_rule, key=repr)}
        quoted = ", ".join(f'"{name}"' for name in names)
        if (
            self.shape.row_deletes == "positions" or not self.shape.grows
        ):  # DuckDB knows no defaults in equality deletes
            found["DuckDB"] = sorted((tuple(map(_plain, row)) for row in duckdb_rows(table, quoted)), key=repr)
        if self.shape.row_deletes == "positions":
            rows = table.scan(selected_fields=tuple(names)).to_arrow().to_pylist()
            found["pyiceberg"] = sorted((tuple(_plain(row[name]) for name in names) for row in rows), key=repr)
        return found


def _struct() -> StructType:
    return StructType(*(NestedField(6 + i, name, LongType(), required=False) for i, name in enumerate(_INNER)))


def _plain(value: Any) -> Any:
    return value.isoformat() if hasattr(value, "isoformat") else value


def played(
    folder: Path,
    seed: int,
    rest: str | None = None,
    *,
    partial: bool = False,
    unset: bool = False,
    sources: bool = False,
) -> History:
    """A history, to its end.

    :raises AssertionError: the table has other rows than a replay leaves. The message has the history's shape.
    """
    history = History(folder, seed, rest, partial=partial, unset=unset, sources=sources)
    history.play()
    history.compare()
    return history


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after so many")
    parser.add_argument("--partial", action="store_true", help="updates lack values, and keep those of their rows")
    parser.add_argument("--unset", action="store_true", help="updates lack fields, and keep those of their rows")
    parser.add_argument("--sources", action="store_true", help="truncate events are of one of several sources")
    parser.add_argument("--version", type=int, choices=[2, 3], help="of one format version only")
    args = parser.parse_args()
    end = time.monotonic() + 60 * args.minutes
    counts: Counter[str] = Counter()
    failed = 0
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        uri = None
        if args.version != 2:
            server = RestCatalog(Path(folder) / "rest")
            stack.callback(server.stop)
            uri = server.uri
        for seed in range(args.first, args.first + args.seeds):
            catalogs = [None] if args.version == 2 else [uri] if args.version == 3 else [None, uri]
            for rest in catalogs:
                where = f"seed {seed}, version {2 if rest is None else 3}"
                try:
                    where_to = Path(folder) / f"{seed}-{bool(rest)}"
                    kind = {name: getattr(args, name) for name in ("partial", "unset", "sources")}
                    counts += played(where_to, seed, rest, **kind).counts
                except Exception as error:
                    failed += 1
                    print(f"{where}: {type(error).__name__}: {error}", flush=True)
                counts["histories"] += 1
            if seed % 10 == 9:
                print(f"seed {seed}: {dict(counts)}, {failed} failed", flush=True)
            if time.monotonic() > end:
                break
    print(f"{dict(counts)}, {failed} failed")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
