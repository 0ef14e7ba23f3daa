"""Tables as the oracle sees them: columns by name, without ids."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pyiceberg.schema import Schema
from pyiceberg.types import (
    IcebergType,
    ListType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from tests.fuzz.kinds import Kind
from tests.fuzz.values import MILLI

if TYPE_CHECKING:
    from tests.fuzz.oracle import Needs


@dataclass(frozen=True)
class Column:
    """``inner``: a struct's columns, a list's element, a map's key and value. ``names`` are those it is found by."""

    name: str
    kind: IcebergType
    required: bool
    identifier: bool = False
    names: tuple[str, ...] = ()
    inner: tuple[Column, ...] = ()
    unit: int = MILLI
    """The nanoseconds that a number counts in a time or timestamp."""
    default: Any = None
    """What a record without the field has, as JSON."""


@dataclass(frozen=True)
class Table:
    columns: tuple[Column, ...]

    def changed(self, needs: Needs, fold: bool) -> Table:
        """The table once it has what records need. In a name mapping only new columns get names."""
        columns = self.columns
        for path in needs.optional:
            columns = _at(columns, path, lambda c: replace(c, required=False))
        for path, wider in needs.widen.items():
            columns = _at(columns, path, lambda c, w=wider: replace(c, kind=_primitive(w)))
        there = set(self.paths(fold))
        for path, kind in sorted(needs.add.items(), key=lambda item: (len(item[0]), item[0])):
            for name, inner in _named_once({path[-1]: kind}, path[:-1], there).items():
                columns = _add(columns, path, column_of(name, inner))
        return Table(columns)

    def paths(self, fold: bool) -> frozenset[str]:
        """Names of all columns, dotted; those in lists and maps also without ``element`` and ``value``, as Iceberg has it."""
        return frozenset(name.lower() if fold else name for name in _paths(self.columns, "", ""))

    def signature(self, fold: bool = False) -> dict[str, Any]:
        """Names, types and what is required, to be compared."""
        return signature(self.columns, fold)


def _paths(columns: Sequence[Column], prefix: str, short: str) -> Iterator[str]:
    for c in columns:
        yield prefix + c.name
        yield short + c.name
        shorter = short + c.name + "."
        if isinstance(c.kind, ListType | MapType):
            inner = [i for i in c.inner if isinstance(i.kind, StructType)]
            for i in c.inner:
                yield f"{prefix}{c.name}.{i.name}"
                yield f"{shorter}{i.name}"
                deeper = shorter if i in inner and i.name != "key" else f"{shorter}{i.name}."
                yield from _paths(i.inner, f"{prefix}{c.name}.{i.name}.", deeper)
        else:
            yield from _paths(c.inner, f"{prefix}{c.name}.", shorter)


def signature(columns: Sequence[Column], fold: bool) -> dict[str, Any]:
    return {
        c.name.lower() if fold else c.name: (
            signature(c.inner, fold) if c.inner else str(c.kind),
            type(c.kind).__name__,
            c.required,
        )
        for c in columns
    }


def table_of(
    schema: Schema, mapping: Mapping[int, tuple[str, ...]] | None = None, units: Mapping[int, int] | None = None
) -> Table:
    """``mapping``: the names that columns are found by; ``units``: how they count; both by id."""
    identifiers = set(schema.identifier_field_ids)
    return Table(tuple(_column(f, identifiers, mapping or {}, units or {}) for f in schema.fields))


def fields_within(kind: IcebergType) -> tuple[NestedField, ...]:
    """The fields of a nested type; none of another."""
    match kind:
        case StructType():
            return kind.fields
        case ListType():
            return (kind.element_field,)
        case MapType():
            return (kind.key_field, kind.value_field)
    return ()


def _column(
    f: NestedField, identifiers: set[int], mapping: Mapping[int, tuple[str, ...]], units: Mapping[int, int]
) -> Column:
    kind, inner = f.field_type, fields_within(f.field_type)
    return Column(
        f.name,
        kind,
        f.required,
        f.field_id in identifiers,
        mapping.get(f.field_id) or (f.name,),
        tuple(_column(i, identifiers, mapping, units) for i in inner),
        units.get(f.field_id, MILLI),
        _as_json(f.write_default),
    )


def _as_json(default: Any) -> Any:
    match default:
        case bytes():
            return base64.b64encode(default).decode()
        case date() | time():
            return default.isoformat()
        case UUID() | Decimal():
            return str(default)
    return default


def column_of(name: str, kind: Kind, required: bool = False) -> Column:
    """A new column; inside it is required what a schema says is."""
    if isinstance(kind, str):
        return Column(name, _primitive(kind), required, names=(name,))
    if "list" in kind:
        inner = (column_of("element", kind["list"], bool(kind.get("required"))),)
        return Column(name, ListType(0, StringType(), False), required, names=(name,), inner=inner)
    if "map" in kind:
        key, value = kind["map"]
        both = (column_of("key", key, True), column_of("value", value, bool(kind.get("required"))))
        return Column(name, MapType(0, StringType(), 0, StringType(), False), required, names=(name,), inner=both)
    fields = tuple(column_of(n, k, n in kind.get("required", ())) for n, k in kind["struct"].items())
    return Column(name, StructType(), required, names=(name,), inner=fields)


def _primitive(kind: str) -> IcebergType:
    return NestedField.model_validate({"id": 1, "name": "x", "required": False, "type": kind}).field_type


def _at(columns: Sequence[Column], path: tuple[str, ...], change: Any) -> tuple[Column, ...]:
    return tuple(
        c if c.name != path[0] else change(c) if len(path) == 1 else replace(c, inner=_at(c.inner, path[1:], change))
        for c in columns
    )


def _add(columns: Sequence[Column], path: tuple[str, ...], new: Column) -> tuple[Column, ...]:
    if len(path) == 1:
        return tuple(columns) if any(c.name == new.name for c in columns) else (*columns, new)
    return _at(columns, path[:-1], lambda c: replace(c, inner=_add(c.inner, path[-1:], new)))


def created(kind: Kind, id_columns: Sequence[str]) -> Table:
    """A table made of what records need."""
    columns = column_of("", kind | {"struct": _named_once(kind["struct"], (), set())}).inner
    return Table(tuple(replace(c, required=True, identifier=True) if c.name in id_columns else c for c in columns))


def _named_once(fields: Mapping[str, Kind], path: Sequence[str], there: set[str]) -> dict[str, Kind]:
    """New columns without those whose full name is there already. Those of objects come before those with dots."""
    left: dict[str, Kind] = {}
    for name, kind in sorted(fields.items()):
        full = ".".join((*path, name))
        if full not in there:
            there.add(full)
            inner = _once(kind, (*path, name), there)
            if inner is None:
                there.remove(full)
            else:
                left[name] = inner
    return left


def _once(kind: Kind, path: Sequence[str], there: set[str]) -> Kind:
    match kind:
        case {"struct": fields}:
            left = _named_once(fields, path, there)
            return kind | {"struct": left} if left else None
        case {"list": element}:
            left = _named_once({"element": element}, path, there)
            return kind | {"list": left["element"]} if left else None
        case {"map": [key, value]}:
            left = _named_once({"key": key, "value": value}, path, there)
            return kind | {"map": [left["key"], left["value"]]} if len(left) == 2 else None
    return kind
