"""What must become of every record, one at a time: docs/types.md, docs/evolution.md and docs/converters.md in plain Python.

The only thing that records do together is to ask for schema changes: the oracle asks each for what it needs, merges, and asks
again on the changed table.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from pyiceberg.types import DoubleType, FloatType, IcebergType, IntegerType, ListType, LongType, MapType, StructType

from tests.fuzz import kinds, values
from tests.fuzz.tables import Column, Table
from tests.fuzz.values import TooLarge, Unfit

CONVERTER, CONVERSION = "VALUE_CONVERTER", "conversion"
_ROUNDS = 8


@dataclass(frozen=True)
class Dead:
    """A dead letter of this stage."""

    stage: str


@dataclass(frozen=True)
class Filtered:
    """Left out by a named cause."""

    cause: str


@dataclass(frozen=True)
class Rows:
    """A row in each of these tables."""

    rows: Mapping[str, Any]


Fate = Dead | Filtered | Rows


@dataclass
class Needs:
    """What a record needs of one table: new columns by path, wider types, optional columns."""

    add: dict[tuple[str, ...], kinds.Kind] = field(default_factory=dict)
    widen: dict[tuple[str, ...], str] = field(default_factory=dict)
    optional: set[tuple[str, ...]] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.add or self.widen or self.optional)

    def merge(self, other: Needs) -> None:
        for path, kind in other.add.items():
            self.add[path] = kinds.merge(self.add.get(path), kind)
        self.widen |= other.widen
        self.optional |= other.optional


class NotJson(Exception):
    """No JSON value that can be taken."""


def parse(raw: bytes) -> Any:
    """A JSON value, numbers as they are written; the last of several fields of one name counts.

    :raises NotJson: it is none.
    """
    try:
        value = json.loads(raw.decode(), parse_float=_fraction, parse_constant=_constant)
        json.dumps(value, default=str, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise NotJson(str(error)) from error
    return value


def _fraction(text: str) -> Decimal:
    if math.isinf(float(text)):
        raise ValueError("beyond a double")
    return Decimal(text)


def _constant(text: str) -> Any:
    raise ValueError(text)


class Converter:
    """One record for one table as it is."""

    def __init__(self, table: Table, evolve: bool, case_insensitive: bool) -> None:
        self._table, self._evolve, self._fold = table, evolve, case_insensitive
        self.needs = Needs()

    def row(self, value: Any) -> Any:
        """:raises Unfit: it does not fit, and no need can change that."""
        if not isinstance(value, dict):
            raise Unfit("no object")
        return self._struct(value, self._table.columns, ())

    def _struct(self, value: Any, columns: Sequence[Column], path: tuple[str, ...]) -> Any:
        if not isinstance(value, dict):
            raise Unfit("no object")
        given: dict[str, Any] = {}
        for name, item in value.items():
            column = self._find(columns, name)
            if column is not None:
                given[column.name] = item
            elif self._evolve and (kind := kinds.of_value(item)) is not None:
                self.needs.merge(Needs(add={(*path, name): kind}))
        return {c.name: self._column(given.get(c.name), c, (*path, c.name)) for c in columns}

    def _find(self, columns: Sequence[Column], name: str) -> Column | None:
        for column in columns:
            if name in column.names or (self._fold and name.lower() in (n.lower() for n in column.names)):
                return column
        return None

    def _column(self, value: Any, column: Column, path: tuple[str, ...]) -> Any:
        if value is None:
            if column.required and (column.identifier or not self._evolve):
                raise Unfit("required")
            if column.required:
                self.needs.optional.add(path)
            return None
        match column.kind:
            case StructType():
                return self._struct(value, column.inner, path)
            case ListType():
                if not isinstance(value, list):
                    raise Unfit("no array")
                return [self._column(item, column.inner[0], (*path, "element")) for item in value]
            case MapType():
                return self._map(value, column, path)
        return self._primitive(value, column.kind, path)

    def _map(self, value: Any, column: Column, path: tuple[str, ...]) -> Any:
        if not isinstance(value, dict):
            raise Unfit("no object")
        key, item = column.inner
        last = {values.canonical(k := self._primitive(name, key.kind, None)): (k, v) for name, v in value.items()}
        return [(k, self._column(v, item, (*path, "value"))) for k, v in last.values()]

    def _primitive(self, value: Any, kind: IcebergType, path: tuple[str, ...] | None) -> Any:
        try:
            return values.convert(value, kind)
        except TooLarge:
            wider = (
                LongType() if isinstance(kind, IntegerType) else DoubleType() if isinstance(kind, FloatType) else None
            )
            if wider is None or not self._evolve or path is None:
                raise
            values.convert(value, wider)
            self.needs.widen[path] = str(wider)
            return None


@dataclass
class Expected:
    """What must become of records, by place, and of the tables. ``first_bad`` is the one that stops a sink without
    tolerance: the first of the first round that has any.
    """

    fates: list[Fate]
    tables: dict[str, Table]
    first_bad: int | None

    def rows(self, table: str) -> Counter[values.RowText]:
        """Rows as text, as often as they come."""
        return Counter(
            values.row_text(fate.rows[table]) for fate in self.fates if isinstance(fate, Rows) and table in fate.rows
        )

    def dead(self) -> dict[int, str]:
        return {i: fate.stage for i, fate in enumerate(self.fates) if isinstance(fate, Dead)}

    def filtered(self) -> Counter[str]:
        return Counter(fate.cause for fate in self.fates if isinstance(fate, Filtered))


def expect(
    raws: Sequence[bytes | None], tables: Mapping[str, Table], *, evolve: bool, case_insensitive: bool
) -> Expected:
    """What must become of these values, all of which go to all tables."""
    parsed: list[Any] = []
    for raw in raws:
        try:
            value = None if raw is None else parse(raw)
            parsed.append(Filtered("tombstone") if value is None else value)
        except NotJson:
            parsed.append(Dead(CONVERTER))
    current, first_bad = dict(tables), None
    for _ in range(_ROUNDS):
        needs = {name: Needs() for name in current}
        fates = [
            value if isinstance(value, Dead | Filtered) else _fate(value, current, needs, evolve, case_insensitive)
            for value in parsed
        ]
        if first_bad is None:
            first_bad = next((i for i, fate in enumerate(fates) if isinstance(fate, Dead)), None)
        if not any(needs.values()):
            return Expected(fates, current, first_bad)
        current = {name: table.changed(needs[name]) for name, table in current.items()}
    raise RuntimeError("the oracle's tables do not settle")


def _fate(
    value: Any, tables: Mapping[str, Table], needs: Mapping[str, Needs], evolve: bool, case_insensitive: bool
) -> Fate:
    rows, found = {}, {}
    for name, table in tables.items():
        converter = Converter(table, evolve, case_insensitive)
        try:
            rows[name] = converter.row(value)
        except Unfit:
            return Dead(CONVERSION)
        found[name] = converter.needs
    for name, need in found.items():
        needs[name].merge(need)
    return Rows(rows)
