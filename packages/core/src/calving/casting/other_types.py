"""Values that their columns cannot hold, as texts in columns beside these (``on-other-type = text-column``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
from pyiceberg.types import NestedField, StringType

from calving.casting.findings import Converted
from calving.casting.texts import TooMuchTextError, string
from calving.records.arrays import Indices, children_of, compose, struct, take, without
from calving.records.cells import CELL
from calving.records.fields import Lookup
from calving.records.values import RecordError, Values, objects

SUFFIX = "_text"


class TextColumns:
    """Moves such values of one table."""

    def __init__(self, lookup: Lookup, compared: Iterable[int], *, adds: bool, cells: int) -> None:
        """``lookup``: of the table's columns. ``compared``: the ids of columns whose values stay: those of keys and
        order values. ``adds``: whether a missing column is added. ``cells``: the most of a record.
        """
        self._lookup, self._compared, self._adds = lookup, frozenset(compared), adds
        self._longest = cells * CELL

    def moved(self, values: Values, unfit: Mapping[int, NestedField]) -> list[tuple[Indices, Values]]:
        """The values with their unfit fields as texts under other names, and their places. ``unfit``: a column that
        cannot hold a value, by the value's place. Values that cannot be moved are left out.
        """
        by_column: dict[int, tuple[NestedField, list[int]]] = {}
        for place, column in sorted(unfit.items()):
            if self._has_place(column):
                by_column.setdefault(column.field_id, (column, []))[1].append(place)
        found = []
        for column, places in by_column.values():
            some = self._moved(values.choose(places), column)
            if some is not None:
                rows, made = some
                found.append((compose(places, rows), made))
        return found

    def _has_place(self, column: NestedField) -> bool:
        beside = self._lookup.find(column.name + SUFFIX)
        free = self._adds if beside is None else isinstance(beside.field_type, StringType)
        return free and column.field_id not in self._compared

    def _moved(self, values: Values, column: NestedField) -> tuple[Indices, Values] | None:
        name = column.name + SUFFIX
        if isinstance(values.data, list):
            return self._moved_objects(values, values.data, column, name)
        data = values.data
        assert isinstance(data, pa.StructArray)  # noqa: S101 - only objects have columns
        fields = [*zip(data.type, children_of(data), strict=True)]
        own = [child for field, child in fields if self._leads(field.name, column)]
        if any(self._is(field.name, name) for field, _ in fields):
            return None
        texts = [self._text(value) for value in objects(own[-1])]
        rows = [row for row, text in enumerate(texts) if text is not None]
        left = [(field, child) for field, child in fields if not self._leads(field.name, column)]
        parts = [*(child for _, child in left), pa.array(texts, pa.string())]
        kind = pa.struct([*(field for field, _ in left), pa.field(name, pa.string())])
        return rows, values.with_data(struct(parts, kind, None, len(data))).choose(rows)

    def _moved_objects(
        self, values: Values, data: Sequence[dict[str, object]], column: NestedField, name: str
    ) -> tuple[Indices, Values]:
        rows, made = [], []
        for row, value in enumerate(data):
            own = [item for field, item in value.items() if self._leads(field, column)]
            text = self._text(own[-1])
            if text is None or any(self._is(field, name) for field in value):
                continue
            rows.append(row)
            made.append({field: item for field, item in value.items() if not self._leads(field, column)} | {name: text})
        return rows, values.choose(rows).with_data(made)

    def _leads(self, field: str, column: NestedField) -> bool:
        found = self._lookup.find(field)
        return found is not None and found.field_id == column.field_id

    def _is(self, field: str, name: str) -> bool:
        """Whether a field has this name, or leads to its column."""
        found, own = self._lookup.find(field), self._lookup.find(name)
        same = field.lower() == name.lower() if self._lookup.folds else field == name
        return same or (found is not None and own is not None and found.field_id == own.field_id)

    def _text(self, value: object) -> str | None:
        try:
            return string(value, self._longest)
        except (ValueError, TooMuchTextError):
            return None


def joined(first: Converted, others: Sequence[tuple[Indices, Converted]]) -> Converted:
    """The conversion of all values. ``others``: conversions of bad values of ``first`` in another form, with the
    places of these values. What is bad in that form, too, has its first error.
    """
    good = set[int]()
    for places, each in others:
        good.update(compose(places, without(len(places), {error.index for error in each.bad})))
    bad = [error for error in first.bad if error.index not in good]
    changes = [*first.changes, *(change for _, each in others for change in each.changes)]
    if changes:
        return Converted(None, [], bad, changes)
    parts = [(first.rows, first.index), *((each.rows, compose(places, each.index)) for places, each in others)]
    return _in_order([(rows, index) for rows, index in parts if rows is not None and rows.num_rows], bad)


def _in_order(parts: Sequence[tuple[pa.RecordBatch, Indices]], bad: list[RecordError]) -> Converted:
    """All rows by their indices."""
    if not parts:
        return Converted(None, [], bad)
    rows = pa.concat_batches([rows for rows, _ in parts])
    index = [i for _, each in parts for i in each]
    order = sorted(range(len(index)), key=index.__getitem__)
    columns = [take(column, pa.array(order, pa.int64())) for column in rows.columns]
    return Converted(pa.RecordBatch.from_arrays(columns, schema=rows.schema), [index[i] for i in order], bad)
