"""Plans for JSON that goes to tables without transforms, and for the route field alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import (
    BooleanType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    StructType,
)

from calving.records.fields import Projection, Target
from calving.records.json_plan import READ, UNSEEN, JsonKind, NoPlanError, Plan, Seen, rows_where


class TablePlan(Plan):
    """The plan for values that go to tables as they are. The tables' columns decide which tokens Arrow would read
    differently.
    """

    def __init__(self, projection: Projection) -> None:
        self._targets, self._unknown = projection.targets, projection.unknown
        self._route = None if projection.route is None else projection.route.split(".")
        self.ignores_unknown = projection.unknown == "ignore"
        if self.ignores_unknown:
            wanted = _wanted([target.columns for target in projection.targets])
            self.wanted = wanted if self._route is None else _wanted_too(wanted, self._route)

    def type(self, seen: Seen) -> pa.StructType:
        found = self._struct(seen, [(target, target.columns) for target in self._targets])
        return found if self._route is None else _with_route(found, self._route, seen)

    def _struct(self, seen: Seen, wanted: Sequence[tuple[Target, IcebergType]]) -> pa.StructType:
        """``wanted``: the type of this field in each table that has it."""
        lookups = [(t, t.lookup(kind)) for t, kind in wanted if isinstance(kind, StructType)]
        if len(lookups) < len(wanted):
            raise NoPlanError("an object into what is no struct")
        if self.ignores_unknown:
            names = dict.fromkeys(f.name for _, kind in wanted for f in kind.fields)  # type: ignore[attr-defined]
        else:
            names = dict.fromkeys(seen.fields)
            _check_distinct(names, [lookup for _, lookup in lookups])
        fields = []
        for name in names:
            inner = seen.fields.get(name, UNSEEN)
            found = [(t, f.field_type) for t, lookup in lookups if (f := lookup.find(name)) is not None]
            lacking = self._unknown == "add" and len(found) < len(lookups)
            if lacking and found:
                # For one table the field is a new column; for the other it is a value in which every null counts.
                raise NoPlanError("a field that only some of the tables have")
            fields.append((name, _nothing(inner) if lacking else self._field(inner, found)))
        return pa.struct(fields)

    def _field(self, seen: Seen, wanted: Sequence[tuple[Target, IcebergType]]) -> pa.DataType:
        if not wanted:
            return _any(seen)
        kinds = [kind for _, kind in wanted]
        kind = seen.kinds[0] if seen.kinds else _expected(kinds)
        if kind == "object":
            return self._struct(seen, wanted)
        if kind == "array":
            elements = [(t, k.element_type) for t, k in wanted if isinstance(k, ListType)]
            if len(elements) < len(wanted):
                raise NoPlanError("an array into what is no list")
            return pa.list_(self._field(seen.element or UNSEEN, elements))
        if all(isinstance(k, DecimalType) for k in kinds) and kind in ("long", "double", "string"):
            (scale, *others) = {k.scale for k in kinds}  # type: ignore[attr-defined]
            if not others:
                # 38 digits with up to 38 more for the scale fit 256 bits; Arrow checks no overflow when it scales.
                return pa.decimal256(38, scale)
        if all(isinstance(k, FloatType | DoubleType) for k in kinds) and kind in ("long", "double"):
            return pa.float64()
        if kind in READ:
            return READ[kind]
        raise NoPlanError("a fraction into what is neither float, double nor decimal")

    def doubtful(self, rows: pa.StructArray, values: Sequence[bytes]) -> list[int]:
        return rows_where(rows, _is_odd_double)


class RoutePlan(Plan):
    """The plan for the text of one field alone."""

    ignores_unknown = True

    def __init__(self, path: str) -> None:
        self._names = path.split(".")
        self.wanted = _wanted_too({}, self._names)

    def type(self, seen: Seen) -> pa.StructType:
        return _with_route(pa.struct([]), self._names, seen)

    def doubtful(self, rows: pa.StructArray, values: Sequence[bytes]) -> list[int]:
        return []


def _with_route(kind: pa.StructType, names: Sequence[str], seen: Seen) -> pa.StructType:
    """The type with this field added, as a type that keeps the field's text unchanged.

    :raises NoPlanError: no type does.
    """
    name, *inner = names
    place, seen = kind.get_field_index(name), seen.fields.get(name, UNSEEN)
    known = kind.field(place).type if place >= 0 else None
    if inner:
        if known is not None and not pa.types.is_struct(known):
            raise NoPlanError("a route field inside of what is read as another type")
        known = _with_route(pa.struct([]) if known is None else known, inner, seen)
    elif known is None:
        known = READ.get(seen.kinds[0] if seen.kinds else "string")
    if not inner and known not in READ.values():
        raise NoPlanError("a route field that is no simple value, or read as another type")
    return pa.struct([*(field for field in kind if field.name != name), pa.field(name, known)])


def _wanted_too(wanted: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The wanted names, with this path added."""
    name, *inner = names
    below = wanted.get(name, {})
    return wanted | {name: _wanted_too(below, inner) if inner else below}


def _wanted(kinds: Sequence[IcebergType]) -> dict[str, Any]:
    """The names of the fields of all these types, each with the names below it."""
    kinds = [_innermost(kind) for kind in kinds]
    by_name: dict[str, list[IcebergType]] = {}
    for kind in kinds:
        for field in kind.fields if isinstance(kind, StructType) else ():
            by_name.setdefault(field.name, []).append(field.field_type)
    return {name: _wanted(inner) for name, inner in by_name.items()}


def _innermost(kind: IcebergType) -> IcebergType:
    while isinstance(kind, ListType):
        kind = kind.element_type
    return kind


def _check_distinct(names: Mapping[str, object], lookups: Sequence[Any]) -> None:
    for lookup in lookups:
        found = [column.field_id for name in names if (column := lookup.find(name)) is not None]
        if len(set(found)) < len(found):
            raise NoPlanError("two names for one column")


def _expected(kinds: Sequence[IcebergType]) -> JsonKind:
    """The first type to try for a field without an observed value."""
    match kinds[0]:
        case StructType():
            return "object"
        case ListType():
            return "array"
        case BooleanType():
            return "boolean"
        case IntegerType() | LongType():
            return "long"
        case DoubleType() | FloatType() | DecimalType():
            return "double"
    return "string"


def _nothing(seen: Seen) -> pa.DataType:
    """A type that refuses every value, because a field with a value needs a new column."""
    kind = seen.kinds[0] if seen.kinds else None
    if kind == "object":
        return pa.struct([(name, _nothing(inner)) for name, inner in seen.fields.items()])
    if kind == "array":
        element = seen.element or UNSEEN
        # Arrow miscounts nulls in lists of nulls.
        return pa.list_(_nothing(element) if element.kinds[:1] in (["object"], ["array"]) else pa.struct([]))
    return pa.null()


def _any(seen: Seen) -> pa.DataType:
    """A type for an ignored field."""
    kind = seen.kinds[0] if seen.kinds else None
    if kind == "object":
        return pa.struct([(name, _any(inner)) for name, inner in seen.fields.items()])
    if kind == "array":
        return pa.list_(_any(seen.element) if seen.element is not None and seen.element.kinds else pa.string())
    if kind is None:
        return pa.null()
    return pa.float64() if "double" in seen.kinds else READ[kind]


_MINUS_ZERO = pa.scalar(-(2**63), pa.int64())
"""The bits of -0.0."""


def _is_odd_double(column: pa.Array) -> pa.Array | None:
    """Which doubles are not finite, or are -0.0. Arrow accepts NaN as a number; and the text -0 becomes -0.0 only as a
    double.
    """
    minus_zeros = pc.equal(column.view(pa.int64()), _MINUS_ZERO)
    if isfinite(pc.sum(column).as_py() or 0.0) and not pc.any(minus_zeros).as_py():
        return None
    return pc.fill_null(pc.or_(pc.invert(pc.is_finite(column)), minus_zeros), False)
