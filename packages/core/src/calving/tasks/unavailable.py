"""Rows from which a source has left out values: they are bad, or become partial rows (rules M14, M15)."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa
from pyiceberg.types import StructType

from calving.model.dead_letters import Stage
from calving.model.record_path import Evolution
from calving.model.tables import TableSpec
from calving.records.arrays import Indices, children_of, struct, take
from calving.records.fields import Target, table_schema
from calving.records.placeholders import FieldPath, Placeholder
from calving.records.values import RecordError, Values
from calving.writing.changes import INSERT
from calving.writing.kept_columns import kept_text


@dataclass(frozen=True, slots=True)
class LackingRows:
    """Rows that lack the same. ``columns``: the ids of columns that they need no value of, even if these are required.
    ``kept``: the text for what they lack; None if the table has none of it. ``values``: the rows, with null for what
    they lack. ``index``: of each of them. ``is_unset``: whether they lack nothing but fields (``UnsetFields``).
    """

    columns: frozenset[int]
    kept: str | None
    values: Values
    index: Indices
    is_unset: bool = False


@dataclass(frozen=True, slots=True)
class LackingValues:
    """The rows that lack values. ``bad``: those among them that are no change of a row. ``groups``: the others."""

    bad: Sequence[RecordError] = ()
    groups: Sequence[LackingRows] = ()

    @property
    def index(self) -> set[int]:
        """Of all of them."""
        return {error.index for error in self.bad}.union(*(group.index for group in self.groups))


class UnavailableValues:
    """Finds the rows of one mutation table that lack values."""

    def __init__(self, table: TableSpec, evolution: Evolution, names: Mapping[int, tuple[str, ...]]) -> None:
        """``names``: the table's name mapping."""
        assert table.mutations is not None  # noqa: S101 - else rows are appended
        self._table, self._mutations = table.name, table.mutations
        self._text = table.mutations.unavailable_value_placeholder
        self._placeholder = Placeholder(self._text) if table.mutations.on_unavailable_value != "write" else None
        self._struct = table_schema(table.schema_json).as_struct()
        self._target = Target(self._struct, names, case_insensitive=evolution.case_insensitive)

    def among(self, values: Values, rows: Indices, operations: pa.Array) -> LackingValues:
        """Those of these rows that lack values. ``operations``: the operation of each of the values."""
        if self._placeholder is None or not len(rows):
            return LackingValues()
        lacking: dict[int, set[FieldPath]] = {}
        for row, path in self._placeholder.found(values.choose(rows).data):
            lacking.setdefault(rows[row], set()).add(path)
        if not lacking:
            return LackingValues()
        bad, by_ids = [], dict[frozenset[int], list[int]]()
        for row in sorted(lacking):
            why = self._why_bad(row, lacking[row], operations)
            if why is None:
                ids = frozenset(each for path in lacking[row] if (each := self._id(path)) is not None)
                by_ids.setdefault(ids, []).append(row)
            else:
                bad.append(self._error(row, why))
        groups = []
        for ids, index in by_ids.items():
            chosen = values.choose(index)
            partial = chosen.with_data(_without(chosen.data, [lacking[row] for row in index]))
            groups.append(LackingRows(ids, kept_text(ids) if ids else None, partial, index))
        return LackingValues(bad, groups)

    def moved(self, row: int) -> RecordError:
        """The error for a row that lacks values, whose key the update has changed."""
        return self._error(
            row,
            f"the update has changed the key, and has the placeholder {self._text} for a value that did not change,"
            " which is in the row of the former key: let the source write whole rows (in Postgres REPLICA IDENTITY"
            " FULL)",
        )

    def _why_bad(self, row: int, paths: Iterable[FieldPath], operations: pa.Array) -> str | None:
        """Why a row with placeholders is bad; None if it is a partial row."""
        name = ".".join(min(paths))
        if not self._mutations.keeps_unavailable:
            return (
                f"field '{name}' has the placeholder {self._text}: the source has left out a value that did not change,"
                " and the placeholder would replace it: let the source write whole rows (in Postgres REPLICA IDENTITY"
                " FULL), or choose on-unavailable-value = keep or write"
            )
        if operations[row].as_py() == INSERT:
            return (
                f"field '{name}' of an inserted row has the placeholder {self._text}, and no earlier row has the value:"
                " let the source write whole rows (in Postgres REPLICA IDENTITY FULL)"
            )
        inside = next((path for path in sorted(paths) if self._is_inside(path)), None)
        if inside is not None:
            return (
                f"field '{'.'.join(inside)}' has the placeholder {self._text}, and its column holds other fields, too,"
                " so that it cannot keep one of them: let the source write whole rows (in Postgres REPLICA IDENTITY"
                " FULL), or make the column a struct"
            )
        return None

    def _id(self, path: FieldPath) -> int | None:
        """The id of a field's column; None if the table has none, or has a column for what is around the field."""
        columns: StructType = self._struct
        for depth, name in enumerate(path, 1):
            found = self._target.lookup(columns).find(name)
            if found is None or depth == len(path):
                return None if found is None else found.field_id
            if not isinstance(found.field_type, StructType):
                return None
            columns = found.field_type
        return None

    def _is_inside(self, path: FieldPath) -> bool:
        """Whether the table has a column for what is around the field, which is no struct."""
        columns: StructType = self._struct
        for name in path[:-1]:
            found = self._target.lookup(columns).find(name)
            if found is None or not isinstance(found.field_type, StructType):
                return found is not None
            columns = found.field_type
        return False

    def _error(self, row: int, why: str) -> RecordError:
        return RecordError(row, Stage.CONVERSION, "PartialUpdateError", f"table {self._table}: {why}")


def _without(data: pa.Array | list[Any], paths: list[set[FieldPath]]) -> pa.Array | list[Any]:
    """The values with null in these fields. ``paths``: of each value."""
    if isinstance(data, list):
        return [_object_without(value, of_value) for value, of_value in zip(data, paths, strict=True)]
    for path in set[FieldPath]().union(*paths):
        rows = pa.array([None if path in of_value else row for row, of_value in enumerate(paths)], pa.int64())
        data = _struct_without(data, path, rows)
    return data


def _object_without(value: Any, paths: Iterable[FieldPath]) -> Any:
    made = copy.copy(value)
    for path in paths:
        around = made
        for name in path[:-1]:
            around[name] = copy.copy(around[name])
            around = around[name]
        around[path[-1]] = None
    return made


def _struct_without(column: pa.Array, path: FieldPath, rows: pa.Array) -> pa.StructArray:
    """``rows``: the number of each row, null where its field becomes null."""
    column = cast("pa.StructArray", column)
    parts = children_of(column)
    for place, part in enumerate(parts):
        if column.type.field(place).name == path[0]:
            parts[place] = take(part, rows) if len(path) == 1 else _struct_without(part, path[1:], rows)
    return struct(parts, column.type, column.is_null() if column.null_count else None, len(column))
