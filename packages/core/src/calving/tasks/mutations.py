"""The rows of a mutation table as changes (rules M6, M10, M14, M15)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import StructType

from calving.casting.converted import Converted
from calving.casting.metadata import MetadataColumns
from calving.casting.table import TableConverter
from calving.model.dead_letters import Stage
from calving.model.record_path import Evolution, Limits
from calving.model.tables import OrderType, RowMutations, SchemaChange, TableSpec
from calving.records.arrays import Indices, chosen, chosen_rows, compose, without
from calving.records.fields import arrow_schema, table_schema
from calving.records.positions import order_keys
from calving.records.values import RecordError, Values
from calving.source.reading import Block
from calving.tasks.before_images import bad_images, moved
from calving.tasks.changed_fields import ChangedFields
from calving.tasks.own_columns import OwnColumns
from calving.tasks.unavailable import LackingRows, LackingValues, UnavailableValues
from calving.tasks.unset_fields import UnsetFields
from calving.tasks.versions import RowVersions
from calving.writing.changes import (
    DELETE,
    TRUNCATE,
    UPDATE,
    ColumnPath,
    Identity,
    change_schema,
    identity_of,
    is_operation,
    marked,
    optional,
    row_schema,
)
from calving.writing.sources import truncate_column

_WITHOUT_KEY = "null, but identifies the row"
_OF_NO_SOURCE = "null, but says whose rows the truncate event deletes (truncate-field)"


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of values: a number for their source partition, and the offset and the timestamp of each value."""

    source: int
    offsets: pa.Array
    timestamps_ms: pa.Array

    @staticmethod
    def of(block: Block, index: Indices) -> Origin:
        """The origin of the block's records at these places."""
        source = crc32(block.source.topic.encode()) << 24 | block.source.partition
        return Origin(source, chosen(block.offsets, index), chosen(block.timestamps_ms, index))

    def at(self, index: Indices) -> Origin:
        """The origin of the values at these places."""
        return Origin(self.source, chosen(self.offsets, index), chosen(self.timestamps_ms, index))


class Conversion:
    """Converts values for one mutation table with one schema."""

    def __init__(
        self, table: TableSpec, evolution: Evolution, names: Mapping[int, tuple[str, ...]], limits: Limits
    ) -> None:
        assert table.mutations is not None  # noqa: S101 - else rows are appended
        self._table, self._mutations = table.name, table.mutations
        schema, relaxed = table_schema(table.schema_json), row_schema(table)
        self._identity = identity_of(table)
        self._converter = partial(
            TableConverter,
            table.name,
            evolution=evolution,
            names=names,
            limits=limits,
            moments=table.moments,
            partition_names=table.partition_names,
            refused=table.refused,
            compared=self._identity.needed,
            on_type_change=table.on_type_change,
        )
        self.rows = self._converter(schema=relaxed)
        """The converter of whole rows."""
        fold = evolution.case_insensitive
        self._metadata = MetadataColumns([*_leaves(schema), *self._mutations.metadata_columns], fold=fold)
        keys, needed = self._identity.schema(schema), self._identity.needed
        only_names = Evolution(case_insensitive=fold)
        self._keys = TableConverter(table.name, keys, only_names, names, limits, table.moments, compared=needed)
        self._unavailable = UnavailableValues(table, evolution, names)
        mark = () if self._mutations.delete_mode == "hard" else (self._mutations.soft_delete_field,)
        self._changed_fields = ChangedFields(table, evolution, names, limits, own=mark)
        self._unset_fields = UnsetFields(table, evolution, names, own=mark) if self._mutations.keeps_unset else None
        self._partial: dict[frozenset[int], TableConverter] = {}
        """The converters of rows that lack columns, by the ids of the required ones among these."""
        self._relaxed = relaxed
        # They widen a column for a key, as a row does. Else a key would be bad beside the row, and good after it.
        self._deleted_keys = self._converter(schema=self._identity.schema(schema), adds=False)
        """The converter of the keys and order values of rows to delete."""
        self._key_identity = self._identity.within(keys)
        images, stays = replace(self._identity, order=None), self._mutations.delete_mode == "soft"
        of_images = relaxed if stays else images.schema(schema)
        self._images = self._converter(schema=of_images, adds=stays, fills=False)
        """The converter of before images: of their keys, as the change counts by the order value of its event; or of
        whole rows, if a deleted row stays. What an image lacks, the update has not changed: it is no column's default.
        """
        self._old_identity = images.within(images.schema(schema))
        self._schema = change_schema(arrow_schema(relaxed))
        self._sources = _sources(table, self._mutations, only_names, names, limits)
        self._versions = RowVersions(table, self._identity) if self._mutations.has_versions else None
        self._soft = _soft(table, self._mutations)
        marks = [self._soft] if isinstance(self._soft, SchemaChange) else []
        self._own = OwnColumns(table, marks if self._versions is None else self._versions.changes)

    def convert(
        self, values: Values, operations: pa.Array, origin: Origin, before: Sequence[Values] = ()
    ) -> list[Converted]:
        """``operations``: the operation of each value; none is ``TRUNCATE``. Values whose key or order value is null
        are bad. ``before``: before images of some of the values.
        """
        values, before = self._metadata.of_values(values), [*map(self._metadata.of_values, before)]
        if (asked := self._own.asked_for(len(values))) is not None:
            return [asked]
        hidden = {} if self._versions is None else self._versions.hidden(values, operations)
        if not hidden:
            return self._changes(values, operations, origin, before)
        rest = without(len(values), hidden)
        parts = self._changes(values.choose(rest), chosen(operations, rest), origin.at(rest), before) if rest else []
        return [Converted(None, [], [*hidden.values()]), *(_within(part, rest) for part in parts)]

    def _changes(
        self, values: Values, operations: pa.Array, origin: Origin, before: Sequence[Values]
    ) -> list[Converted]:
        """The values as changes of rows."""
        gone: Indices = []
        if self._mutations.delete_mode == "hard":
            gone = pc.indices_nonzero(is_operation(operations, DELETE)).to_pylist()
        stays = without(len(values.data), dict.fromkeys(gone))
        lacking = self._lacking(values, stays, operations)
        parts = [Converted(None, [], [*lacking.bad])] if lacking.bad else []
        partial = [(self._partial_rows(group, values, operations, before), group.kept) for group in lacking.groups]
        if index := lacking.index:
            stays = without(len(values.data), index.union(gone))
        left: list[Converted] = []
        if len(stays):
            rows = self._rows_beside(values.choose(stays), chosen(operations, stays), before, self.rows)
            parts.append(_within(rows, stays) if len(stays) < len(values.data) else rows)
            left = [*self._changed_keys(parts[-1], values, operations, before)]
        if gone:  # a delete needs only its key and its order value (M10, M8)
            keys = self._deleted_keys.convert(values.choose(gone))
            parts.append(_within(self._complete_only(keys, self._key_identity), gone))
        deletes = pa.repeat(pa.scalar(DELETE, pa.int8()), len(values.data))
        return [
            *(self._marked(each, operations, origin, kept) for each, kept in partial),
            *(self._marked(each, operations, origin) for each in parts),
            *(self._marked(each, deletes, origin) for each in left),
        ]

    def _lacking(self, values: Values, rows: Indices, operations: pa.Array) -> LackingValues:
        """Those of these rows that lack columns."""
        if values.content == "partial row":
            return self._changed_fields.among(values, rows, operations)
        found = self._unavailable.among(values, rows, operations)
        return found if self._unset_fields is None else self._unset_fields.beside(found, values, rows, operations)

    def _moved(self, row: int, values: Values, group: LackingRows) -> RecordError:
        """The error for a row of the group, whose key the update has changed."""
        if self._unset_fields is not None and group.is_unset:
            return self._unset_fields.moved(row)
        return (self._changed_fields if values.content == "partial row" else self._unavailable).moved(row)

    def _partial_rows(
        self,
        group: LackingRows,
        values: Values,
        operations: pa.Array,
        before: Sequence[Values],
    ) -> Converted:
        """The rows of a group, which are among all ``values``. One whose key the update has changed is
        bad: its values are in the row of the former key.
        """
        index = group.index
        ids = frozenset(each for each in group.columns if self._relaxed.find_field(each).required)
        if ids not in self._partial:
            self._partial[ids] = self._converter(schema=optional(self._relaxed, ids))
        own = chosen(operations, index)
        rows = _within(self._rows_beside(group.values, own, before, self._partial[ids]), index)
        left = [*self._changed_keys(rows, values, operations, before)]
        elsewhere = {i for each in left for i in (*each.index, *(error.index for error in each.bad))}
        if not elsewhere or rows.rows is None:
            return rows
        here = [row for row, i in enumerate(rows.index) if i not in elsewhere]
        bad = [self._moved(i, values, group) for i in sorted(elsewhere)]
        return Converted(chosen_rows(rows.rows, here), compose(rows.index, here), [*rows.bad, *bad])

    def emptied(self, values: Values, origin: Origin) -> Converted:
        """Truncate events, as changes that have a value at most for the truncate-field. Those without one are bad."""
        count = len(values)
        if self._sources is None:
            nothing = pa.RecordBatch.from_arrays([pa.nulls(count)], [""])
            return self._marked(Converted(nothing, range(count)), _truncate(count), origin)
        converter, source = self._sources
        found = self._complete_only(converter.convert(values), source, _OF_NO_SOURCE)
        return self._marked(found, _truncate(count), origin)

    def _changed_keys(
        self, found: Converted, values: Values, operations: pa.Array, before: Sequence[Values]
    ) -> Iterator[Converted]:
        """Deletes of the keys that updates among the rows have changed (M11)."""
        if not before or found.rows is None:
            return
        updates = pc.indices_nonzero(is_operation(chosen(operations, found.index), UPDATE)).to_pylist()
        rows = Converted(chosen_rows(found.rows, updates), compose(found.index, updates))
        old = self._old_identity if self._soft is None else self._identity
        yield from moved(rows, values, before, self._images, old, self._identity)

    def _rows_beside(
        self, values: Values, operations: pa.Array, before: Sequence[Values], converter: TableConverter
    ) -> Converted:
        """The values as rows. An update whose before image is bad requests no schema change."""
        rows = self._rows_of(values, converter)
        if not rows.changes or not before:
            return rows
        updates = pc.indices_nonzero(is_operation(operations, UPDATE)).to_pylist()
        if not (bad := bad_images(updates, values, before, self._images)):
            return rows
        good = without(len(values), bad)
        rows = _within(self._rows_of(values.choose(good), converter), good)
        return replace(rows, bad=[*rows.bad, *bad.values()])

    def _rows_of(self, values: Values, converter: TableConverter) -> Converted:
        """The values as rows. A value without its key is bad only for this reason, whatever else is wrong with it; it
        requests no schema change.
        """
        rows = converter.convert(values)
        if not rows.bad and not rows.changes:
            return self._complete_only(rows, self._identity)
        incomplete = self._incomplete(self._keys.convert(values), self._key_identity)
        if incomplete:
            complete = without(len(values), incomplete)
            rows = _within(converter.convert(values.choose(complete)), complete)
        return replace(rows, bad=[*rows.bad, *incomplete.values()])

    def _complete_only(self, found: Converted, identity: Identity, lacking: str = _WITHOUT_KEY) -> Converted:
        """The rows with a complete key and an order value; the others become bad. ``lacking``: what the error says of
        those without a key.
        """
        incomplete = self._incomplete(found, identity, lacking)
        if not incomplete or found.rows is None:
            return found
        here = [row for row, i in enumerate(found.index) if i not in incomplete]
        return Converted(chosen_rows(found.rows, here), compose(found.index, here), [*found.bad, *incomplete.values()])

    def _incomplete(self, found: Converted, identity: Identity, lacking: str = _WITHOUT_KEY) -> dict[int, RecordError]:
        """The values that lack a part of their key (M6) or their order value (M8), by index. ``identity``: the places
        of these columns in the rows.
        """
        incomplete: dict[int, RecordError] = {}
        order_type = self._mutations.order_type
        for place, lacks, what in () if found.rows is None else _needed(found.rows, identity, order_type, lacking):
            reason = f"table {self._table}: field {place.name} is {what}"
            for row in pc.indices_nonzero(lacks).to_pylist():
                i = found.index[row]
                incomplete.setdefault(i, RecordError(i, Stage.CONVERSION, "UnfitError", reason))
        return incomplete

    def _marked(self, found: Converted, operations: pa.Array, origin: Origin, kept: str | None = None) -> Converted:
        """The rows as changes. ``kept``: the text for what they lack; None if they are whole."""
        if found.rows is None or not found.rows.num_rows:
            return replace(found, rows=None)
        own = chosen(operations, found.index)
        texts = pa.repeat(pa.scalar(kept, pa.string()), found.rows.num_rows)
        rows = marked(found.rows, self._schema, own, origin.source, chosen(origin.offsets, found.index), texts)
        if isinstance(self._soft, int):
            is_gone = is_operation(own, DELETE)
            rows = rows.set_column(self._soft, self._schema.field(self._soft), is_gone)
        made = replace(found, rows=rows)
        return made if self._versions is None else self._versions.begun(made, rows, origin.timestamps_ms)


def _needed(
    rows: pa.RecordBatch, identity: Identity, order_type: OrderType, lacking: str
) -> Iterator[tuple[ColumnPath, pa.Array, str]]:
    """The columns in which every change needs a value: the rows that lack it, and what an error says about them."""
    for column in identity.columns:
        yield column, column.of(rows).is_null(), lacking
    if (order := identity.order) is not None:
        values = order.of(rows)
        yield order, values.is_null(), "null or missing, but orders the changes: deletes need it, too"
        if pa.types.is_floating(values.type):
            is_nan = pc.fill_null(pc.is_nan(values), False)
            yield order, is_nan, "NaN, which is neither before nor after another value, but orders the changes"
        if (keys := order_keys(values, order_type)) is not values:
            what = "a text that is neither a number nor a position in a log, but orders the changes: order-type = text"
            yield order, keys.is_null(), f"{what} compares it letter by letter"


def _sources(
    table: TableSpec,
    mutations: RowMutations,
    evolution: Evolution,
    names: Mapping[int, tuple[str, ...]],
    limits: Limits,
) -> tuple[TableConverter, Identity] | None:
    """What makes the values of the truncate-field, and their column; None if truncate events delete all rows."""
    schema = table_schema(table.schema_json)
    column = truncate_column(table.name, schema, mutations)
    if column is None:
        return None
    identity = Identity((column,), None)
    only = identity.schema(schema)
    return TableConverter(table.name, only, evolution, names, limits, table.moments), identity.within(only)


def _truncate(count: int) -> pa.Array:
    return pa.repeat(pa.scalar(TRUNCATE, pa.int8()), count)


def _within(found: Converted, outer: Indices) -> Converted:
    """``found`` with the indices of the outer values: it is a conversion of the values at ``outer``."""
    bad = [error.within(outer) for error in found.bad]
    return replace(found, index=compose(outer, found.index), bad=bad)


def _leaves(schema: Schema) -> list[str]:
    """The names of the columns that are no structs."""
    return [name for name in schema.column_names if not isinstance(schema.find_type(name), StructType)]


def _soft(table: TableSpec, mutations: RowMutations) -> int | SchemaChange | None:
    """The index of the column that marks deleted rows, or the schema change that adds it; None if deleted rows are
    removed.
    """
    if mutations.delete_mode == "hard":
        return None
    name = mutations.soft_delete_field
    names = [column.name for column in table_schema(table.schema_json).fields]
    return names.index(name) if name in names else SchemaChange(table.name, "add", (name,), "boolean")
