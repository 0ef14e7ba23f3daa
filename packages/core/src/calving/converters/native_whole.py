"""Decodes schemaless JSON in Rust if all fields are needed: for transforms, and for tables whose columns cannot be read
in one way. Each shape of objects becomes a column, whose types are learned from values.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, cast

import pyarrow as pa

from calving.converters.native import Decoder, Field, Pieces, absence, whole_json_decoder
from calving.model.record_path import Limits
from calving.records import arrays
from calving.records.arrays import Indices, compose, without
from calving.records.fields import Projection
from calving.records.jsontext import parse
from calving.records.values import Payloads

_OF_VALUES: Mapping[type, pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    Decimal: pa.float64(),
    str: pa.string(),
}


class _Place:
    """A field or the elements of arrays: the type of its first value, its fields, and its elements."""

    __slots__ = ("element", "fields", "kind")

    def __init__(self) -> None:
        self.kind: type | None = None
        self.fields: dict[str, _Place] = {}
        self.element: _Place | None = None

    def look(self, value: Any, room: int) -> int:
        """Add a value. Returns how many names and types are new. At most ``room`` names are added."""
        if value is None:
            return 0
        news = 0
        if self.kind is None:
            self.kind, news = type(value), 1
        if isinstance(value, dict):
            for name, item in value.items():
                known = self.fields.get(name)
                if known is None:
                    if news >= room:
                        break
                    known = self.fields[name] = _Place()
                    news += 1
                news += known.look(item, room - news)
        elif isinstance(value, list):
            if self.element is None:
                self.element = _Place()
                news += 1
            for item in value:
                news += self.element.look(item, room - news)
        return news

    @property
    def type(self) -> pa.DataType:
        """The type of the first value. Other values may be of other types."""
        if self.kind is None:
            return pa.null()
        if self.kind is dict:
            return self.struct
        if self.kind is list:
            element = self.element
            return pa.list_(pa.string() if element is None or element.kind is None else element.type)
        return _OF_VALUES[self.kind]

    @property
    def struct(self) -> pa.StructType:
        return pa.struct([(name, inner.type) for name, inner in self.fields.items()])


class ObservedTypes:
    """All fields of some objects, with the types of their first values. At most ``most`` names are kept."""

    def __init__(self, most: int) -> None:
        self._most, self._names, self._root = most, 0, _Place()

    def look(self, value: Any) -> int:
        """Add the fields of a value of ``jsontext.parse``. Returns how many names and types are new."""
        news = self._root.look(value, self._most - self._names)
        self._names += news
        return news

    @property
    def are_too_many(self) -> bool:
        """Whether there were too many names to learn them all."""
        return self._names >= self._most

    def clear(self) -> None:
        """Free the names. No others are learned."""
        self._root = _Place()

    @property
    def struct(self) -> pa.StructType:
        """The type with all these fields."""
        return self._root.struct


_SAMPLE = 20
"""How many values of a block are looked at to learn the type."""
_RARE, _MANY = 8, 64
"""If a block has more than the second number of values, and more than one in the first number is refused, the type is
learned again. If it was complete, the values have too many shapes, and the block takes the exact path.
"""
_TYPES = 1_024
"""How many types of shapes are cached."""
_END, _NOTHING = -1, -2
"""Steps of a shape that stand for no field."""
_LEAVES = {pa.bool_(): "boolean", pa.int64(): "int64", pa.string(): "string"}
"""Kinds that keep every token unchanged."""


class NativeWhole:
    """Decodes objects with all their fields. The types of the fields are learned from the values. They decide which
    values Rust reads, and never what a value is.
    """

    few = 32
    """At most this many values take the exact path at once, because learning their type takes as long."""

    def __init__(self, projection: Projection, limits: Limits) -> None:
        self._projection, self._limits = projection, limits
        self._seen = ObservedTypes(limits.learned_names)
        self._reader: ShapeReader | None = None

    def read(self, values: Payloads) -> tuple[Pieces, Indices]:
        """The decoded values, and the places of the values that have to take the exact path.

        :raises FullBlockError: the values take too many cells together.
        """
        if len(values) <= self.few or self._seen.are_too_many:
            return [], range(len(values))
        if self._reader is None:
            self.learn(values)
        shapes = self._shapes(values)
        if shapes is not None and _are_many(shapes.refused, values) and self.learn(values.take(shapes.refused)):
            shapes = self._shapes(values)
        if shapes is None or _are_many(shapes.refused, values):
            return [], range(len(values))
        return shapes.pieces(), shapes.refused

    def _shapes(self, values: Payloads) -> Shapes | None:
        return None if self._reader is None else self._reader.read(values)

    def learn(self, values: Payloads) -> bool:
        """Look at some values. Returns whether they had new fields or types."""
        news = 0
        for value in values[:: max(1, len(values) // _SAMPLE)]:
            with suppress(ValueError):
                news += self._seen.look(parse(value, self._limits.nesting))
        if self._seen.are_too_many:  # every record has new names, so the known ones are useless
            self._seen.clear()
            self._reader = None
        elif news:
            self._reader = _reader(self._seen.struct, self._projection, self._limits)
        return news > 0


def _are_many(refused: Indices, values: Payloads) -> bool:
    return len(refused) * _RARE > len(values) > _MANY


@dataclass(frozen=True, slots=True)
class Shapes:
    """Decoded objects, not yet divided into pieces, which costs as much as decoding if there are many shapes.

    ``shapes``: the steps of each shape, with the numbers of its rows. ``type_of``: the type of a shape.
    """

    count: int
    """How many values there were."""
    rows: pa.StructArray
    refused: Indices
    """The places of the values that have no row."""
    shapes: Sequence[tuple[list[int], pa.Array]]
    type_of: Callable[[tuple[int, ...]], pa.StructType]

    def pieces(self) -> Pieces:
        """A column for each type."""
        places = without(self.count, {*self.refused})
        by_type: dict[pa.StructType, list[pa.Array]] = {}
        for steps, numbers in self.shapes:
            by_type.setdefault(self.type_of(tuple(steps)), []).append(numbers)
        return [self._piece(kind, numbers, places) for kind, numbers in by_type.items()]

    def _piece(
        self, kind: pa.StructType, numbers: Sequence[pa.Array], places: Indices
    ) -> tuple[pa.StructArray, Indices]:
        taken: pa.Array = self.rows
        if sum(map(len, numbers)) < len(self.rows):
            chosen = numbers[0] if len(numbers) == 1 else pa.concat_arrays(numbers).sort()
            taken, places = arrays.take(self.rows, chosen), compose(places, chosen.to_pylist())
        return cast("pa.StructArray", _narrowed(taken, kind)), places


class ShapeReader:
    """Decodes objects by shape. Objects of one shape have the same fields in the same order, and values or nulls in the
    same fields.
    """

    def __init__(self, kind: pa.StructType, decoder: Decoder, hides_order: Callable[[pa.DataType], bool]) -> None:
        self._kind, self._decoder, self._hides_order = kind, decoder, hides_order
        self._types: dict[tuple[int, ...], pa.StructType] = {}

    def read(self, values: Payloads) -> Shapes:
        """:raises FullBlockError: the values take too many cells together."""
        rows, refused, shapes = self._decoder.read_whole(values)
        return Shapes(len(values), rows, refused, shapes, self._type)

    def _type(self, steps: tuple[int, ...]) -> pa.StructType:
        """The type of a shape. If no table shows the order of fields, the fields have the order of the whole type."""
        if steps not in self._types:
            if len(self._types) == _TYPES:
                self._types.clear()
            struct = _shaped(self._kind, deque(steps))
            self._types[steps] = _in_order(struct, self._kind) if self._hides_order(struct) else struct
        return self._types[steps]


def native_whole(projection: Projection, limits: Limits) -> NativeWhole | None:
    """The decoder in Rust of all fields; None if there is none."""
    return None if absence() is not None else NativeWhole(projection, limits)


def _reader(kind: pa.StructType, projection: Projection, limits: Limits) -> ShapeReader | None:
    """The reader of objects with these fields; None if there are no fields."""
    kind = _named(kind)
    if not kind.num_fields:
        return None
    fields = [_field(field.name, field.type, projection.decimals) for field in kind]
    return ShapeReader(
        kind, whole_json_decoder(fields, nesting=limits.nesting, cells=limits.cells), projection.hides_order
    )


def _named(kind: pa.StructType) -> pa.StructType:
    """The type without fields whose names contain a zero character. Records with such fields are refused."""
    return pa.struct([(field.name, _named_inside(field.type)) for field in kind if "\0" not in field.name])


def _named_inside(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_list(kind):
        return pa.list_(_named_inside(kind.value_type))
    return _named(kind) if isinstance(kind, pa.StructType) else kind


def _field(name: str, kind: pa.DataType, decimals: bool) -> Field:
    if isinstance(kind, pa.StructType):
        return Field((name,), "struct", tuple(_field(each.name, each.type, decimals) for each in kind))
    if pa.types.is_list(kind):
        return Field((name,), "list", (_field("item", kind.value_type, decimals),))
    if pa.types.is_floating(kind):
        return Field((name,), "exact_fraction" if decimals else "fraction")
    return Field((name,), _LEAVES.get(kind, "other"))


def _shaped(kind: pa.StructType, steps: deque[int]) -> pa.StructType:
    """The fields of the type that the next steps name, up to the end of the object."""
    fields = []
    while steps and (step := steps.popleft()) != _END:
        field = kind.field(step)
        fields.append((field.name, _value_type(field.type, steps)))
    return pa.struct(fields)


def _value_type(kind: pa.DataType, steps: deque[int]) -> pa.DataType:
    if pa.types.is_list(kind):
        return pa.list_(_value_type(kind.value_type, steps))
    if not isinstance(kind, pa.StructType):
        return kind
    if steps[0] == _NOTHING:
        steps.popleft()
        return pa.null()
    return _shaped(kind, steps)


def _in_order(kind: pa.StructType, whole: pa.StructType) -> pa.StructType:
    """A type with its fields in the order of the whole type."""
    names = {field.name for field in kind}
    fields = [field for field in whole if field.name in names]
    return pa.struct([(field.name, _ordered(kind.field(field.name).type, field.type)) for field in fields])


def _ordered(kind: pa.DataType, whole: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.StructType) and isinstance(whole, pa.StructType):
        return _in_order(kind, whole)
    if pa.types.is_list(kind) and pa.types.is_list(whole):
        return pa.list_(_ordered(kind.value_type, whole.value_type))
    return kind


def _narrowed(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The column without the fields that its type lacks."""
    if column.type == kind:
        return column
    nulls = column.is_null() if column.null_count else None
    if isinstance(column, pa.StructArray) and isinstance(kind, pa.StructType):
        inner = [_inner(column, field) for field in kind]
        return arrays.struct(inner, kind, nulls, len(column))
    assert isinstance(column, pa.ListArray) and isinstance(kind, pa.ListType)  # noqa: S101 - no other type is nested
    items = arrays.items_of(column)
    items = pa.nulls(len(items)) if pa.types.is_null(kind.value_type) else _narrowed(items, kind.value_type)
    return arrays.lists(arrays.offsets_of(column), items, kind, nulls)


def _inner(column: pa.StructArray, field: pa.Field) -> pa.Array:
    """The column of a field. The decoder makes no column for a field that is always null."""
    if pa.types.is_null(field.type):
        return pa.nulls(len(column))
    return _narrowed(column.field(field.name), field.type)
