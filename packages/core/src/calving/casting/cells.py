"""Counts the cells that values take in a table's columns, before the columns are made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import IcebergType, ListType, MapType, StructType

from calving.records.arrays import JSON, Indices, Pairs, children_of, entries, items_of, offsets_of
from calving.records.cells import TOGETHER, cells_of, most_beyond
from calving.records.fields import Lookup, Target, arrow_type
from calving.records.values import Values, objects


@dataclass(frozen=True, slots=True)
class _Node:
    """A column, or a part of one, that is a list or a map, or holds some.

    ``beyond``: the cells of each element beyond the first. ``inner``: the nodes in a struct, by the column's id; of a
    list in its elements, at 0; of a map in its keys and values, at 0 and 1.
    """

    kind: IcebergType
    inner: Mapping[int, _Node]
    beyond: int = 0
    lookup: Lookup | None = None

    @property
    def most(self) -> int:
        """The most cells beyond the first that an element in the column has."""
        return max([self.beyond, *(node.most for node in self.inner.values())])


class TableCells:
    """Counts the cells of values by the columns of one table. The rules are those of ``records.cells``."""

    def __init__(self, target: Target, most: int) -> None:
        """``most``: the most cells of a record."""
        self.most = most
        self.together = most * TOGETHER
        """The most cells of rows that are made together."""
        self.row = cells_of(arrow_type(target.columns)) if target.columns.fields else 1
        """The cells of a row, without those of what its lists and maps hold."""
        self._root = _node(target.columns, target)
        self.counts_values = self._root is not None
        """Whether values may have more cells than a row."""

    def over(self, values: Values) -> list[int]:
        """The rows that have too many cells."""
        if self._root is None:
            return []
        return pc.indices_nonzero(pc.greater(self._beside(values), self.most)).to_pylist()

    def _beside(self, values: Values) -> pa.Array:
        """The cells of each value, without those of its own row. If no value can have too many, they may be 0."""
        if self._root is None:
            return _none(len(values))
        if isinstance(values.data, list):
            return pa.array([_of_value(value, self._root) for value in values.data], pa.int64())
        return _of_column(values.data, self._root, self.most)

    def parts(self, values: Values) -> Iterator[Indices]:
        """Consecutive rows that do not take too many cells together. A row that has too many alone is a part."""
        beside, most, start = self._beside(values), self.together, 0
        if len(values) * self.row + (pc.sum(beside).as_py() or 0) <= most:
            yield range(len(values))
            return
        left = most
        for place, cells in enumerate(beside.to_pylist()):
            taken = self.row + (cells if cells <= self.most else 0)  # a bad value becomes no row
            if taken > left and place > start:
                yield range(start, place)
                start, left = place, most
            left -= taken
        yield range(start, len(values))


def _node(kind: IcebergType, target: Target) -> _Node | None:
    """The node of a type; None if its values have no lists or maps whose elements have several cells."""
    match kind:
        case StructType():
            inner = {field.field_id: node for field in kind.fields if (node := _node(field.field_type, target))}
            return _Node(kind, inner, lookup=target.lookup(kind)) if inner else None
        case ListType():
            beyond, parts = cells_of(arrow_type(kind.element_type)) - 1, [kind.element_type]
        case MapType():
            parts = [kind.key_type, kind.value_type]
            beyond = sum(cells_of(arrow_type(part)) for part in parts) - 1
        case _:
            return None
    inner = {place: node for place, part in enumerate(parts) if (node := _node(part, target))}
    return _Node(kind, inner, beyond) if inner or beyond else None


def _of_value(value: Any, node: _Node) -> int:
    """The cells of a value that a column of this node takes; 0 if the column does not take it."""
    match node.kind:
        case StructType() if node.lookup is not None:
            items = value.items() if isinstance(value, Mapping) else value if isinstance(value, Pairs) else ()
            named = ((node.lookup.find(name), item) for name, item in items if isinstance(name, str))
            below = ((node.inner.get(column.field_id), item) for column, item in named if column is not None)
            return sum(_of_value(item, inner) for inner, item in below if inner is not None)
        case ListType() if isinstance(value, list) and not isinstance(value, Pairs):
            return len(value) * node.beyond + _of_values(value, node.inner.get(0))
        case MapType() if isinstance(value, Mapping):
            return len(value) * node.beyond + _of_values(value.values(), node.inner.get(1))
        case MapType() if isinstance(value, Pairs):
            keys = _of_values((key for key, _ in value), node.inner.get(0))
            return len(value) * node.beyond + keys + _of_values((item for _, item in value), node.inner.get(1))
    return 0


def _of_values(values: Iterable[Any], node: _Node | None) -> int:
    return 0 if node is None else sum(_of_value(value, node) for value in values)


def _of_fields(column: pa.StructArray, lookup: Lookup, node: _Node, most: int) -> pa.Array:
    cells = _none(len(column))
    for field, child in zip(column.type, children_of(column), strict=True):
        wanted = lookup.find(field.name)
        below = None if wanted is None else node.inner.get(wanted.field_id)
        if below is not None:
            cells = pc.add(cells, _of_column(child, below, most))
    return cells


def _of_column(column: pa.Array, node: _Node, most: int) -> pa.Array:
    """The cells of each value of a column."""
    match node.kind:
        case StructType() if isinstance(column, pa.StructArray) and node.lookup is not None:
            return _of_fields(column, node.lookup, node, most)
        case ListType() if isinstance(column, pa.ListArray) and not isinstance(column, pa.MapArray):
            return _of_elements(column, [items_of(column)], node, most)
        case MapType() if isinstance(column, pa.MapArray):
            return _of_elements(column, entries(column), node, most)
    if column.type == JSON and most_beyond(column.nbytes, node.most) <= most:
        return _none(len(column))
    if column.type == JSON or pa.types.is_nested(column.type):
        return pa.array([_of_value(value, node) for value in objects(column)], pa.int64())
    return _none(len(column))


def _of_elements(column: pa.ListArray, parts: Sequence[pa.Array], node: _Node, most: int) -> pa.Array:
    """The cells of lists or maps, of whose elements these are the parts, one after the other."""
    ends = offsets_of(column).cast(pa.int64())
    cells = pc.multiply(pc.subtract(ends[1:], ends[:-1]), node.beyond)
    for place, below in node.inner.items():
        inside = pa.array([0, *accumulate(_of_column(parts[place], below, most).to_pylist())], pa.int64()).take(ends)
        cells = pc.add(cells, pc.subtract(inside[1:], inside[:-1]))
    return cells


def _none(count: int) -> pa.Array:
    return pa.repeat(pa.scalar(0, pa.int64()), count)
