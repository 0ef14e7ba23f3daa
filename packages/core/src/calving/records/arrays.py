"""Arrow arrays from Python values and from other arrays, and selections of their rows.

Nested arrays are built from buffers, for two reasons. Arrow's own functions refuse a null child of a required field
even if its parent is null. And they compare types as equal that differ in their required fields.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal, TypeVar, cast

import pyarrow as pa
import pyarrow.compute as pc

from calving.records.semantics import (
    PER_SECOND,
    Meaning,
    Moment,
    Quantity,
    SemanticType,
    like,
    moments,
    plain,
    scaled_decimal,
)

JSON = pa.json_()
"""Text of one JSON value: the type of values that no other Arrow type can hold."""

A = TypeVar("A", bound=pa.Array)
Leaf = Callable[[Sequence[Any], pa.DataType], pa.Array]

Indices = Sequence[int]
"""A selection: ascending indices of records. A range selects neighbours at no cost."""


def compose(outer: Indices, inner: Indices) -> Indices:
    """A selection within a selection: the entries of ``outer`` at the places ``inner``."""
    if isinstance(inner, range) and len(inner) == len(outer):
        return outer
    if outer == range(len(outer)):
        return inner
    return [outer[i] for i in inner]


def without(count: int, left_out: Collection[int]) -> Indices:
    """The indices of ``count`` records, except these."""
    return [i for i in range(count) if i not in left_out] if left_out else range(count)


def numbers(index: Indices) -> pa.Array:
    """A selection as an int32 array. Arrow counts through a range, which is faster than converting each number."""
    if isinstance(index, range):
        return pa.arange(index.start, index.stop).cast(pa.int32())
    return pa.array(index, pa.int32())


class Pairs(list[tuple[Any, Any]]):
    """The entries of a typed map, in order. Only its class distinguishes it from other lists."""


class Typed(dict[str, Any]):
    """A typed struct. Only its class distinguishes it from a JSON object."""


class Items(list[Any]):
    """A typed list. Only its class distinguishes it from a JSON array."""


class Digits(Decimal):
    """A typed decimal, of which every digit counts. (A fraction of JSON text is a Decimal, too, but means a double.)"""


class Scaled(Typed):
    """A typed struct of ``scale`` and ``value``, which means a decimal."""

    @property
    def number(self) -> Digits:
        """The decimal. :raises ValueError: it is null in part, or has too many digits."""
        if self["scale"] is None or self["value"] is None:
            raise ValueError("a decimal without a scale or a value")
        return Digits(scaled_decimal(self["value"], self["scale"]))


class Single(float):
    """A 32-bit float, widened to a double. Its text is shorter than the double's text."""


def is_flat(kind: pa.DataType) -> bool:
    """Whether the type is a struct without structs, lists or maps inside."""
    return pa.types.is_struct(kind) and not any(pa.types.is_nested(field.type) for field in kind)


def struct(children: Sequence[pa.Array], kind: pa.StructType, nulls: pa.Array | None, count: int) -> pa.StructArray:
    """A struct array of ``count`` rows, null where the boolean array ``nulls`` is true."""
    return pa.Array.from_buffers(kind, count, [_validity(nulls)], children=list(children))


def lists(ends: pa.Array, items: pa.Array, kind: pa.ListType, nulls: pa.Array | None) -> pa.ListArray:
    """A list array; ``ends`` are int32 offsets into ``items``, one more than there are rows."""
    return pa.Array.from_buffers(kind, len(ends) - 1, [_validity(nulls), ends.buffers()[1]], children=[items])


def maps(ends: pa.Array, keys: pa.Array, items: pa.Array, kind: pa.MapType, nulls: pa.Array | None) -> pa.MapArray:
    """A map array; ``ends`` are int32 offsets into ``keys`` and ``items``, one more than there are rows."""
    entries = struct([keys, items], pa.struct([kind.key_field, kind.item_field]), None, len(keys))
    return pa.Array.from_buffers(kind, len(ends) - 1, [_validity(nulls), ends.buffers()[1]], children=[entries])


def _validity(nulls: pa.Array | None) -> pa.Buffer | None:
    if nulls is None or not pc.any(nulls).as_py():
        return None
    return pc.invert(nulls).buffers()[1]


def build(values: Sequence[Any], kind: pa.DataType, leaf: Leaf) -> pa.Array:
    """Python values as an array of this type; ``leaf`` makes the arrays of types that are not nested.

    Structs come as mappings (missing fields are null), lists as lists, maps as pairs or mappings.
    """
    if not pa.types.is_nested(kind):
        return leaf(values, kind)
    mask = pa.array([v is None for v in values], pa.bool_()) if None in values else None
    if pa.types.is_struct(kind):
        children = [build([None if v is None else v.get(f.name) for v in values], f.type, leaf) for f in kind]
        return struct(children, kind, mask, len(values))
    ends, items = [0], list[Any]()
    for value in values:
        if value:
            items += value.items() if isinstance(value, dict) else value
        ends.append(len(items))
    offsets = pa.array(ends, pa.int32())
    if pa.types.is_list(kind):
        return lists(offsets, build(items, kind.value_type, leaf), kind, mask)
    if not pa.types.is_map(kind):
        raise pa.ArrowNotImplementedError(f"no table has values of type {kind}")
    keys = build([k for k, _ in items], kind.key_type, leaf)
    return maps(offsets, keys, build([v for _, v in items], kind.item_type, leaf), kind, mask)


def arrow(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Python values as an array of this type. :raises Exception: a value does not fit."""
    return build(values, kind, pa.array)


def conform(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same values with another type, which may differ only in names, required fields or field metadata.

    :raises pa.ArrowException: the values are of another type.
    """
    if not pa.types.is_nested(kind):
        return array if array.type == kind else _conform_leaf(array, kind)
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), kind)
    array = plain(array)
    nulls = array.is_null() if array.null_count else None
    if pa.types.is_struct(kind) and isinstance(array, pa.StructArray):
        children = [conform(array.field(i), kind.field(i).type) for i in range(kind.num_fields)]
        return struct(children, kind, nulls, len(array))
    if pa.types.is_list(kind) and isinstance(array, pa.ListArray):
        return lists(offsets_of(array), conform(items_of(array), kind.value_type), kind, nulls)
    if pa.types.is_map(kind) and isinstance(array, pa.MapArray):
        keys, items = entries(array)
        return maps(offsets_of(array), conform(keys, kind.key_type), conform(items, kind.item_type), kind, nulls)
    raise pa.ArrowInvalid(f"values of type {array.type} are not of type {kind}")


def _conform_leaf(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if isinstance(kind, SemanticType):
        return like(kind, conform(plain(array), kind.storage_type))
    array = moments(array) if pa.types.is_temporal(kind) else plain(array)
    return array.cast(kind)


def offsets_of(array: pa.ListArray) -> pa.Array:
    """Offsets from zero of a list or map array, as into ``items_of`` or ``entries``."""
    ends = array.offsets
    lengths = pc.subtract(ends[1:], ends[:-1])
    if array.null_count:
        lengths = pc.if_else(array.is_valid(), lengths, 0)
    return pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths).cast(pa.int32())])


def items_of(array: pa.ListArray) -> pa.Array:
    """All elements of a list array, one after the other; null lists have none."""
    return _used(array, array.values)


def entries(array: pa.MapArray) -> tuple[pa.Array, pa.Array]:
    """All keys and all values of a map array, one after the other; null maps have none."""
    return _used(array, array.keys), _used(array, array.items)


def _used(array: pa.ListArray, children: pa.Array) -> pa.Array:
    """The children to which rows refer. (Arrow's ``flatten`` does not support extension types if rows are null.)"""
    ends = array.offsets
    first, last = ends[0].as_py(), ends[-1].as_py()
    if not array.null_count or last - first == offsets_of(array)[-1].as_py():
        return children.slice(first, last - first)
    parts = [
        children.slice(start, end - start)
        for start, end, there in zip(
            ends[:-1].to_pylist(), ends[1:].to_pylist(), array.is_valid().to_pylist(), strict=True
        )
        if there
    ]
    return pa.concat_arrays(parts) if parts else children.slice(0, 0)


def objects(array: pa.Array, read: Callable[[str], Any]) -> list[Any]:
    """An array as Python values. ``read`` makes a value of each JSON text.

    Decimals become ``Digits``, 32-bit floats ``Single``, maps ``Pairs``. A number with a meaning becomes a
    ``Quantity``, and a date or time that Python's own types cannot hold a ``Moment``. A struct or a list that may hold
    such values becomes ``Typed`` or ``Items``.
    """
    kind = array.type
    if not holds(kind, _is_special):
        rows: list[Any] = array.to_pylist()
        return rows
    values = (conform(array, retyped(kind, _number)) if holds(kind, pa.types.is_temporal) else array).to_pylist()
    return [_unfold(v, kind, read) for v in values]


def _number(kind: pa.DataType) -> pa.DataType:
    """The type of the numbers that Arrow stores for dates and times; any other type as it is."""
    if not pa.types.is_temporal(kind):
        return kind
    return pa.int32() if kind.bit_width == 32 else pa.int64()


def retyped(kind: pa.DataType, leaf: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """The type with its types that are not nested changed by ``leaf``."""
    t = pa.types
    if t.is_struct(kind):
        return pa.struct([f.with_type(retyped(f.type, leaf)) for f in kind])
    if t.is_list(kind):
        return pa.list_(kind.value_field.with_type(retyped(kind.value_type, leaf)))
    if t.is_map(kind):
        key, item = (f.with_type(retyped(f.type, leaf)) for f in (kind.key_field, kind.item_field))
        return pa.map_(key, item)
    return leaf(kind)


def _unfold(value: Any, kind: pa.DataType, read: Callable[[str], Any]) -> Any:
    if value is None or not holds(kind, _is_special):
        return value
    t = pa.types
    if kind == JSON:
        return read(value)
    if not t.is_nested(kind):
        return _unfold_leaf(value, kind)
    if t.is_struct(kind):
        return Typed((f.name, _unfold(value[f.name], f.type, read)) for f in kind)
    if t.is_map(kind):
        return Pairs((_unfold(k, kind.key_type, read), _unfold(v, kind.item_type, read)) for k, v in value)
    if t.is_list(kind):
        return Items(_unfold(item, kind.value_type, read) for item in value)
    return value


def _unfold_leaf(value: Any, kind: pa.DataType) -> Any:
    t = pa.types
    if isinstance(kind, SemanticType):
        return _meant(value, kind.meaning)
    if t.is_temporal(kind):
        return _moment(value, kind)
    return Digits(value) if t.is_decimal(kind) else Single(value) if t.is_float32(kind) else value


def _meant(value: Any, meaning: Meaning) -> Any:
    if meaning.what == "decimal":
        return Scaled(value)
    return value if meaning.what == "text" else Quantity(value, meaning)


def _moment(number: int, kind: pa.DataType) -> Any:
    """Python's date, time or datetime for the number that Arrow stores; a ``Moment`` if there is none."""
    t = pa.types
    if t.is_date(kind):
        try:
            return _EPOCH.date() + timedelta(days=number)
        except OverflowError:
            return Moment(number, Meaning(str(kind), "date", "date"))
    what: Literal["time", "timestamp"] = "time" if t.is_time(kind) else "timestamp"
    beyond = Moment(number, Meaning(str(kind), what, what, kind.unit))  # type: ignore[attr-defined]
    micros, rest = divmod(number * 1_000_000, PER_SECOND[beyond.meaning.unit])
    try:
        moment = None if rest else _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return beyond
    if moment is None or (what == "time" and moment.date() != _EPOCH.date()):
        return beyond
    if what == "time":
        return moment.time()
    return moment if kind.tz is None else moment.replace(tzinfo=UTC)  # type: ignore[attr-defined]


_EPOCH = datetime(1970, 1, 1)


def _is_special(kind: pa.DataType) -> bool:
    t = pa.types
    if isinstance(kind, SemanticType):
        return True
    return bool(kind == JSON or t.is_temporal(kind) or t.is_map(kind) or t.is_decimal(kind) or t.is_float32(kind))


def children_of(array: pa.StructArray) -> list[pa.Array]:
    """The fields of a struct array. A field is null where the struct is null."""
    return array.flatten() if array.null_count else [array.field(i) for i in range(array.type.num_fields)]


def as_list(array: pa.MapArray) -> pa.ListArray:
    """A map array as a list of keys: the same rows and lengths."""
    return lists(offsets_of(array), entries(array)[0], pa.list_(array.type.key_type), None)


def take(array: A, numbers: pa.Array) -> A:
    """The rows with these numbers. (The result of Arrow's own ``take`` loses the required flags of inner fields.)"""
    return cast("A", conform(array.take(numbers), array.type))


def chosen(array: A, index: Indices) -> A:
    """The rows of an array at these indices."""
    if len(index) == len(array):
        return array
    if isinstance(index, range):  # an array of a range's numbers would cost more than all the rest
        return array.slice(index.start, len(index))
    return take(array, numbers(index))


def joined(rows: pa.Table) -> pa.RecordBatch:
    """The rows of a table with at least one row, as one batch. They are copied if they are in several batches."""
    batches = rows.to_batches()
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def chosen_rows(rows: pa.RecordBatch, index: Indices) -> pa.RecordBatch:
    """The rows of a batch at these indices."""
    return pa.RecordBatch.from_arrays([chosen(column, index) for column in rows.columns], schema=rows.schema)


def holds(kind: pa.DataType, wanted: Callable[[pa.DataType], bool]) -> bool:
    """Whether a type, or one inside it, is as ``wanted``."""
    if wanted(kind):
        return True
    return pa.types.is_nested(kind) and any(holds(kind.field(i).type, wanted) for i in range(kind.num_fields))
