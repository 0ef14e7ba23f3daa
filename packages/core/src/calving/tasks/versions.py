"""The changes of a table that keeps versions of its rows: when each of them counts (rule M16)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from calving.casting.converted import Converted
from calving.model.dead_letters import Stage
from calving.model.offsets import is_moment
from calving.model.tables import VERSION_COLUMNS, TableSpec
from calving.records.arrays import chosen, chosen_rows, compose
from calving.records.fields import table_schema
from calving.records.inferred import InferredType
from calving.records.values import RecordError, Values
from calving.writing.changes import DELETE, Identity
from calving.writing.versions import VersionColumns


class RowVersions:
    """The versions of one table. ``changes``: the schema changes that it needs; with one of them, it takes no row."""

    def __init__(self, table: TableSpec, identity: Identity) -> None:
        assert table.mutations is not None  # noqa: S101 - else rows are appended
        schema = table_schema(table.schema_json)
        columns = VersionColumns.of(schema, table.mutations.order_field)
        self._table, self._order = table.name, identity.order
        self.changes = columns.changes(table.name)
        self._places = None if self.changes else columns.places(schema)

    def hidden(self, values: Values, operations: pa.Array) -> Mapping[int, RecordError]:
        """The values with a field that a column of the versions would hide, by index. Deletes need their keys only."""
        hidden: dict[int, RecordError] = {}
        for name, rows in _named(values):
            reason = f"table {self._table}: {_hidden(name)}"
            for i in rows:
                if operations[i].as_py() != DELETE:
                    hidden.setdefault(i, RecordError(i, Stage.CONVERSION, "UnfitError", reason))
        return hidden

    def begun(self, found: Converted, rows: pa.RecordBatch, timestamps_ms: pa.Array) -> Converted:
        """The changes of ``found``, which are these rows, with the time at which each counts: the value of the order
        field, or the timestamp of its record. ``timestamps_ms``: of all values.
        """
        assert self._places is not None  # noqa: S101 - else the table takes no row
        rows = self._places.ended(rows, pa.nulls(rows.num_rows))  # for now
        if self._order is not None:
            return replace(found, rows=self._places.begun(rows, self._order.of(rows)))
        times = chosen(timestamps_ms, found.index)
        least, most = (each.as_py() for each in pc.min_max(times).values())
        bad: list[RecordError] = []
        if times.null_count or not (is_moment(least) and is_moment(most)):
            good = [row for row, time in enumerate(times.to_pylist()) if time is not None and is_moment(time)]
            bad = [self._timeless(i) for i in sorted({*found.index} - {*compose(found.index, good)})]
            rows, times = chosen_rows(rows, good), chosen(times, good)
            found = replace(found, index=compose(found.index, good))
        begins = times.cast(pa.int64()).cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))
        made = self._places.begun(rows, begins) if rows.num_rows else None
        return replace(found, rows=made, bad=[*found.bad, *bad])

    def _timeless(self, i: int) -> RecordError:
        reason = (
            f"table {self._table}: the record has no timestamp of the years 1970 to 9999, which history = on needs"
            " without an order-field"
        )
        return RecordError(i, Stage.CONVERSION, "UnfitError", reason)


def _named(values: Values) -> list[tuple[str, list[int]]]:
    """The fields with names of the columns of versions, and the values that have one."""
    if isinstance(values.data, pa.StructArray):
        kind = values.data.type
        names = [(field.name, place) for place, field in enumerate(kind) if field.name.lower() in VERSION_COLUMNS]
        columns = ((name, pc.struct_field(values.data, place)) for name, place in names)
        return [(name, pc.indices_nonzero(column.is_valid()).to_pylist()) for name, column in columns]
    found: dict[str, list[int]] = {}
    for i, value in enumerate(values.data if isinstance(values.data, list) else ()):
        for name, item in value.items() if isinstance(value, dict) else ():
            if item is not None and name.lower() in VERSION_COLUMNS:
                found.setdefault(name, []).append(i)
    return [*found.items()]


def hidden_field(kind: InferredType | None) -> str | None:
    """Why records of this type do not create a table with versions: a column of these would hide one of their fields;
    None if none would.
    """
    fields = kind.get("struct", {}) if isinstance(kind, Mapping) else {}
    name = next((name for name, type_ in fields.items() if type_ is not None and name.lower() in VERSION_COLUMNS), None)
    return None if name is None else _hidden(name)


def _hidden(name: str) -> str:
    return (
        f"field '{name}' has the name of a column that history = on fills: rename the field with a transform"
        " (ReplaceField)"
    )
