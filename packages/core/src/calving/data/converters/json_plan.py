"""How Arrow's JSON reader may read a block, so that each value comes out as the exact way gives it.

The reader is given a type for every field. What was seen of the data decides only which types are tried. A type is used
only if every JSON token that Arrow takes for it means the same to its column as to the exact way; all other tokens
Arrow refuses, or ``doubtful`` finds. So what was seen can cost time, but never change a value.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Literal

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

from calving.data.arrays import items_of
from calving.data.converters.interface import Target, Wish
from calving.data.jsontext import load_json
from calving.data.shapes import shape_of, shape_of_type

Kind = Literal["boolean", "long", "double", "string", "object", "array"]
_KINDS: Mapping[type, Kind] = {
    bool: "boolean",
    int: "long",
    Decimal: "double",
    str: "string",
    dict: "object",
    list: "array",
}
_READ = {"boolean": pa.bool_(), "long": pa.int64(), "string": pa.string()}
"""Types that hold every token that Arrow takes for them as it is."""


Wanted = Mapping[str, Any] | None
"""Names that matter, each with those below it (an array passes its elements'); None: all."""


class NoPlanError(Exception):
    """No type is right for some field: the block goes the exact way."""


class Seen:
    """What was seen of a field: the kinds of its values in the order they first came, its fields, its elements."""

    __slots__ = ("element", "fields", "kinds")

    def __init__(self) -> None:
        self.kinds: list[Kind] = []
        self.fields: dict[str, Seen] = {}
        self.element: Seen | None = None

    def look(self, value: Any, wanted: Wanted, room: int) -> int:
        """Look at a value; how much of it is news. At most ``room`` names are taken in, and only ``wanted`` ones."""
        if value is None:
            return 0
        kind = _KINDS[type(value)]
        news = 0
        if kind not in self.kinds:
            self.kinds.append(kind)
            news = 1
        if kind == "object":
            for name, item in value.items():
                if wanted is not None and name not in wanted:
                    continue
                known = self.fields.get(name)
                if known is None:
                    if news >= room:
                        break
                    known = self.fields[name] = Seen()
                    news += 1
                news += known.look(item, None if wanted is None else wanted[name], room - news)
        elif kind == "array":
            if self.element is None:
                self.element = Seen()
                news += 1
            for item in value:
                news += self.element.look(item, wanted, room - news)
        return news


class Plan(ABC):
    """One way to read a block."""

    ignores_unknown = False
    """Whether fields without a type are passed over; else Arrow refuses them."""
    wanted: Wanted = None
    """The names that have to be learnt."""

    @abstractmethod
    def type(self, seen: Seen) -> pa.DataType:
        """The struct type to read as. :raises NoPlanError: there is none."""

    @abstractmethod
    def doubtful(self, rows: pa.StructArray, values: Sequence[bytes]) -> list[int]:
        """The rows that Arrow may have read in another way than the exact one."""


def plan(wish: Wish | None) -> Plan | None:
    """The plan for a wish; None: only the exact way will do."""
    if wish is None:
        return None
    if wish.route is not None:
        return _RoutePlan(wish.route)
    return _TablePlan(wish) if wish.targets else _WholePlan(wish.decimals, wish.ordered)


class _TablePlan(Plan):
    """Values go to tables as they are, which decides what has to be told apart."""

    def __init__(self, wish: Wish) -> None:
        self._targets, self._unknown = wish.targets, wish.unknown
        self.ignores_unknown = wish.unknown == "ignore"
        if self.ignores_unknown:
            self.wanted = _wanted([target.columns for target in wish.targets])

    def type(self, seen: Seen) -> pa.DataType:
        return self._struct(seen, [(target, target.columns) for target in self._targets])

    def _struct(self, seen: Seen, wanted: Sequence[tuple[Target, IcebergType]]) -> pa.DataType:
        """``wanted``: what each table that has this field takes here."""
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
            inner = seen.fields.get(name, _UNSEEN)
            found = [(t, f.field_type) for t, lookup in lookups if (f := lookup.find(name)) is not None]
            lacking = self._unknown == "add" and len(found) < len(lookups)
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
            return pa.list_(self._field(seen.element or _UNSEEN, elements))
        if all(isinstance(k, DecimalType) for k in kinds) and kind in ("long", "double", "string"):
            (scale, *others) = {k.scale for k in kinds}  # type: ignore[attr-defined]
            if not others:
                # 38 digits with up to 38 more for the scale fit 256 bits; Arrow checks no overflow when it scales.
                return pa.decimal256(38, scale)
        if all(isinstance(k, FloatType | DoubleType) for k in kinds) and kind in ("long", "double"):
            return pa.float64()
        if kind in _READ:
            return _READ[kind]
        raise NoPlanError("a fraction into what is neither float, double nor decimal")

    def doubtful(self, rows: pa.StructArray, values: Sequence[bytes]) -> list[int]:
        return _rows_where(rows, _is_odd_double)


class _RoutePlan(Plan):
    """Only the text of one field is wanted."""

    ignores_unknown = True

    def __init__(self, path: str) -> None:
        self._names = path.split(".")
        self.wanted = {}
        for name in reversed(self._names):
            self.wanted = {name: self.wanted}

    def type(self, seen: Seen) -> pa.DataType:
        for name in self._names:
            seen = seen.fields.get(name, _UNSEEN)
        kind = seen.kinds[0] if seen.kinds else "string"
        if kind not in _READ:
            raise NoPlanError("a route field that is no simple value")
        found = _READ[kind]
        for name in reversed(self._names):
            found = pa.struct([(name, found)])
        return found

    def doubtful(self, rows: pa.StructArray, values: Sequence[bytes]) -> list[int]:
        return []


class _WholePlan(Plan):
    """Values are kept whole: every record must have exactly the fields that the block is read with, in this order."""

    def __init__(self, decimals: bool, ordered: bool) -> None:
        self._decimals, self._ordered = decimals, ordered
        self._kind: pa.DataType | None = None
        self._pattern: str | None = ""

    def type(self, seen: Seen) -> pa.DataType:
        return self._struct(seen)

    def _struct(self, seen: Seen) -> pa.DataType:
        return pa.struct([(name, self._field(inner)) for name, inner in seen.fields.items()])

    def _field(self, seen: Seen) -> pa.DataType:
        kind = seen.kinds[0] if seen.kinds else None
        if kind is None:
            return pa.null()
        if kind == "object":
            return self._struct(seen)
        if kind == "array":
            element = seen.element or _UNSEEN
            if "object" in element.kinds:
                raise NoPlanError("an array of objects: they may differ")
            return pa.list_(self._field(element) if element.kinds else pa.string())
        if kind == "double" or "double" in seen.kinds:
            if self._decimals:
                raise NoPlanError("fractions of which every digit counts")
            return pa.float64()
        return _READ[kind]

    def doubtful(self, rows: pa.StructArray, values: Sequence[bytes]) -> list[int]:
        whole = _rows_where(rows, _is_whole)
        if not self._ordered and _is_flat(rows):
            return self._unlike(rows.type, values, whole)
        if rows.type != self._kind:
            self._kind, self._pattern = rows.type, _pattern(rows.type)
        if self._pattern is None:
            return list(range(len(rows)))
        texts = pa.array(values, pa.binary()).cast(pa.string())
        other: list[int] = pc.indices_nonzero(pc.invert(pc.match_substring_regex(texts, self._pattern))).to_pylist()
        known = set(other)
        return other + self._unlike(rows.type, values, [row for row in whole if row not in known])

    def _unlike(self, kind: pa.DataType, values: Sequence[bytes], rows: Sequence[int]) -> list[int]:
        """The rows whose values are not of this type when they are looked at."""
        if not rows:
            return []
        wanted = shape_of_type(kind)
        return [row for row in rows if (shape_of(load_json(values[row].decode()), decimals=self._decimals) != wanted)]


def _is_flat(rows: pa.StructArray) -> bool:
    """Whether every record has all fields, with simple values."""
    return all(not pa.types.is_nested(f.type) and not rows.field(i).null_count for i, f in enumerate(rows.type))


def _wanted(kinds: Sequence[IcebergType]) -> dict[str, Any]:
    """The names of fields, and of those below them, of any of these types."""
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


_UNSEEN = Seen()
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_ @:/-]+")


def _pattern(kind: pa.DataType) -> str | None:
    """A pattern that only records with all fields of the type match, in its order; None: there is none.

    Each name stands at most once in a record where the type has it, so a record that matches has them all.
    """
    if not all(map(_PLAIN_NAME.fullmatch, _names(kind))):
        return None
    return "(?s)" + _sequence(kind)


def _sequence(kind: pa.DataType) -> str:
    parts = []
    for field in kind:
        part = f'"{re.escape(field.name)}":'
        if pa.types.is_struct(field.type) and field.type.num_fields:
            part += rf"(?:\s*null|.*{_sequence(field.type)})"
        parts.append(part)
    return ".*".join(parts)


def _names(kind: pa.DataType) -> Iterator[str]:
    for field in kind:
        yield field.name
        if pa.types.is_struct(field.type):
            yield from _names(field.type)


def _check_distinct(names: Mapping[str, object], lookups: Sequence[Any]) -> None:
    for lookup in lookups:
        found = [column.field_id for name in names if (column := lookup.find(name)) is not None]
        if len(set(found)) < len(found):
            raise NoPlanError("two names for one column")


def _expected(kinds: Sequence[IcebergType]) -> Kind:
    """What is tried for a field that was not seen yet."""
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
    """A type that takes no value: what has one is a column to be added."""
    kind = seen.kinds[0] if seen.kinds else None
    if kind == "object":
        return pa.struct([(name, _nothing(inner)) for name, inner in seen.fields.items()])
    if kind == "array":
        element = seen.element or _UNSEEN
        # Arrow miscounts nulls in lists of nulls.
        return pa.list_(_nothing(element) if element.kinds[:1] in (["object"], ["array"]) else pa.struct([]))
    return pa.null()


def _any(seen: Seen) -> pa.DataType:
    """A type for what nobody wants."""
    kind = seen.kinds[0] if seen.kinds else None
    if kind == "object":
        return pa.struct([(name, _any(inner)) for name, inner in seen.fields.items()])
    if kind == "array":
        return pa.list_(_any(seen.element) if seen.element is not None and seen.element.kinds else pa.string())
    if kind is None:
        return pa.null()
    return pa.float64() if "double" in seen.kinds else _READ[kind]


def _rows_where(rows: pa.StructArray, test: Any) -> list[int]:
    """Rows in which some double is as ``test`` says."""
    found: dict[int, None] = {}
    for i, field in enumerate(rows.type):
        mask = _mask(rows.field(i), field.type, test)
        if mask is not None:
            found |= dict.fromkeys(mask)
    return list(found)


def _mask(column: pa.Array, kind: pa.DataType, test: Any) -> list[int] | None:
    t = pa.types
    if t.is_floating(kind):
        found = test(column)
        return None if found is None else pc.indices_nonzero(found).to_pylist()
    if t.is_struct(kind):
        return _rows_where(column, test) or None
    if t.is_list(kind):
        inner = _mask(items_of(column), kind.value_type, test)
        if inner is None:
            return None
        parents = pc.list_parent_indices(column)
        return pc.take(parents, pa.array(inner, pa.int64())).unique().to_pylist()  # type: ignore[no-any-return]
    return None


def _is_odd_double(column: pa.Array) -> pa.Array | None:
    """Not finite (Arrow takes NaN for a number), or -0.0, which the text -0 becomes only as a double."""
    odd = pc.or_(pc.invert(pc.is_finite(column)), pc.equal(pc.divide(pa.scalar(1.0), column), float("-inf")))
    return pc.fill_null(odd, False) if pc.any(odd).as_py() else None


def _is_whole(column: pa.Array) -> pa.Array | None:
    """Not finite, or whole: the text may have been that of an integer."""
    odd = pc.or_(pc.invert(pc.is_finite(column)), pc.equal(pc.floor(column), column))
    return pc.fill_null(odd, False) if pc.any(odd).as_py() else None
