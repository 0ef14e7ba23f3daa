"""The plan for JSON values of which transforms need all fields."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from calving.records.arrays import holds
from calving.records.json_plan import READ, UNSEEN, NoPlanError, Plan, Seen, rows_where
from calving.records.jsontext import load_json
from calving.records.shapes import shape_of, shape_of_type


class WholePlan(Plan):
    """The plan for whole values: each must have exactly the fields of the type, in its order."""

    def __init__(self, decimals: bool, hides_order: Callable[[pa.DataType], bool]) -> None:
        self.decimals, self.hides_order = decimals, hides_order
        self._hidden = False
        self._kind: pa.StructType | None = None
        self._names: str | None = None
        self._fractions = _Fractions(pa.struct([]))

    def type(self, seen: Seen) -> pa.StructType:
        found = whole_type(seen, widens=True)
        if holds(found, _lists_objects):
            raise NoPlanError("an array of objects: they may differ")
        if self.decimals and holds(found, pa.types.is_floating):
            raise NoPlanError("fractions of which every digit counts")
        return found

    def doubtful(self, rows: pa.StructArray, values: Sequence[bytes]) -> list[int]:
        self._know(rows.type)
        whole = rows_where(rows, _is_whole)
        if self._hidden and has_all(rows):
            return self._unlike(rows.type, values, whole)
        if self._names is None:
            return list(range(len(rows)))
        fits = pc.match_substring_regex(pa.array(values, pa.binary()), self._names)
        other: list[int] = pc.indices_nonzero(pc.invert(fits)).to_pylist()
        known = set(other)
        return other + self._unlike(rows.type, values, [row for row in whole if row not in known])

    def _know(self, kind: pa.StructType) -> None:
        if kind != self._kind:
            self._kind, self._names, self._fractions = kind, _in_order(kind), _Fractions(kind)
            self._hidden = self.hides_order(kind)

    def _unlike(self, kind: pa.StructType, values: Sequence[bytes], rows: Sequence[int]) -> list[int]:
        """The rows among these whose JSON text does not have the type that Arrow read."""
        rows = [row for row in rows if not self._fractions.are_all_in(values[row])]
        if not rows:
            return []
        wanted = shape_of_type(kind)
        return [row for row in rows if (shape_of(load_json(values[row].decode()), decimals=self.decimals) != wanted)]


def whole_type(seen: Seen, *, widens: bool) -> pa.StructType:
    """The type with all fields that have been seen. ``widens``: a field with whole numbers and fractions becomes a
    double.
    """
    return pa.struct([(name, _type_of(inner, widens)) for name, inner in seen.fields.items()])


def _type_of(seen: Seen, widens: bool) -> pa.DataType:
    kind = seen.kinds[0] if seen.kinds else None
    if kind is None:
        return pa.null()
    if kind == "object":
        return whole_type(seen, widens=widens)
    if kind == "array":
        element = seen.element or UNSEEN
        return pa.list_(_type_of(element, widens) if element.kinds else pa.string())
    is_double = kind == "double" or (widens and "double" in seen.kinds)
    return pa.float64() if is_double else READ[kind]


def _lists_objects(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) and pa.types.is_struct(kind.value_type)


class _Fractions:
    """Checks quickly whether all doubles of a value were written as fractions with few digits.

    Then a double without a fraction, such as 5.0, was not an integer in the text; and no two texts give the same
    double. Doubles in lists are not covered.
    """

    def __init__(self, kind: pa.StructType) -> None:
        names = [*_double_names(kind)]
        self._count = 0 if holds(kind, pa.types.is_list) else len(names)
        choice = "|".join(map(re.escape, sorted({*names})))
        self._text = re.compile(rf'"(?:{choice})"\s*:\s*-?[0-9]{{1,8}}\.[0-9]{{1,7}}[,}}\s]'.encode())

    def are_all_in(self, value: bytes) -> bool:
        return self._count > 0 and len(self._text.findall(value)) == self._count


def _double_names(kind: pa.StructType) -> Iterator[str]:
    for field in kind:
        if pa.types.is_floating(field.type):
            yield field.name
        elif pa.types.is_struct(field.type):
            yield from _double_names(field.type)


def has_all(rows: pa.StructArray) -> bool:
    """Whether every record has all fields, with a value in each."""
    fields = [rows.field(i) for i in range(rows.type.num_fields)]
    return all(not f.null_count and (not isinstance(f, pa.StructArray) or has_all(f)) for f in fields)


_PLAIN_NAME = re.compile(r"[A-Za-z0-9_ @:/-]+")


def _in_order(kind: pa.StructType) -> str | None:
    """A pattern for records that have all fields of the type, in the type's order; None if there is no such pattern.

    A record has each name of the type at most once, so a record that matches the pattern has all names.
    """
    if not all(map(_PLAIN_NAME.fullmatch, _names(kind))):
        return None
    return "(?s)" + _sequence(kind)


def _sequence(kind: pa.StructType) -> str:
    parts = []
    for field in kind:
        part = f'"{re.escape(field.name)}":'
        if pa.types.is_struct(field.type) and field.type.num_fields:
            part += rf"(?:\s*null|.*{_sequence(field.type)})"
        parts.append(part)
    return ".*".join(parts)


def _names(kind: pa.StructType) -> Iterator[str]:
    for field in kind:
        yield field.name
        if pa.types.is_struct(field.type):
            yield from _names(field.type)


def _is_whole(column: pa.Array) -> pa.Array | None:
    """Which doubles are not finite, or are whole numbers: the text of a whole number may be an integer."""
    odd = pc.or_(pc.invert(pc.is_finite(column)), pc.equal(pc.floor(column), column))
    return pc.fill_null(odd, False) if pc.any(odd).as_py() else None
