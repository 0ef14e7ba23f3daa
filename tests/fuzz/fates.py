"""The expected fate of every record of a batch, one at a time.

The only thing that records do together is to ask for schema changes: the oracle asks each for what it needs, merges, and asks
again on the changed tables.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from pyiceberg.types import DecimalType

from calving.model.record_path import Routing
from tests.fuzz import forms, kinds, spec, values
from tests.fuzz.oracle import Converter, Needs, NotJson, Typed, parse
from tests.fuzz.tables import Column, Table, created
from tests.fuzz.values import Unfit

_ROUNDS = 8
ANY = "any stage"


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
TOMBSTONE = Filtered("tombstone")


@dataclass(frozen=True)
class Rules:
    """The settings that decide of records."""

    routing: Routing
    evolve: bool = False
    create: bool = False
    fold: bool = False
    """Names are compared ignoring case."""
    id_columns: tuple[str, ...] = ()
    orc: frozenset[str] = frozenset()
    """Tables whose files are ORC."""
    keys: Mapping[str, tuple[tuple[tuple[str, ...], str], ...]] = field(default_factory=dict)
    """By table the columns that it is partitioned and sorted by, with the transforms."""
    creates_orc: bool = False
    any_year: bool = False
    columns: Mapping[str, kinds.Kind] = field(default_factory=dict)
    """Columns that every new table has."""
    types: Mapping[str, kinds.Kind] = field(default_factory=dict)
    """Of new columns, by name."""
    transforms: bool = False
    """Transforms look at each value before it is known whether its topic leads to a table."""
    converter: str = "json"
    on_type_change: str = "fail"

    @property
    def declared(self) -> Mapping[str, kinds.Kind]:
        """All types of new columns."""
        return {**self.types, **self.columns}


@dataclass
class Expected:
    """The expected fates of records, by place, and of the tables. One of ``first_bad`` stops a sink without tolerance: the
    first of the first round that has any. What cannot be written counts at once, or, in a block that asks for a change,
    after that: so there may be two.
    """

    fates: list[Fate]
    tables: dict[str, Table]
    first_bad: frozenset[int]
    fold: bool

    def rows(self, table: str) -> Counter[forms.RowText]:
        """Rows as text, as often as they come."""
        return Counter(
            self.row(i, table) for i, fate in enumerate(self.fates) if isinstance(fate, Rows) and table in fate.rows
        )

    def row(self, place: int, table: str) -> forms.RowText:
        """The row of a record that has one."""
        fate = self.fates[place]
        assert isinstance(fate, Rows)
        return forms.row_text(fate.rows[table], self.fold)

    def dead(self) -> dict[int, str]:
        return {i: fate.stage for i, fate in enumerate(self.fates) if isinstance(fate, Dead)}

    def filtered(self) -> Counter[str]:
        return Counter(fate.cause for fate in self.fates if isinstance(fate, Filtered))


def decode_json(raws: Sequence[bytes | None]) -> list[Any]:
    """Values, or fates of what is none."""
    found: list[Any] = []
    for raw in raws:
        try:
            value = None if raw is None else parse(raw)
            found.append(TOMBSTONE if value is None else value)
        except NotJson:
            found.append(Dead("VALUE_CONVERTER"))
    return found


def expect(decoded: Sequence[Any], tables: Mapping[str, Table], rules: Rules, topics: Sequence[str] = ()) -> Expected:
    """The expected fates of decoded values. ``topics``: of each, if they decide of its table."""
    oracle = _Oracle(dict(tables), rules)
    first_bad: set[int] = set()
    settled: list[int] = []
    for _ in range(_ROUNDS):
        fates = [
            value
            if isinstance(value, Dead | Filtered) and not oracle.passes_over(value, topic)
            else oracle.fate(value, topic)
            for value, topic in zip(decoded, topics or [""] * len(decoded), strict=True)
        ]
        dead = [i for i, fate in enumerate(fates) if isinstance(fate, Dead)]
        changes = oracle.change()
        if not first_bad:
            first_bad.update(dead[:1])
        if changes:
            # A block that asks for a change is not written before the change is made.
            dead = [i for i in dead if fates[i] != Dead("WRITING")]
        settled = settled or dead[:1]
        if not changes:
            return Expected(fates, oracle.tables, frozenset((*first_bad, *settled)), rules.fold)
    raise RuntimeError("the oracle's tables do not settle")


@dataclass
class _Oracle:
    tables: dict[str, Table]
    rules: Rules
    needs: dict[str, Needs] = field(default_factory=dict)
    made: set[str] = field(default_factory=set)
    rounds: int = 0
    """Tables that records name are looked for in the first; tables that are missing are created once they are missed."""

    def change(self) -> bool:
        """Give the tables what was needed; whether anything was."""
        needs, self.needs = self.needs, {}
        again = (self.rules.routing.is_free and self.rounds == 0) or (self.rules.create and not self.created)
        self.rounds += 1
        for name, need in needs.items():
            if name not in self.tables and need.create:
                self.tables[name] = created(self._declared(need.create), self.rules.id_columns)
                self.made.add(name)
            elif name in self.tables:
                self.tables[name] = self.tables[name].changed(need, self.rules.fold)
        return again or any(needs.values())

    def _declared(self, kind: kinds.Kind) -> kinds.Kind:
        """What records need of a new table, with the declared types."""
        types = {name: of for name, of in self.rules.types.items() if name in kind["struct"]}
        return kind | {"struct": {**kind["struct"], **types, **self.rules.columns}}

    @property
    def created(self) -> bool:
        """Whether what can be created has been."""
        return self.rounds > (1 if self.rules.routing.is_free else 0)

    def passes_over(self, value: Dead | Filtered, topic: str) -> bool:
        """Whether nothing looks at the value, because the topic leads to no table."""
        return (
            isinstance(value, Dead)
            and bool(topic)
            and not self.rules.transforms
            and not _named_by(topic, self.rules.routing)
        )

    def fate(self, value: Any, topic: str = "") -> Fate:
        names = self._targets(value, topic)
        if not names:
            return Filtered("unrouted") if self.rules.routing.unrouted == "skip" else Dead("ROUTING")
        if self.rules.routing.is_free:
            if not _is_name(names[0]):
                return Dead("ROUTING")
            if self.rounds == 0:
                return Rows({})
        rows: dict[str, Any] = {}
        found: dict[str, Needs] = {}
        created: dict[str, Needs] = {}
        missing = waits = False
        for name in names:
            if name in self.tables:
                rules = self.rules
                converter = Converter(
                    self.tables[name],
                    rules.evolve,
                    rules.fold,
                    rules.any_year,
                    rules.declared,
                    rules.converter,
                    rules.on_type_change,
                )
                try:
                    rows[name] = converter.row(value)
                except Unfit:
                    return Dead("conversion")
                found[name] = converter.needs
            elif self.rules.create:
                kind = self._kind(value)
                if self.created or not isinstance(value.value if isinstance(value, Typed) else value, dict):
                    return Dead(ANY)
                created[name] = Needs(create=kind)
                waits = waits or not self._creates(kind)
            elif not isinstance(value.value if isinstance(value, Typed) else value, dict):
                return Dead("conversion")
            elif self.rules.routing.missing_table == "skip":
                missing = True
            else:
                return Dead("ROUTING")
        if waits:  # until others have created the table: it may fit
            return Rows({})
        # Tables that are missing come first: only then it is known whether a record fits them, and may change others.
        found = created or found
        # Of what cannot be written it is said once everything could be converted, and tables need nothing any more.
        if not any(found.values()) and any(self._unwritable(name, row) for name, row in rows.items()):
            return Dead("WRITING")
        for name, need in found.items():
            self.needs.setdefault(name, Needs()).merge(need)
        return Filtered("missing table") if missing and not rows else Rows(rows)

    def _creates(self, kind: kinds.Kind) -> bool:
        """Whether a table can be created from a record: all fields have names, and id-columns whole numbers or text."""
        fields = (kind or {}).get("struct") or {}
        ids = [fields.get(name) for name in self.rules.id_columns]
        inner = [".".join(path) for path in kinds.paths(kind)]
        named = len(set(inner)) == len(inner) and all(kinds.is_name(n) for path in kinds.paths(kind) for n in path)
        return named and bool(fields) and all(isinstance(i, str) and i not in ("float", "double") for i in ids)

    def _is_orc(self, name: str) -> bool:
        return name in self.rules.orc or (self.rules.creates_orc and name in self.made)

    def _unwritable(self, name: str, row: Any) -> bool:
        columns = self.tables[name].columns
        if any(_has_no_key(row, columns, path, transform) for path, transform in self.rules.keys.get(name, ())):
            return True
        return self._is_orc(name) and any(map(_before_1970, self._leaves(row, columns)))

    def _leaves(self, row: Any, columns: Sequence[Column]) -> Iterator[tuple[Any, str]]:
        for column in columns:
            yield from _leaves(row[column.name], column)

    def _kind(self, value: Any) -> kinds.Kind:
        if isinstance(value, Typed):
            return value.node.need()
        return kinds.folded(kinds.of_value(value)) if self.rules.fold else kinds.of_value(value)

    def _targets(self, value: Any, topic: str) -> tuple[str, ...]:
        routing = self.rules.routing
        if routing.topic_pattern is not None:
            return _named_by(topic, routing)
        value = value.value if isinstance(value, Typed) else value
        if routing.field is None:
            return tuple(rule.table for rule in routing.rules)
        for name in routing.field.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        if value is None:
            return ()
        text = values.convert(value, values.TEXT)
        if routing.dynamic:
            return (text.lower(),)
        return tuple(rule.table for rule in routing.rules if rule.regex and re.fullmatch(rule.regex, text))


def _named_by(topic: str, routing: Routing) -> tuple[str, ...]:
    """The table that a pattern makes of a topic, if the regex matches all of it."""
    match = re.fullmatch(routing.topic_regex or "(?s:.*)", topic)
    if match is None:
        return ()
    groups = {"topic": topic, **{str(i): text or "" for i, text in enumerate(match.groups(), 1)}, **match.groupdict("")}
    pattern = str(routing.topic_pattern)
    return (re.sub(r"\{(\w+)\}", lambda found: groups[found.group(1)], pattern).lower(),)


def _leaves(value: Any, column: Column) -> Iterator[tuple[Any, str]]:
    """Values with the names of their types."""
    match value:
        case dict():
            for inner in column.inner:
                yield from _leaves(value[inner.name], inner)
        case list() if value and isinstance(value[0], tuple):
            for pair in value:
                for part, inner in zip(pair, column.inner, strict=True):
                    yield from _leaves(part, inner)
        case list():
            for item in value:
                yield from _leaves(item, column.inner[0])
        case _:
            yield value, str(column.kind)


def _has_no_key(row: Any, columns: Sequence[Column], path: Sequence[str], transform: str) -> bool:
    """Whether a row's partition or place in the sort order is beyond the type that it has."""
    column = next(c for c in columns if c.name == path[0])
    if row is None or len(path) > 1:
        return row is not None and _has_no_key(row[path[0]], column.inner, path[1:], transform)
    value = spec.partition_value(row[path[0]], column.kind, transform)
    match value:
        case Decimal():
            assert isinstance(column.kind, DecimalType)
            limit: int = 10**column.kind.precision
            return abs(spec.unscaled(value, column.kind)) >= limit
        case int() if transform == "hour" or str(column.kind) == "int":
            return not -(1 << 31) <= value < 1 << 31
        case int():
            return not -(1 << 63) <= value < 1 << 63
    return False


def _is_name(name: str) -> bool:
    """Whether a record may name this table, with its namespace."""
    parts = name.split(".")
    if len(parts) < 2 or len(name) > 1_000 or any(mark in name for mark in "/\\?#%{}"):
        return False
    return all(part.strip() == part != "" and part.isprintable() and len(part.encode()) <= 255 for part in parts)


def _before_1970(leaf: tuple[Any, str]) -> bool:
    """A timestamp that ORC cannot hold: before 1970, with a fraction of a second."""
    value, kind = leaf
    second = 1_000_000_000 if kind.endswith("_ns") else 1_000_000
    return kind.startswith("timestamp") and value is not None and value < 0 and value % second != 0
