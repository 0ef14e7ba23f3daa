"""Versions of rows: the columns of a table that keeps them (``history = on``), and the versions that the changes of a
batch make (rule M16).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.exceptions import ResolveError
from pyiceberg.schema import Schema, promote
from pyiceberg.types import NestedField

from calving.model.tables import (
    IS_CURRENT,
    VALID_FROM,
    VALID_TO,
    VERSION_COLUMNS,
    OrderType,
    RowMutations,
    SchemaChange,
)
from calving.records.arrays import conform
from calving.records.positions import order_keys
from calving.writing.changes import DELETE, OFFSET, OPERATION, SOURCE, Identity, is_operation
from calving.writing.key_runs import numbered

TIME = "timestamptz"
"""The type of the moments at which versions begin and end, if no order field says when."""


class VersionColumns(NamedTuple):
    """The columns of a table that keeps versions. ``kinds``: their types, by name. ``known``: those that the table
    has, whatever the case of their names.
    """

    kinds: Mapping[str, str]
    known: Sequence[NestedField]

    @staticmethod
    def of(schema: Schema, order_field: str | None) -> VersionColumns:
        """``order_field``: a column of the schema, which says when a version begins."""
        begin = TIME if order_field is None else str(schema.find_field(order_field).field_type)
        kinds = {VALID_FROM: begin, VALID_TO: begin, IS_CURRENT: "boolean"}
        return VersionColumns(kinds, [each for each in schema.fields if each.name.lower() in kinds])

    def takes(self, column: NestedField) -> bool:
        """Whether a column that the table has holds what it is for, maybe once it is widened."""
        wanted = self.kinds[column.name.lower()]
        if str(column.field_type) == wanted:
            return True
        with suppress(ResolveError):
            kind = NestedField.model_validate({"id": 1, "name": "x", "required": False, "type": wanted}).field_type
            promote(column.field_type, kind)
            return True
        return False

    def changes(self, table: str) -> list[SchemaChange]:
        """The changes that the table needs: columns that it lacks, and those that are narrower than the order field."""
        by_name = {each.name.lower(): each for each in self.known}
        return [
            SchemaChange(table, "add", (name,), kind)
            if name not in by_name
            else SchemaChange(table, "widen", (by_name[name].name,), kind)
            for name, kind in self.kinds.items()
            if name not in by_name or str(by_name[name].field_type) != kind
        ]

    def ids(self) -> tuple[int, int, int]:
        """The ids of the three columns, all of which the table has."""
        by_name = {each.name.lower(): each.field_id for each in self.known}
        begin, end, current = (by_name[name] for name in VERSION_COLUMNS)
        return begin, end, current

    def places(self, schema: Schema) -> VersionPlaces:
        """The places of the columns, all of which the schema has, in its rows."""
        ids = [each.field_id for each in schema.fields]
        return VersionPlaces(*map(ids.index, self.ids()))


class VersionPlaces(NamedTuple):
    """The places of the columns of versions in a row."""

    begin: int
    end: int
    current: int

    def begun(self, rows: pa.RecordBatch, begins: pa.Array) -> pa.RecordBatch:
        """The rows as versions that begin then."""
        return _with(rows, self.begin, begins)

    def ended(self, rows: pa.RecordBatch, ends: pa.Array) -> pa.RecordBatch:
        """The rows as versions that end then; null: nothing has ended them."""
        return _with(_with(rows, self.end, ends), self.current, ends.is_null())


def _with(rows: pa.RecordBatch, place: int, values: pa.Array) -> pa.RecordBatch:
    field = rows.schema.field(place)
    kind = field.type
    if isinstance(kind, pa.BaseExtensionType) and not isinstance(values, pa.ExtensionArray):
        return rows.set_column(place, field, pa.ExtensionArray.from_storage(kind, values.cast(kind.storage_type)))
    return rows.set_column(place, field, conform(values, kind))


class Ranks(NamedTuple):
    """Values in the order in which changes come, as numbers. ``values``: by number. ``parts``: the numbers of several
    columns; null stays null.
    """

    values: pa.Array
    parts: Sequence[pa.Array]

    @staticmethod
    def of(columns: Sequence[pa.Array], order_type: OrderType) -> Ranks:
        """``columns``: of one type. Values that compare as equal have the same number."""
        every = pa.concat_arrays([c.storage if isinstance(c, pa.ExtensionArray) else c for c in columns])
        keys = order_keys(every, order_type)
        known = keys.drop_null().unique()
        known = known.take(pc.sort_indices(known))
        numbers = pc.index_in(keys, value_set=known, skip_nulls=True).cast(pa.int64())
        parts, start = [], 0
        for column in columns:
            parts.append(numbers.slice(start, len(column)))
            start += len(column)
        return Ranks(every.take(pc.index_in(known, value_set=keys)), parts)

    def value(self, numbers: pa.Array) -> pa.Array:
        """The values of these numbers; null of null."""
        return self.values.take(numbers)


class VersionChain:
    """Makes versions of the changes of a batch. Each key's changes are all there."""

    def __init__(self, identity: Identity, mutations: RowMutations, places: VersionPlaces) -> None:
        """``places``: in the changes."""
        self._identity, self._places = identity, places
        self._ordered, self._order_type = mutations.order_field is not None, mutations.order_type

    def of(self, changes: Sequence[pa.RecordBatch]) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
        """The changes that stay, in the order of their keys and of the order field, or of the topic; and for each of
        them whether the commit has to know of it. Each change ends the version of the one before it. Of changes with
        the same order value the last one stays. Without an order field, none counts before one that came before it, and
        the commit has to know of the first change of each key.
        """
        whole = pa.concat_batches(changes)
        numbers = numbered([column.of(whole) for column in self._identity.columns]).cast(pa.int64())
        ranks = Ranks.of([whole.column(self._places.begin)], self._order_type)
        (at,) = ranks.parts
        columns = {"key": numbers, "at": at, "source": whole.column(SOURCE), "offset": whole.column(OFFSET)}
        if not self._ordered:
            del columns["at"]
        order = pc.sort_indices(pa.table(columns), sort_keys=[(name, "ascending") for name in columns])
        whole, numbers, at = whole.take(order), numbers.take(order), at.take(order)
        follows = _is_next(numbers)
        if self._ordered:
            stays = pc.invert(pc.and_(follows, _is_next(at)))
            whole, numbers, at = whole.filter(stays), numbers.filter(stays), at.filter(stays)
            follows = _is_next(numbers)
            is_told = pa.repeat(pa.scalar(True), len(at))
        else:
            is_told = pc.invert(_shifted(follows, back=False))
            deletes = is_operation(whole.column(OPERATION), DELETE)
            ends_nothing = pc.and_(deletes, pc.or_(is_told, _shifted(deletes, back=False)))
            at = pc.if_else(is_told, at, _ascending(pc.if_else(ends_nothing, 0, at), is_told))
            whole = self._places.begun(whole, ranks.value(at))
        ends = pc.if_else(follows, _shifted(at, back=True), None)
        yield self._places.ended(whole, ranks.value(ends)), is_told


def _is_next(values: pa.Array) -> pa.Array:
    """For each value, whether the next one is the same."""
    most = max(0, len(values) - 1)
    same = pc.equal(values.slice(1), values.slice(0, most))
    return pa.concat_arrays([same, pa.array([False] * (len(values) - most))])


def _shifted(values: pa.Array, *, back: bool) -> pa.Array:
    """For each value the one behind it; or the one before it. The last, or first, is null, or false."""
    most = max(0, len(values) - 1)
    nothing = pa.array([False if pa.types.is_boolean(values.type) else None] * (len(values) - most), values.type)
    return pa.concat_arrays([values.slice(1), nothing] if back else [nothing, values.slice(0, most)])


def _ascending(at: pa.Array, begins: pa.Array) -> pa.Array:
    """The numbers, each at least the one before it, unless it ``begins`` a row of numbers."""
    above = pc.multiply(pc.cumulative_sum(begins.cast(pa.int64())), len(at) + 1)
    return pc.subtract(pc.cumulative_max(pc.add(at, above)), above)
