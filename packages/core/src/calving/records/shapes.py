"""Schemaless values as Arrow columns that hold each of them without loss.

A column must not add anything to a value, such as fields of other values. Nor may it lose anything of the value: the
difference between 1 and 1.0, digits, or the order of fields. So values share a column only if they have the same shape:
the same names in the same order, with values of the same kinds. A null fits any simple kind, unless the type that it
thereby gets from other values matters (``alone``). A value without an Arrow type becomes JSON text.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from operator import itemgetter, lt
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from calving.records.arrays import JSON, Indices, build, children_of, items_of, lists, offsets_of, struct, take
from calving.records.jsontext import write

Shape = Hashable
"""``"long"`` and the other names of ``_LEAVES``, ``("struct", names, shapes)``, or ``("list", shape)``."""

_LEAVES: dict[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "long": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "json": JSON,
}
_PLAIN: dict[type, str] = {
    type(None): "null",
    bool: "boolean",
    str: "string",
    int: "long",
    float: "double",
    Decimal: "double",
}


@dataclass(slots=True)
class _Group:
    shape: Any
    places: list[int]
    values: list[Any]


def by_shape(values: Sequence[Any], *, decimals: bool) -> list[tuple[list[int], pa.Array]]:
    """The values of each shape, with their ascending places among ``values``.

    ``decimals``: every digit of a fraction counts. Otherwise a fraction becomes the nearest double, unless this double
    is a whole number.
    """
    groups: dict[Any, _Group] = {}
    for place, value in enumerate(values):
        # Most values are flat. Their names and the types of their items make up the whole shape, and are fast to
        # compare.
        key = (tuple(value), tuple(map(type, value.values()))) if type(value) is dict else place
        group = groups.get(key)
        if group is None:
            group = groups[key] = _Group(key, [], [])
        group.places.append(place)
        group.values.append(value)
    shaped: dict[Shape, _Group] = {}
    for group in groups.values():
        for exact in _exactly(group, decimals):
            known = shaped.setdefault(exact.shape, exact)
            if known is not exact:
                known.places += exact.places
                known.values += exact.values
    return [(g.places, column(g.values, g.shape)) for g in map(_in_order, _merged(list(shaped.values())))]


def column(values: Sequence[Any], shape: Shape) -> pa.Array:
    """Values of one shape as an array."""
    return build(values, _type(shape), _leaf)


def alone(column: pa.Array, names: Collection[str] | None) -> list[tuple[Indices, pa.Array]]:
    """The values by the types that they have alone, each with its ascending places. There a null is of the null type,
    and so are the items of a list without any other item.

    ``names``: in lower case, the fields of objects that this is about; None: all fields.
    """
    concerned = names is None or (len(names) > 0 and pa.types.is_struct(column.type))
    flags = [*_flags(column, names)] if concerned else []
    if not flags:
        return [(range(len(column)), column)]
    codes = pa.repeat(pa.scalar(0, pa.int64()), len(column))
    for flag in flags:
        codes = pc.add(pc.multiply(codes, 2), flag.cast(pa.int64())).dictionary_encode().indices.cast(pa.int64())
    order = pc.sort_indices(codes)  # it is stable
    ends = codes.take(order).value_counts().field("counts").to_pylist()
    if len(ends) == 1:
        return [(range(len(column)), _narrow(column, names))]
    places, values = order.to_pylist(), take(column, order)
    start = 0
    runs: list[tuple[Indices, pa.Array]] = []
    for count in ends:
        end = start + count
        runs.append((places[start:end], _narrow(values.slice(start, count), names)))
        start = end
    return runs


def shape_of(value: Any, *, decimals: bool) -> Shape:
    """The shape of one value."""
    kind = _PLAIN.get(type(value))
    if kind is not None:
        return kind if _is_plain(value, kind, decimals) else "json"
    if isinstance(value, dict):
        return "struct", tuple(value), tuple([shape_of(item, decimals=decimals) for item in value.values()])
    if isinstance(value, list):
        element: Shape | None = "null"
        for item in value:
            element = _merge(element, shape_of(item, decimals=decimals))
            if element is None:
                return "json"
        return "list", element
    raise TypeError(f"{type(value).__name__} is not a JSON value")


def _exactly(group: _Group, decimals: bool) -> list[_Group]:
    """Split a group of equal names and Python types by the shapes of the values."""
    first = group.values[0]
    if isinstance(first, dict):
        kinds = [_PLAIN.get(type(item)) for item in first.values()]
        if all(
            kind is not None and _all_plain(group.values, n, kind, decimals)
            for n, kind in zip(first, kinds, strict=True)
        ):
            group.shape = ("struct", tuple(first), tuple(kinds))
            return [group]
    groups: dict[Shape, _Group] = {}
    for place, value in zip(group.places, group.values, strict=True):
        shape = shape_of(value, decimals=decimals)
        exact = groups.setdefault(shape, _Group(shape, [], []))
        exact.places.append(place)
        exact.values.append(value)
    return list(groups.values())


def _all_plain(values: Sequence[Any], name: str, kind: str, decimals: bool) -> bool:
    if kind in ("null", "boolean", "string"):
        return True
    if kind == "long":
        items = [value[name] for value in values]
        return bool(min(items) >= -(2**63) and max(items) < 2**63)
    return all(_is_plain(value[name], kind, decimals) for value in values)


def _is_plain(value: Any, kind: str, decimals: bool) -> bool:
    """Whether Arrow's type for the kind holds the value without loss."""
    if kind == "long":
        return bool(-(2**63) <= value < 2**63)
    if kind == "double":
        double = float(value)
        if not math.isfinite(double) or (double.is_integer() and value != double):
            return False  # 5.0000000000000000001 is not whole, but its double is
        return not decimals or Decimal(repr(double)) == value
    return True


def _merged(groups: list[_Group]) -> list[_Group]:
    """Merge groups whose shapes differ only in places where one has a null and all others the same simple kind."""
    if len(groups) == 1:
        return groups
    shapes = _with_nulls_merged({group.shape for group in groups})
    merged: dict[Shape, _Group] = {}
    for group in groups:
        shape = shapes[group.shape]
        known = merged.setdefault(shape, group)
        known.shape = shape
        if known is not group:
            known.places += group.places
            known.values += group.values
    return list(merged.values())


def _with_nulls_merged(shapes: set[Any]) -> dict[Shape, Shape]:
    """For each shape the shape of a column that holds it and as many others as possible. It takes time linear in the
    size of the shapes.
    """
    by_class: dict[Hashable, list[Any]] = {}
    for shape in shapes:
        # Leaves, all lists together, and structs by their names.
        kind = shape if isinstance(shape, str) else shape[:-1]
        by_class.setdefault(kind, []).append(shape)
    merged: dict[Shape, Shape] = {}
    for kind, same in by_class.items():
        merged |= {kind: kind} if isinstance(kind, str) else _parts_merged(same)
    others: set[Any] = {shape for known, shape in merged.items() if known != "null"}
    if "null" in merged and len(others) == 1 and (other := others.pop())[0] != "struct":
        merged["null"] = other
    return merged


def _parts_merged(same: Sequence[Any]) -> dict[Shape, Shape]:
    """As ``_with_nulls_merged``, of shapes that all are lists, or structs of the same names."""
    if same[0][0] == "list":
        elements = _with_nulls_merged({shape[1] for shape in same})
        return {shape: ("list", elements[shape[1]]) for shape in same}
    fields = [_with_nulls_merged(set(kinds)) for kinds in zip(*(shape[2] for shape in same), strict=True)]
    return {
        shape: ("struct", shape[1], tuple([f[kind] for f, kind in zip(fields, shape[2], strict=True)]))
        for shape in same
    }


def _in_order(group: _Group) -> _Group:
    """The group with ascending places. Other groups may have been added to its end."""
    if all(map(lt, group.places, islice(group.places, 1, None))):
        return group
    pairs = sorted(zip(group.places, group.values, strict=True), key=itemgetter(0))
    return _Group(group.shape, [place for place, _ in pairs], [value for _, value in pairs])


def _with_nulls(shape: Shape) -> Shape | None:
    return shape if isinstance(shape, str) or shape[0] == "list" else None  # type: ignore[index]


def _merge(a: Shape, b: Shape) -> Shape | None:
    """The shape of a column that holds both; None if there is none."""
    if a == b:
        return a
    if a == "null" or b == "null":
        return _with_nulls(b if a == "null" else a)
    if isinstance(a, tuple) and isinstance(b, tuple) and a[0] == b[0]:
        if a[0] == "list":
            element = _merge(a[1], b[1])
            return None if element is None else ("list", element)
        if a[1] == b[1]:
            items = [_merge(x, y) for x, y in zip(a[2], b[2], strict=True)]
            return None if None in items else ("struct", a[1], tuple(items))
    return None


def _flags(column: pa.Array, names: Collection[str] | None = None) -> Iterator[pa.Array]:
    """Masks that together tell which of the places in the column's type hold a value, row by row."""
    if pa.types.is_null(column.type):
        return
    if column.null_count:
        yield column.is_valid()
    if isinstance(column, pa.StructArray):
        for field, child in zip(column.type, children_of(column), strict=True):
            if names is None or field.name.lower() in names:
                yield from _flags(child)
    elif isinstance(column, pa.ListArray):
        yield from _flags_of_items(column)


def _flags_of_items(column: pa.ListArray) -> Iterator[pa.Array]:
    items, ends = items_of(column), offsets_of(column)
    if pa.types.is_null(items.type):
        return
    for flag in (*([] if items.null_count else [items.is_valid()]), *_flags(items)):
        before = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(flag.cast(pa.int64()))]).take(ends)
        yield pc.greater(before[1:], before[:-1])


def _narrow(column: pa.Array, names: Collection[str] | None = None) -> pa.Array:
    """Values that hold something in the same places, with the null type where there is nothing."""
    if column.null_count == len(column):
        return pa.nulls(len(column))
    nulls = column.is_null() if column.null_count else None
    if isinstance(column, pa.StructArray):
        fields = zip(column.type, children_of(column), strict=True)
        inner = [_narrow(c) if names is None or f.name.lower() in names else c for f, c in fields]
        kind = pa.struct([(f.name, c.type) for f, c in zip(column.type, inner, strict=True)])
        return struct(inner, kind, nulls, len(column))
    if isinstance(column, pa.ListArray):
        items = items_of(column)
        items = _narrow(items) if len(items) else pa.nulls(0)
        return lists(offsets_of(column), items, pa.list_(items.type), nulls)
    return column


def _type(shape: Any) -> pa.DataType:
    if isinstance(shape, str):
        return _LEAVES[shape]
    if shape[0] == "list":
        return pa.list_(_type(shape[1]))
    return pa.struct([(name, _type(inner)) for name, inner in zip(shape[1], shape[2], strict=True)])


def _leaf(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if kind == JSON:
        return pa.array([None if v is None else write(v) for v in values], JSON)
    if pa.types.is_float64(kind):
        return pa.array([None if v is None else float(v) for v in values], kind)
    return pa.array(values, kind)
