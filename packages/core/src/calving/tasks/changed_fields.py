"""Updates that come with the changed fields alone (MongoDB): they become partial rows (rule M15).

A field's dotted name leads through structs, and through lists by the number of an element. What no name leads to keeps
the value of the stored row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, cast

import pyarrow as pa
from pyiceberg.types import IcebergType, ListType, NestedField, StructType

from calving.model.dead_letters import Stage
from calving.model.record_path import Evolution, Limits
from calving.model.tables import TableSpec
from calving.records.arrays import Indices, children_of, lists, struct, take
from calving.records.common_types import as_common, common_type
from calving.records.fields import Target, table_schema
from calving.records.paths import NUMBER, change_of, is_cut
from calving.records.values import RecordError, Values
from calving.tasks.unavailable import LackingRows, LackingValues
from calving.writing.changes import INSERT
from calving.writing.kept_columns import kept_text
from calving.writing.partial_lists import Cut, Element, Step

_OPTIONAL = "make it optional, or let the source write whole documents"


@dataclass(slots=True)
class _Node:
    """Changes inside of one field: by name or number. ``sizes``: how many elements of an array are left."""

    inner: dict[str, _Node | pa.Array] = field(default_factory=dict)
    sizes: list[int] = field(default_factory=list)

    @property
    def is_array(self) -> bool:
        return all(map(NUMBER.fullmatch, self.inner))


class _Lacking(NamedTuple):
    """What a partial row lacks: the ids of columns, and the steps that change the lists with these ids."""

    columns: set[int]
    lists: dict[int, tuple[Step, ...]]

    @property
    def text(self) -> str:
        return kept_text(self.columns, self.lists)


class ChangedFields:
    """Makes partial rows of such updates for one mutation table."""

    def __init__(
        self,
        table: TableSpec,
        evolution: Evolution,
        names: Mapping[int, tuple[str, ...]],
        limits: Limits,
        *,
        own: Iterable[str] = (),
    ) -> None:
        """``names``: the table's name mapping. ``own``: columns that no record has, and every change sets."""
        self._table, self._most = table.name, limits.cells
        self._schema = table_schema(table.schema_json)
        self._struct, self._own = self._schema.as_struct(), frozenset(own)
        self._target = Target(self._struct, names, case_insensitive=evolution.case_insensitive)

    def among(self, values: Values, rows: Indices, operations: pa.Array) -> LackingValues:
        """All of these rows, whose values have one type. ``operations``: the operation of each of the values."""
        inserts = [row for row in rows if operations[row].as_py() == INSERT]
        bad = [self._error(row, "an insert has only some fields, and no earlier row has the others") for row in inserts]
        if inserts:
            rows = [row for row in rows if row not in inserts]
        chosen = values.choose(rows)
        try:
            made, lacking = self._row(_tree(cast("pa.StructArray", chosen.data), self._parts), self._struct, len(rows))
        except ValueError as error:
            return LackingValues([*bad, *(self._error(row, str(error)) for row in rows)])
        lacking.columns.difference_update(each.field_id for each in self._struct.fields if each.name in self._own)
        required = frozenset(each for each in lacking.columns if self._schema.find_field(each).required)
        return LackingValues(bad, [LackingRows(required, lacking.text, chosen.with_data(made), rows)])

    def moved(self, row: int) -> RecordError:
        """The error for such an update that changes its key."""
        return self._error(row, "an update with only the changed fields has changed the key")

    def _error(self, row: int, why: str) -> RecordError:
        return RecordError(row, Stage.CONVERSION, "PartialUpdateError", f"table {self._table}: {why}")

    def _parts(self, name: str) -> tuple[str, ...]:
        """The steps of a field's name.

        :raises ValueError: the name may stand for two columns.
        """
        path, _ = change_of(name)
        columns: IcebergType = self._struct
        for depth in range(len(path)):
            if not isinstance(columns, StructType):
                break
            lookup, rest = self._target.lookup(columns), ".".join(path[depth:])
            found = lookup.find(path[depth])
            if depth < len(path) - 1 and lookup.find(rest) is not None:
                if found is not None:
                    raise ValueError(f"field '{name}': there is a column '{rest}', and a column '{path[depth]}'")
                return (*path[:depth], rest)
            if found is None:
                break
            columns = found.field_type
        return path

    def _row(self, node: _Node, columns: StructType, count: int) -> tuple[pa.StructArray, _Lacking]:
        """The changes of a struct with these columns as one; and what it lacks.

        :raises ValueError: a column cannot be changed in part.
        """
        lookup, lacking = self._target.lookup(columns), _Lacking(set(), {})
        made, touched = dict[str, pa.Array](), set[int]()
        for name, change in node.inner.items():
            column = lookup.find(name)
            if column is not None:
                touched.add(column.field_id)
            made[name] = self._value(name, change, column, count, lacking)
        lacking.columns.update(each.field_id for each in columns.fields if each.field_id not in touched)
        return _struct(made, count), lacking

    def _value(
        self, name: str, change: _Node | pa.Array, column: NestedField | None, count: int, lacking: _Lacking
    ) -> pa.Array:
        if isinstance(change, pa.Array):
            return change
        if column is None:
            return _free(change, count, self._most)
        if isinstance(column.field_type, StructType) and not change.sizes:
            inside, inner = self._row(change, column.field_type, count)
            lacking.columns.update(inner.columns)
            lacking.lists.update(inner.lists)
            return inside
        if isinstance(column.field_type, ListType) and change.is_array:
            items, lacking.lists[column.field_id] = self._list(name, change, column.field_type, count)
            return items
        raise ValueError(
            f"field '{name}' was changed in part, and its column ({column.field_type}) cannot keep the other part: it"
            " is neither a struct nor a list of the elements. Let the source write whole documents"
        )

    def _list(self, name: str, node: _Node, kind: ListType, count: int) -> tuple[pa.ListArray, tuple[Step, ...]]:
        """The changed elements of a list, in the order of the steps."""
        steps: list[Step] = [Cut(size) for size in node.sizes]
        items: list[pa.Array] = []
        if node.inner and kind.element_required:
            raise ValueError(
                f"field '{name}': an element was changed, and the table requires all elements: {_OPTIONAL}"
            )
        for number, change in _numbered(node, self._most):
            made, kept = (change, None) if isinstance(change, pa.Array) else self._element(name, change, kind, count)
            steps.append(Element(number, kept))
            items.append(made)
        return _lists(items, count), tuple(steps)

    def _element(self, name: str, change: _Node, kind: ListType, count: int) -> tuple[pa.Array, str]:
        """The changes of a part of an element as a struct; and the text of what it lacks."""
        if not isinstance(kind.element_type, StructType):
            raise ValueError(f"field '{name}': a part of an element was changed that is no struct")
        made, lacking = self._row(change, kind.element_type, count)
        required = [each.name for each in kind.element_type.fields if each.required]
        if any(each.required and each.field_id in lacking.columns for each in kind.element_type.fields):
            what = f"a part of an element was changed, and the table requires {', '.join(required)} of each"
            raise ValueError(f"field '{name}': {what}: {_OPTIONAL}")
        return made, lacking.text


def without_cuts(values: Values) -> Values:
    """The values without the fields that only a stored row gives a meaning."""
    data = cast("pa.StructArray", values.data)
    if not any(is_cut(each.name) for each in data.type):
        return values
    parts = zip(data.type, children_of(data), strict=True)
    return values.with_data(_struct({each.name: part for each, part in parts if not is_cut(each.name)}, len(data)))


def as_rows(values: Values, limits: Limits) -> Values:
    """The values as the first ones of a table, which has no columns yet: what is around a changed field is a struct, or
    a list if all names inside are numbers.

    :raises ValueError: they are no rows of any table.
    """
    tree = _tree(cast("pa.StructArray", values.data), lambda name: change_of(name).path)
    return values.with_data(_free_struct(tree, len(values), limits.cells))


def _tree(data: pa.StructArray, parts: Callable[[str], Sequence[str]]) -> _Node:
    """:raises ValueError: a field was changed twice."""
    root = _Node()
    for each, column in zip(data.type, children_of(data), strict=True):
        *outer, last = parts(each.name)
        size, node = change_of(each.name).size, root
        for name in outer if size is None else (*outer, last):
            inner = node.inner.setdefault(name, _Node())
            if not isinstance(inner, _Node):
                raise ValueError(f"field '{each.name}' was changed as a whole, and in part")
            node = inner
        if size is not None:
            node.sizes.append(size)
        elif node.inner.setdefault(last, column) is not column:
            raise ValueError(f"field '{each.name}' was changed as a whole, and in part")
    return root


def _numbered(node: _Node, most: int) -> list[tuple[int, _Node | pa.Array]]:
    """The changed elements of an array, in their order.

    :raises ValueError: an element's number is beyond ``most``.
    """
    found = sorted(((int(name), change) for name, change in node.inner.items()), key=lambda each: each[0])
    if found and found[-1][0] >= most:
        raise ValueError(f"element {found[-1][0]} of an array: it would have more than iceberg.limits.cells = {most}")
    return found


def _free(change: _Node | pa.Array, count: int, most: int) -> pa.Array:
    """A change where the table has no column yet."""
    if isinstance(change, pa.Array):
        return change
    if not change.is_array:
        return _free_struct(change, count, most)
    return _lists([_free(each, count, most) for _, each in _numbered(change, most)], count)


def _free_struct(node: _Node, count: int, most: int) -> pa.StructArray:
    return _struct({name: _free(each, count, most) for name, each in node.inner.items()}, count)


def _struct(columns: Mapping[str, pa.Array], count: int) -> pa.StructArray:
    kind = pa.struct([(name, column.type) for name, column in columns.items()])
    return struct([*columns.values()], kind, None, count)


def _lists(items: list[pa.Array], count: int) -> pa.ListArray:
    """Lists with one element of each array.

    :raises ValueError: the elements have no common type.
    """
    kind, size = common_type(item.type for item in items), len(items)
    flat = pa.concat_arrays([as_common(item, kind) for item in items]) if items else pa.nulls(0)
    order = pa.array([part * count + row for row in range(count) for part in range(size)], pa.int64())
    ends = pa.array(range(0, (count + 1) * size, size) if size else [0] * (count + 1), pa.int32())
    return lists(ends, take(flat, order), pa.list_(flat.type), None)
