"""Decodes schemaless JSON in Rust if transforms need all fields. Each shape of objects becomes a column."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import cast

import pyarrow as pa

from calving.converters.native import Decoder, Field, absence, whole_json_decoder
from calving.converters.native_json import Patience
from calving.records import arrays
from calving.records.arrays import Indices, compose, without
from calving.records.payloads import Payloads

_TYPES = 1_024
"""How many types of shapes are cached."""
_END, _NOTHING = -1, -2
"""Steps of a shape that stand for no field."""
_LEAVES = {pa.bool_(): "boolean", pa.int64(): "int64", pa.string(): "string"}
"""Kinds that keep every token unchanged."""

Pieces = list[tuple[pa.StructArray, Indices]]


class NativeWhole:
    """Decodes objects by shape. Objects of one shape have the same fields in the same order, and values or nulls in the
    same fields.
    """

    def __init__(self, kind: pa.StructType, decoder: Decoder, hides_order: Callable[[pa.DataType], bool]) -> None:
        self._kind, self._decoder, self._hides_order = kind, decoder, hides_order
        self._patience = Patience()
        self._types: dict[tuple[int, ...], pa.StructType] = {}

    def waits(self) -> bool:
        """Whether values should go another way, without a try."""
        return self._patience.waits()

    def read(self, values: Payloads) -> tuple[Pieces | None, list[int]]:
        """Columns with the places of their values, and the places of refused values. The columns are None if too many
        values are refused.
        """
        rows, refused, shapes = self._decoder.read_whole(values)
        if self._patience.is_over(len(refused), len(values)):
            return None, refused
        places = without(len(values), {*refused})
        by_type: dict[pa.StructType, list[pa.Array]] = {}
        for steps, numbers in shapes:
            by_type.setdefault(self._type(tuple(steps)), []).append(numbers)
        return [self._piece(rows, kind, numbers, places) for kind, numbers in by_type.items()], refused

    def _piece(
        self, rows: pa.StructArray, kind: pa.StructType, numbers: Sequence[pa.Array], places: Indices
    ) -> tuple[pa.StructArray, Indices]:
        taken: pa.Array = rows
        if sum(map(len, numbers)) < len(rows):
            chosen = numbers[0] if len(numbers) == 1 else pa.concat_arrays(numbers).sort()
            taken, places = arrays.take(rows, chosen), compose(places, chosen.to_pylist())
        return cast("pa.StructArray", _narrowed(taken, kind)), places

    def _type(self, steps: tuple[int, ...]) -> pa.StructType:
        """The type of a shape. If no table shows the order of fields, the fields have the order of the whole type."""
        if steps not in self._types:
            if len(self._types) == _TYPES:
                self._types.clear()
            found = _shaped(self._kind, deque(steps))
            self._types[steps] = _in_order(found, self._kind) if self._hides_order(found) else found
        return self._types[steps]


def native_whole(
    kind: pa.StructType, nesting: int, *, decimals: bool, hides_order: Callable[[pa.DataType], bool]
) -> NativeWhole | None:
    """The decoder in Rust for objects of these fields; None if there is none. ``decimals``: every digit of a fraction
    counts.
    """
    kind = _named(kind)
    if absence() is not None or not kind.num_fields:
        return None
    fields = [_field(field.name, field.type, decimals) for field in kind]
    return NativeWhole(kind, whole_json_decoder(fields, nesting=nesting), hides_order)


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
    found = [field for field in whole if field.name in names]
    return pa.struct([(field.name, _ordered(kind.field(field.name).type, field.type)) for field in found])


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
