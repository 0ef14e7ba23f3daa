"""What records do to the rows of a mutation table (rules M1, M6, M10): their operations, and the rows as changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import BooleanType

from calving.casting.table import STAGE, Converted, TableConverter
from calving.errors import ConfigError
from calving.model.mutations import RowMutations
from calving.model.record_path import Evolution, Limits
from calving.model.tables import SchemaChange, TableSpec
from calving.records.arrays import take
from calving.records.fields import arrow_schema, table_schema
from calving.records.indices import Indices, compose, without
from calving.records.values import RecordError, Values, field, texts
from calving.writing.changes import DELETE, INSERT, UPDATE, change_schema, marked
from calving.writing.identity import identity_of, optional

TRUNCATE = 3
"""An event that empties its source; none of a row."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where values came from: a number for their source partition, and the offset of each."""

    source: int
    offsets: pa.Array


class Conversion:
    """Converts values for one mutation table, as of one schema."""

    def __init__(
        self, table: TableSpec, evolution: Evolution, names: Mapping[int, tuple[str, ...]], limits: Limits
    ) -> None:
        assert table.mutations is not None  # noqa: S101 - else rows are appended
        self._table, self._mutations = table.name, table.mutations
        schema = table_schema(table.schema_json)
        self._identity = identity_of(table)
        # Whether an id column has a value is asked here: no record may make it optional.
        relaxed = optional(schema, {*self._identity.ids})
        self.rows = TableConverter(table.name, relaxed, evolution, names, limits)
        """Of whole rows."""
        only_names = Evolution(case_insensitive=evolution.case_insensitive)
        keys = self._identity.schema(schema)
        self._keys = TableConverter(table.name, keys, only_names, names, limits)
        self._key_places = self._identity.within(keys)
        self._schema = change_schema(arrow_schema(relaxed))
        self._soft = _soft(table, self._mutations)

    def convert(self, values: Values, operations: pa.Array, origin: Origin) -> list[Converted]:
        """``operations``: of each value, none of them ``TRUNCATE``. Values whose key is null are bad."""
        if isinstance(self._soft, SchemaChange):
            return [Converted(None, [], [], [self._soft])]
        keys = self._keys.convert(values)
        nameless = self._nameless(keys)
        gone = pc.equal(operations, DELETE) if self._mutations.delete_mode == "hard" else None
        deleted = {} if gone is None else dict.fromkeys(pc.indices_nonzero(gone).to_pylist())
        found = [Converted(None, [], list(nameless.values()))]
        stays = without(len(values), {**deleted, **nameless})
        if len(stays):
            some = self.rows.convert(values.choose(stays))
            found.append(self._marked(_within(some, stays), operations, origin))
        if deleted:
            found.append(self._deletes(keys, deleted, nameless, operations, origin))
        return found

    def _deletes(
        self,
        keys: Converted,
        deleted: Mapping[int, None],
        nameless: Mapping[int, RecordError],
        operations: pa.Array,
        origin: Origin,
    ) -> Converted:
        """Of a row that goes only the key counts (M10)."""
        bad = [error for error in keys.bad if error.index in deleted]
        if keys.rows is None:
            return Converted(None, [], bad)
        here = [row for row, i in enumerate(keys.index) if i in deleted and i not in nameless]
        rows = pa.RecordBatch.from_arrays(
            [take(column, pa.array(here, pa.int32())) for column in keys.rows.columns], schema=keys.rows.schema
        )
        return self._marked(Converted(rows, compose(keys.index, here), bad), operations, origin)

    def _nameless(self, keys: Converted) -> dict[int, RecordError]:
        """By place, the values that lack a part of their key (M6)."""
        found: dict[int, RecordError] = {}
        for place in self._key_places:
            column = None if keys.rows is None else place.of(keys.rows)
            if column is None or not column.null_count:
                continue
            reason = f"table {self._table}: field {place.name} is null, but identifies the row"
            for row in pc.indices_nonzero(column.is_null()).to_pylist():
                i = keys.index[row]
                found.setdefault(i, RecordError(i, STAGE, "UnfitError", reason))
        return found

    def _marked(self, found: Converted, operations: pa.Array, origin: Origin) -> Converted:
        if found.rows is None or not found.rows.num_rows:
            return replace(found, rows=None)
        index = pa.array(found.index, pa.int32())
        own = operations.take(index)
        rows = marked(found.rows, self._schema, own, origin.source, origin.offsets.take(index))
        if isinstance(self._soft, int):
            is_gone = pc.equal(own, DELETE)
            rows = rows.set_column(self._soft, self._schema.field(self._soft), is_gone)
        return replace(found, rows=rows)


def _within(found: Converted, outer: Indices) -> Converted:
    """What was found of the values at these places."""
    bad = [replace(error, index=outer[error.index]) for error in found.bad]
    return replace(found, index=compose(outer, found.index), bad=bad)


def _soft(table: TableSpec, mutations: RowMutations) -> int | SchemaChange | None:
    """Where the column is that marks deleted rows, or how it comes to be; None: they go.

    :raises ConfigError: it is no boolean.
    """
    if mutations.delete_mode == "hard":
        return None
    name = mutations.soft_delete_field
    for place, column in enumerate(table_schema(table.schema_json).fields):
        if column.name == name:
            if not isinstance(column.field_type, BooleanType):
                raise ConfigError(
                    f"table {table.name}: its soft-delete-field {name} is {column.field_type}, no boolean"
                )
            return place
    return SchemaChange(table.name, "add", (name,), "boolean")


def operations(values: Values, mutations: RowMutations) -> pa.Array:
    """What each value does (M1): by the first letter of its cdc-field, or by the whole of it where that says whether
    the row is deleted.
    """
    if mutations.cdc_field is None:
        return pa.repeat(pa.scalar(UPDATE, pa.int8()), len(values))
    column = None if isinstance(values.data, list) else field(values.data, mutations.cdc_field)
    if column is None or not pa.types.is_string(column.type):
        column = pa.array(texts(values.data, mutations.cdc_field), pa.string())
    words = pc.utf8_upper(pc.utf8_trim_whitespace(column))
    letters = pc.utf8_slice_codeunits(words, 0, 1)
    cases = [
        (words, "TRUE", DELETE),
        (words, "FALSE", UPDATE),
        (letters, "U", UPDATE),
        (letters, "D", DELETE),
        (letters, "T", TRUNCATE),
    ]
    found = [pc.fill_null(pc.equal(where, pa.scalar(word)), False) for where, word, _ in cases]
    whether = pc.make_struct(*found)
    return pc.case_when(whether, *(pa.scalar(each, pa.int8()) for _, _, each in cases), pa.scalar(INSERT, pa.int8()))


def truncates(operations: pa.Array) -> Indices:
    """Places of events that empty their source."""
    found: list[int] = pc.indices_nonzero(pc.equal(operations, TRUNCATE)).to_pylist()
    return found


def as_objects(values: Values, id_columns: Sequence[str]) -> Values:
    """Keys of records as objects: one that is a single value is that of the only id column."""
    data = values.data
    if len(id_columns) != 1:
        return values
    if isinstance(data, list):
        return Values([v if isinstance(v, dict) else {id_columns[0]: v} for v in data], values.typed, values.index)
    if pa.types.is_struct(data.type):
        return values
    return Values(pa.StructArray.from_arrays([data], [id_columns[0]]), values.typed, values.index)
