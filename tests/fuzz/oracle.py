"""One record and one table: its row, or that it does not fit, and what it needs of the table. Said once more in plain Python,
by docs/reference/types.md, docs/reference/evolution.md and docs/reference/converters.md.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from pyiceberg.types import DoubleType, FloatType, IntegerType, ListType, LongType, MapType, StructType

from tests.fuzz import forms, kinds, values
from tests.fuzz.forms import Pairs
from tests.fuzz.meanings import bare
from tests.fuzz.nodes import Node
from tests.fuzz.tables import Column, Table, column_of
from tests.fuzz.values import TooLarge, Unfit

NESTING = 32
"""Levels that a value and a new column may have: the default of iceberg.limits.nesting."""


@dataclass
class Needs:
    """The changes that a record needs of one table: its creation, new columns by path, wider types, optional columns."""

    create: kinds.Kind = None
    add: dict[tuple[str, ...], kinds.Kind] = field(default_factory=dict)
    widen: dict[tuple[str, ...], str] = field(default_factory=dict)
    optional: set[tuple[str, ...]] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.create or self.add or self.widen or self.optional)

    def merge(self, other: Needs) -> None:
        self.create = kinds.merge(self.create, other.create)
        for path, kind in other.add.items():
            self.add[path] = kinds.merge(self.add.get(path), kind)
        self.widen |= other.widen
        self.optional |= other.optional


@dataclass(frozen=True)
class Typed:
    """A value that came with its schema."""

    value: Any
    node: Node


class NotJson(Exception):
    """No JSON value that can be taken."""


def parse(raw: bytes) -> Any:
    """A JSON value, numbers as they are written; the last of several fields of one name counts.

    :raises NotJson: it is none.
    """
    try:
        value = json.loads(raw.decode(), parse_float=_fraction, parse_constant=_constant)
        json.dumps(value, default=str, ensure_ascii=False).encode()
        if depth(value) > NESTING:
            raise NotJson("nested too deep")
    except (ValueError, RecursionError) as error:
        raise NotJson(str(error)) from error
    return value


def depth(value: Any) -> int:
    """Levels of objects and arrays."""
    found, here = 0, [value]
    while here := [item for item in here if isinstance(item, dict | list)]:
        found += 1
        here = [inner for item in here for inner in (item.values() if isinstance(item, dict) else item)]
    return found


def _fraction(text: str) -> Decimal:
    if math.isinf(float(text)):
        raise ValueError("beyond a double")
    return Decimal(text)


def _constant(text: str) -> Any:
    raise ValueError(text)


class Converter:
    """One record for one table as it is."""

    def __init__(
        self,
        table: Table,
        evolve: bool,
        case_insensitive: bool,
        any_year: bool,
        declared: Mapping[str, kinds.Kind] | None = None,
        converter: str = "json",
        on_type_change: str = "fail",
    ) -> None:
        """``declared``: the types of columns that the table may get. ``converter``: of the records. ``on_type_change``: what
        becomes of values that do not fit.
        """
        self._on_type_change = on_type_change
        self._table, self._evolve, self._fold, self._any_year = table, evolve, case_insensitive, any_year
        self._declared, self._format, self._within = declared or {}, converter, 0
        self.needs = Needs()

    def row(self, value: Any) -> Any:
        """:raises Unfit: it does not fit, and no need can change that."""
        value, node = (value.value, value.node) if isinstance(value, Typed) else (value, None)
        return self._struct(value, self._table.columns, (), node)

    def _struct(self, value: Any, columns: Sequence[Column], path: tuple[str, ...], node: Node | None) -> Any:
        is_map = isinstance(value, Pairs) and all(isinstance(key, str) for key, _ in value)
        value = dict(value) if is_map else value
        if not isinstance(value, dict):
            raise Unfit("no object")
        given: dict[str, tuple[Any, Node | None]] = {}
        for name, item in value.items():
            column, inner = self._find(columns, name), _inner(node, "value" if is_map else name)
            if item is None and self._lacks(inner):
                continue
            if column is not None:
                given[column.name] = item, inner
            elif is_map:
                continue  # a schema has no fields for the keys of a map
            elif self._evolve and not path and name in self._declared and (item is not None or inner is not None):
                kind = self._declared[name]
                if item is not None:
                    self._column(item, inner, column_of(name, kind), (name,))  # what does not fit asks for nothing
                self._add((name,), kind, item)
            elif self._evolve and (kind := self._kind(item, inner)) is not None:
                self._add((*path, name.lower() if self._fold else name), kind, item)
        if self._on_type_change == "column" and not is_map and not self._within:
            self._move(value, given, columns, path)
        return {
            c.name: self._default(c)
            if c.name not in given and c.default is not None
            else self._column(*given.get(c.name, (None, None)), c, (*path, c.name))
            for c in columns
        }

    def _move(
        self,
        value: Mapping[str, Any],
        given: dict[str, tuple[Any, Node | None]],
        columns: Sequence[Column],
        path: tuple[str, ...],
    ) -> None:
        """Move what does not fit its column into one beside it.

        :raises Unfit: a value has no such column.
        """
        for column, (item, node) in [(c, given[c.name]) for c in columns if c.name in given]:
            if item is None or column.required or self._fits(item, node, column, path):
                continue
            kind = self._kind(item, node)
            if kind is None:
                raise Unfit("a value without a type")
            name = f"{column.name}_{kinds.name_of(kind)}"
            beside = self._find(columns, name)
            if any(field is not None and self._is_of(each, name, beside) for each, field in value.items()):
                raise Unfit("it has a value of its own")
            if beside is not None:
                given[beside.name] = item, node
            else:
                self._add((*path, name.lower() if self._fold else name), kind, item)
            given[column.name] = None, None

    def _is_of(self, field: str, name: str, column: Column | None) -> bool:
        """Whether a field goes to this column, or would bring one of this name."""
        if column is not None:
            return self._find([column], field) is not None
        return field.lower() == name.lower() if self._fold else field == name

    def _fits(self, value: Any, node: Node | None, column: Column, path: tuple[str, ...]) -> bool:
        """Whether a value is of a column's type, whatever is inside of it."""
        match column.kind:
            case StructType():
                plain = bare(value)
                is_map = isinstance(plain, Pairs) and all(isinstance(key, str) for key, _ in plain)
                return is_map or isinstance(plain, dict)
            case ListType():
                return isinstance(value, list) and not isinstance(value, Pairs)
            case MapType():
                return isinstance(value, dict | Pairs) and (node is None or node.kind == "map")
        scratch = copy.copy(self)
        scratch.needs = Needs()
        try:
            scratch._primitive(value, node, column, (*path, column.name))
        except Unfit:
            return False
        return True

    def _lacks(self, node: Node | None) -> bool:
        """Whether the record of a null has no field there."""
        if node is None or self._within:
            return False
        return self._format == "protobuf" or (self._format == "json-schema" and bool(node.form & 8))

    def _default(self, column: Column) -> Any:
        if isinstance(column.kind, StructType):
            return {c.name: None if c.default is None else self._default(c) for c in column.inner}
        return values.convert(column.default, column.kind, column.unit, self._any_year)

    def _add(self, path: tuple[str, ...], kind: kinds.Kind, value: Any) -> None:
        """:raises Unfit: the table cannot have such a column, and there is a value for it."""
        try:
            self._add_column(path, kind)
        except Unfit:
            if value is not None:
                raise

    def _add_column(self, path: tuple[str, ...], kind: kinds.Kind) -> None:
        new = [".".join((*path, *inner)) for inner in ((), *kinds.paths(kind))]
        there = self._table.paths(self._fold)
        if not all(map(kinds.is_name, (path[-1], *(name for inner in kinds.paths(kind) for name in inner)))):
            raise Unfit("a name that no column may have")
        if len(set(new)) < len(new) or there & set(new):
            raise Unfit("a column would be there twice")
        if len(path) + kinds.depth(kind) > NESTING:
            raise Unfit("nested too deep")
        self.needs.merge(Needs(add={path: kind}))

    def _kind(self, value: Any, node: Node | None) -> kinds.Kind:
        """The changes for a new field."""
        if node is not None:  # of a schema also a null brings its column
            return node.need()
        return kinds.folded(kinds.of_value(value)) if self._fold else kinds.of_value(value)

    def _find(self, columns: Sequence[Column], name: str) -> Column | None:
        for column in columns:
            if name in column.names or (self._fold and name.lower() in (n.lower() for n in column.names)):
                return column
        return None

    def _column(self, value: Any, node: Node | None, column: Column, path: tuple[str, ...]) -> Any:
        if value is None:
            if column.required and (column.identifier or not self._evolve):
                raise Unfit("required")
            if column.required:
                self.needs.optional.add(path)
            return None
        match column.kind:
            case StructType():
                return self._struct(bare(value), column.inner, path, node)
            case ListType():
                if not isinstance(value, list) or isinstance(value, Pairs):
                    raise Unfit("no array")
                element = _inner(node, "element")
                self._within += 1
                items = [self._column(item, element, column.inner[0], (*path, "element")) for item in value]
                self._within -= 1
                return items
            case MapType():
                self._within += 1
                entries = self._map(value, node, column, path)
                self._within -= 1
                return entries
        return self._primitive(value, node, column, path)

    def _map(self, value: Any, node: Node | None, column: Column, path: tuple[str, ...]) -> Any:
        if not isinstance(value, dict | Pairs) or (node is not None and node.kind != "map"):
            raise Unfit("no object")
        key, item = column.inner
        pairs = value.items() if isinstance(value, dict) else value
        found = [(self._primitive(name, None, key, None), v) for name, v in pairs]
        if len({forms.canonical(k) for k, _ in found}) < len(found):
            raise Unfit("a key twice")
        return [(k, self._column(v, _inner(node, "value"), item, (*path, "value"))) for k, v in found]

    def _primitive(self, value: Any, node: Node | None, column: Column, path: tuple[str, ...] | None) -> Any:
        kind = column.kind
        wider = LongType() if isinstance(kind, IntegerType) else DoubleType() if isinstance(kind, FloatType) else None
        if wider is None or path is None or not self._evolve:
            return values.convert(value, kind, column.unit, self._any_year)
        if node is not None and node.wire == str(wider):
            self.needs.widen[path] = str(wider)
            return None
        try:
            return values.convert(value, kind)
        except TooLarge:
            values.convert(value, wider)
            self.needs.widen[path] = str(wider)
            return None


def _inner(node: Node | None, name: str) -> Node | None:
    """The schema of a field, of elements or of a map's values, where there is one."""
    if node is None:
        return None
    return next((n for n in node.inner if n.name == name), None)
