"""Updates that have no field for some columns: they become partial rows, which keep the stored values (rule M15)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import NestedField, StructType

from calving.model.dead_letters import Stage
from calving.model.record_path import Evolution
from calving.model.tables import TableSpec
from calving.records.arrays import JSON, Indices, Pairs, children_of, chosen, compose
from calving.records.fields import Target, table_schema
from calving.records.values import RecordError, Values, objects_in_parts
from calving.tasks.unavailable import LackingRows, LackingValues
from calving.writing.changes import INSERT, identity_of
from calving.writing.kept_columns import kept_text

_Ids = frozenset[int]


class UnsetFields:
    """Finds the columns of one mutation table for which updates have no field, also within structs. A struct that is
    null has all of its fields.
    """

    def __init__(
        self,
        table: TableSpec,
        evolution: Evolution,
        names: Mapping[int, tuple[str, ...]],
        *,
        own: Iterable[str] = (),
    ) -> None:
        """``names``: the table's name mapping. ``own``: columns that no record has, and every change sets."""
        assert table.mutations is not None  # noqa: S101 - else rows are appended
        self._table, self._skips = table.name, table.mutations.on_missing_row == "skip"
        schema = table_schema(table.schema_json)
        self._struct = schema.as_struct()
        self._target = Target(self._struct, names, case_insensitive=evolution.case_insensitive)
        marks = (schema.find_field(name).field_id for name in own if name in schema.column_names)
        self._never = identity_of(table).needed.union(marks)

    def beside(self, found: LackingValues, values: Values, rows: Indices, operations: pa.Array) -> LackingValues:
        """``found``, with those of these rows that have no field for a column. ``operations``: the operation of each of
        the values.
        """
        are_updates = pc.not_equal(chosen(operations, rows), INSERT)
        if not pc.all(are_updates, min_count=0).as_py():
            rows = compose(rows, pc.indices_nonzero(are_updates).to_pylist())
        unset = self._among(values, rows)
        if not unset:
            return found
        groups = [*self._merged(found, unset)]
        known = found.index
        for more, places in unset.items():
            index = [row for row in places if row not in known] if known else places
            if len(index):
                groups.append(
                    LackingRows(self._relaxed(more), kept_text(more), values.choose(index), index, is_unset=True)
                )
        return LackingValues(found.bad, groups)

    def _merged(self, found: LackingValues, unset: Mapping[_Ids, Indices]) -> Iterator[LackingRows]:
        """The groups of ``found``, each divided by what its rows have no field for."""
        of_row = {row: ids for ids, rows in unset.items() for row in rows} if found.groups else {}
        for group in found.groups:
            by_unset: dict[_Ids, list[int]] = {}
            for at, row in enumerate(group.index):
                by_unset.setdefault(of_row.get(row, _Ids()), []).append(at)
            for more, places in by_unset.items():
                every = group.columns | more
                text = kept_text(every) if every else None
                relaxed, index = group.columns | self._relaxed(more), compose(group.index, places)
                yield LackingRows(relaxed, text, group.values.choose(places), index)

    def moved(self, row: int) -> RecordError:
        """The error for an update without all fields, whose key it has changed."""
        why = (
            "the update has changed the key, and has no field for some columns: their values are in the row of the"
            " former key (unset-fields = keep). Let the source write whole rows"
        )
        return RecordError(row, Stage.CONVERSION, "PartialUpdateError", f"table {self._table}: {why}")

    def _relaxed(self, ids: _Ids) -> _Ids:
        """The columns among these that a row needs no value of, even if they are required: without a stored row it is
        left out. Otherwise a required column that a row lacks would hold up the table.
        """
        return ids if self._skips else _Ids()

    def _among(self, values: Values, rows: Indices) -> Mapping[_Ids, Indices]:
        """Those of these rows that lack columns, by what they lack."""
        if not len(rows):
            return {}
        data = values.choose(rows).data
        found: Sequence[_Ids]
        if isinstance(data, list):
            found = [_Ids(self._of_object(value, self._struct)) for value in data]
        else:
            every, some = self._of_rows(cast("pa.StructArray", data))
            if not some:
                return {every: rows} if every else {}
            found = some
        by_ids: dict[_Ids, list[int]] = {}
        for row, ids in zip(rows, found, strict=True):
            if ids:
                by_ids.setdefault(ids, []).append(row)
        return by_ids

    def _of_rows(self, data: pa.StructArray) -> tuple[_Ids, Sequence[_Ids]]:
        """The columns that all rows lack; and those that each row lacks, if these differ."""
        every, some = _Ids(), []
        for ids, there in self._of_structs(data, self._struct):
            if there is None:
                every |= ids
            else:
                some.append((ids, there.to_pylist()))
        flags = [*zip(*(there for _, there in some), strict=True)]
        made = dict[tuple[bool, ...], _Ids]()
        for each in flags:
            if each not in made:
                made[each] = every.union(*(ids for (ids, _), is_there in zip(some, each, strict=True) if is_there))
        return every, [made[each] for each in flags]

    def _of_structs(self, data: pa.StructArray, columns: StructType) -> Iterator[tuple[_Ids, pa.Array | None]]:
        """The columns for which structs of one type have no field, with the rows that have the struct around them;
        None: all have.
        """
        given = self._given(((field.name, place) for place, field in enumerate(data.type)), columns)
        if lacking := self._without(columns, given):
            yield lacking, data.is_valid() if data.null_count else None
        for column, place in given.values():
            if isinstance(column.field_type, StructType):
                yield from self._of_inner(children_of(data)[place], column.field_type)

    def _of_inner(self, data: pa.Array, columns: StructType) -> Iterator[tuple[_Ids, pa.Array | None]]:
        """As ``_of_structs``, for the values of one column: of maps and of JSON texts each has fields of its own."""
        if isinstance(data, pa.StructArray):
            yield from self._of_structs(data, columns)
        elif pa.types.is_map(data.type) or data.type == JSON:
            found = [_Ids(self._of_object(each, columns)) for _, part in objects_in_parts(data) for each in part]
            for each in _Ids().union(*found):
                yield _Ids((each,)), pa.array([each in ids for ids in found])

    def _of_object(self, value: Any, columns: StructType) -> Iterator[int]:
        if isinstance(value, Pairs) and all(isinstance(name, str) for name, _ in value):
            value = dict(value)
        if not isinstance(value, Mapping):  # null, or it does not fit
            return
        given = self._given(value.items(), columns)
        yield from self._without(columns, given)
        for column, item in given.values():
            if isinstance(column.field_type, StructType):
                yield from self._of_object(item, column.field_type)

    def _given(self, fields: Iterable[tuple[str, Any]], columns: StructType) -> dict[int, tuple[NestedField, Any]]:
        """The columns to which these fields lead, each with what the last of its fields has."""
        find = self._target.lookup(columns).find
        return {column.field_id: (column, item) for name, item in fields if (column := find(name)) is not None}

    def _without(self, columns: StructType, given: Mapping[int, Any]) -> _Ids:
        return _Ids(each.field_id for each in columns.fields if each.field_id not in given) - self._never
