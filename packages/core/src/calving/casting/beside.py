"""Columns beside columns: the sink writes a value that does not fit its column's type to another column, whose name
ends with the value's type: ``amount_string`` beside ``amount``. The first column is null in that row.

A value is moved within its record, as if its field had the other column's name. Whether it is moved depends on its type
and on the table, and not on other records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from pyiceberg.types import NestedField, StructType

from calving.casting.columns import REFUSALS, cast
from calving.casting.evolution import Path, SchemaEvolution, UnfitError
from calving.casting.exact import ExactConverter, WrongTypeError
from calving.casting.findings import MadeTexts
from calving.casting.texts import TooMuchTextError, plain_text
from calving.model.tables import NO_COLUMN_BESIDE, OnTypeChange
from calving.records.arrays import JSON, Indices, Typed, children_of, chosen, struct
from calving.records.cells import CELL
from calving.records.fields import Target
from calving.records.foreign import takes_values
from calving.records.inferred import InferredType, in_micros, of_type, of_value
from calving.records.jsontext import write
from calving.records.values import Values, objects, objects_in_parts


class _Move(NamedTuple):
    """The move of a value from the field at ``path`` to the field ``name`` of the same object. ``text``: the text that
    replaces the value; None: the value does not change.
    """

    path: Path
    name: str
    text: str | None

    @property
    def place(self) -> tuple[Path, str]:
        return self.path, self.name


class ColumnsBeside:
    """Moves the values of one table that do not fit their columns."""

    def __init__(
        self, schema_evolution: SchemaEvolution, target: Target, cells: int, on_type_change: OnTypeChange
    ) -> None:
        """``cells``: the most of a record."""
        self._schema_evolution, self._target, self._cells = schema_evolution, target, cells
        self._as_text = on_type_change == "text"
        self.takes_values = on_type_change != NO_COLUMN_BESIDE
        """Whether values are moved at all."""

    def moved(self, values: Values) -> Iterator[tuple[Values, Indices]]:
        """Those of the values of which a part goes to another field, with that part moved, and their places."""
        data = values.data
        if isinstance(data, list):
            yield from self._moved_objects(values, data)
        elif isinstance(data, pa.StructArray):
            yield from self._moved_columns(values, data)

    def _moved_objects(self, values: Values, given: Sequence[Any]) -> Iterator[tuple[Values, Indices]]:
        places, changed = list[int](), list[Any]()
        for place, value in enumerate(given):
            if moves := self._moves(value, None, typed=values.typed):
                places.append(place)
                changed.append(_with_moves(value, moves))
        if places:
            yield values.choose(places).with_data(changed), places

    def _moved_columns(self, values: Values, data: pa.StructArray) -> Iterator[tuple[Values, Indices]]:
        """Values by the fields that are moved, whose columns get the name beside."""
        groups: dict[tuple[tuple[Path, str], ...], list[tuple[int, Sequence[_Move]]]] = {}
        asked = self._in_question(data)
        given = (value for _, part in objects_in_parts(asked) for value in part)
        for place, value in enumerate(given):
            if moves := self._moves(value, asked.type, typed=values.typed):
                groups.setdefault(tuple(move.place for move in moves), []).append((place, moves))
        for group in groups.values():
            places = [place for place, _ in group]
            part = chosen(data, places)
            for number, move in enumerate(group[0][1]):
                texts = [moves[number].text for _, moves in group] if self._as_text else None
                part = _with_column(part, move.path, move.name, texts)
            yield values.choose(places).with_data(part), places

    def _in_question(self, data: pa.StructArray) -> pa.StructArray:
        """The fields that Arrow cannot convert as a whole, and the fields to which their values may move."""
        lookup, fields = self._target.lookup(self._target.columns), [*zip(data.type, children_of(data), strict=True)]
        columns = [lookup.find(field.name) for field, _ in fields]
        pairs = zip(fields, columns, strict=True)
        names = {column.name for (_, child), column in pairs if column is not None and not self._is_cast(child, column)}
        beside = tuple(lookup.key(f"{name}_") for name in names)
        kept = [
            each
            for each, column in zip(fields, columns, strict=True)
            if (column is not None and column.name in names)
            or lookup.key(each[0].name if column is None else column.name).startswith(beside)
        ]
        return struct([child for _, child in kept], pa.struct([field for field, _ in kept]), None, len(data))

    def _is_cast(self, child: pa.Array, column: NestedField) -> bool:
        """Whether Arrow converts the whole column, so that each of its values fits."""
        try:
            cast(child, column.field_type, self._target, column.field_id)
        except REFUSALS:
            return child.null_count == len(child)
        return True

    def _moves(self, value: Any, kind: pa.StructType | None, *, typed: bool) -> list[_Move]:
        """The moves within a value; ``kind``: the type of its column, if it is in one."""
        columns = self._target.columns
        return [*self._within(value, kind, columns, (), typed=typed)] if isinstance(value, Mapping) else []

    def _within(
        self, value: Mapping[str, Any], kind: pa.StructType | None, columns: StructType, above: Path, *, typed: bool
    ) -> Iterator[_Move]:
        for name, column, inner in self._given(value, kind, columns, typed=typed):
            item, path = value[name], (*above, name)
            is_object = type(item) in (dict, Typed)
            if is_object and isinstance(column.field_type, StructType) and isinstance(inner, pa.StructType | None):
                yield from self._within(item, inner, column.field_type, path, typed=typed)
            elif item is not None and self._is_misfit(item, column, typed=typed):
                is_told = inner is not None and (typed or not pa.types.is_nested(inner))
                move = self._move(path, column, item, inner if is_told else None)
                if move is not None and self._is_free(move.name, value, columns):
                    yield move

    def _given(
        self, value: Mapping[str, Any], kind: pa.StructType | None, columns: StructType, *, typed: bool
    ) -> Iterator[tuple[str, NestedField, pa.DataType | None]]:
        """The fields of an object that have a column, each with the type of what it holds, unless that is JSON."""
        lookup = self._target.lookup(columns)
        # Of several fields for one column the last one counts.
        fields = {column.field_id: (name, column) for name in value if (column := lookup.find(name)) is not None}
        for name, column in fields.values():
            inner = None if kind is None else kind.field(name).type
            yield name, column, None if inner == JSON and not typed else inner

    def _is_misfit(self, value: Any, column: NestedField, *, typed: bool) -> bool:
        """Whether the value is not of the column's type, and the column can do without it. What is wrong inside of a
        list or a map has no column of its own.
        """
        kind = column.field_type
        if column.required or column.field_id in self._target.compared or not takes_values(kind):
            return False
        converter = ExactConverter(self._schema_evolution, self._target, typed=typed, texts=MadeTexts(self._cells))
        try:
            converter.value(value, column, ())
        except WrongTypeError as error:
            return not error.path
        except UnfitError:
            return False
        return False

    def _move(self, path: Path, column: NestedField, value: Any, kind: pa.DataType | None) -> _Move | None:
        """The move of a value; None if no column can have its type. ``kind``: the Arrow type, if that decides."""
        if self._as_text:
            try:
                return _Move(path, f"{column.name}_string", plain_text(value, self._cells * CELL))
            except (ValueError, TooMuchTextError):
                return None
        own = of_value(value) if kind is None else of_type(kind)
        return None if own is None else _Move(path, f"{column.name}_{_name(own)}", None)

    def _is_free(self, name: str, value: Mapping[str, Any], columns: StructType) -> bool:
        """Whether a column of this name takes values, and the object has none for it."""
        lookup = self._target.lookup(columns)
        column = lookup.find(name)
        if column is None and not self._schema_evolution.adds:
            return False
        same = {*lookup.names_of(column)} if column is not None else {lookup.key(name)}
        return all(item is None or lookup.key(field) not in same for field, item in value.items())


def _name(kind: InferredType) -> str:
    """The name of a type without its parameters: ``decimal``, or ``struct``."""
    name = kind if isinstance(kind, str) else next(iter(kind))
    return str(in_micros(name)).partition("(")[0].partition("[")[0]


def _with_moves(value: Mapping[str, Any], moves: Sequence[_Move]) -> dict[str, Any]:
    changed = dict(value)
    for path, name, text in moves:
        inner = changed
        for field in path[:-1]:
            inner[field] = dict(inner[field])
            inner = inner[field]
        inner[name] = inner[path[-1]] if text is None else text
        inner[path[-1]] = None
    return changed


def _with_column(data: pa.StructArray, path: Path, name: str, texts: Sequence[str | None] | None) -> pa.StructArray:
    """The data with the column of the field at ``path`` under the name ``name``, or with these texts instead of it."""
    fields = {field.name: field for field in data.type}
    columns = dict(zip(fields, children_of(data), strict=True))
    (field, *inner), column = path, columns[path[0]]
    if not inner:
        columns[name] = column if texts is None else pa.array(texts, pa.string())
        columns[field] = pa.nulls(len(data), column.type)
        fields[field] = fields[field].with_nullable(True)
        fields[name] = pa.field(name, columns[name].type)
    elif isinstance(column, pa.StructArray):
        columns[field] = _with_column(column, tuple(inner), name, texts)
        fields[field] = fields[field].with_type(columns[field].type)
    else:
        moves = [_Move(tuple(inner), name, text) for text in texts or [None] * len(data)]
        given = zip(objects(column), moves, strict=True)
        columns[field] = pa.array([write(_with_moves(value, [move])) for value, move in given], JSON)
    nulls = data.is_null() if data.null_count else None
    return struct([columns[each] for each in fields], pa.struct([*fields.values()]), nulls, len(data))
