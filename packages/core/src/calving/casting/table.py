"""Converts decoded values to the rows of one table. Finds the values that do not fit, and the schema changes that
values need.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StructType

from calving.casting.beside import ColumnsBeside
from calving.casting.cells import TableCells
from calving.casting.column_changes import ColumnChanges
from calving.casting.columns import REFUSALS, cast, cast_each
from calving.casting.converted import Converted
from calving.casting.evolution import SchemaEvolution, UnfitError, columns_added
from calving.casting.exact import ExactConverter
from calving.casting.findings import Findings, missing_rows
from calving.casting.objects import columns_of, simple_column
from calving.casting.source_columns import one_each
from calving.model.dead_letters import Stage
from calving.model.record_path import Evolution, Limits
from calving.model.tables import NO_COLUMN_BESIDE, Moments, OnTypeChange, RefusedChange
from calving.records.arrays import (
    Indices,
    arrow,
    children_of,
    chosen,
    compose,
    conform,
    holds,
    without,
)
from calving.records.cells import TooManyCellsError
from calving.records.failures import ExactPathError
from calving.records.fields import Target, arrow_schema
from calving.records.semantics import SemanticType
from calving.records.values import RecordError, Values, objects, objects_in_parts

NOT_AN_OBJECT = "the value is not an object: a table takes records with named fields"
NO_COLUMNS = "it has no columns, and the record brings none: add a column to the table"


class TableConverter:
    """Converts values for one schema of one table."""

    def __init__(
        self,
        table: str,
        schema: Schema,
        evolution: Evolution,
        names: Mapping[int, tuple[str, ...]],
        limits: Limits | None = None,
        moments: Moments | None = None,
        *,
        partition_names: Iterable[str] = (),
        refused: Iterable[RefusedChange] = (),
        exactly: bool = False,
        compared: Set[int] = frozenset(),
        adds: bool = True,
        fills: bool = True,
        on_type_change: OnTypeChange = NO_COLUMN_BESIDE,
    ) -> None:
        """``names``: the table's name mapping. ``partition_names``: the names of its partition fields. ``refused``: the
        changes that its catalog refuses. ``compared``: the ids of its id columns and its order column. ``adds``: as
        ``SchemaEvolution`` takes it. ``fills``: as ``Target`` takes it. ``on_type_change``: what becomes of a value
        that does not fit its column.
        """
        self._table, self._evolution, self._exactly = table, evolution, exactly
        self._limits = limits or Limits()
        self._follows = evolution.followed is not None
        self._schema_evolution = SchemaEvolution(
            table, schema, evolution, self._limits, partition_names, refused, adds=adds
        )
        self._struct = schema.as_struct()
        self._arrow = arrow_schema(schema)
        fold = evolution.case_insensitive
        self.target = Target(
            self._struct,
            names,
            case_insensitive=fold,
            moments=moments,
            compared=compared,
            fills=fills,
            promotes=evolution.evolve,
        )
        self._lookup = self.target.lookup
        self._column_changes = ColumnChanges(self._schema_evolution, self.target)
        self.cells = TableCells(self.target, self._limits.cells)
        self._beside = ColumnsBeside(self._schema_evolution, self.target, self._limits.cells, on_type_change)
        self._last_type: pa.DataType = pa.null()
        self._last_columns: Sequence[NestedField | None] = ()

    def parts(self, values: Values) -> Iterable[Indices]:
        """The values in parts whose rows do not take too much memory together."""
        cells, count = self.cells, len(values.data)
        if not cells.counts_values and count * cells.row <= cells.together:
            return [range(count)]
        return cells.parts(values)

    def convert(self, values: Values) -> Converted:
        """Convert all values, and separate the bad ones.

        :raises FullBlockError: the texts of nested values take too much memory together: convert fewer values at once.
            It is never raised for a single value.
        """
        over = self._over(values)
        converted = self._convert_all(values, over)
        if self._beside.takes_values and len(converted.bad) > len(over):
            misfits = [error.index for error in converted.bad if error.index not in over]
            for moved, places in self._beside.moved(values.choose(misfits)):
                places = compose(misfits, places)
                converted = converted.with_others(self._convert_all(moved, self._over(moved)), places)
        return converted

    def _over(self, values: Values) -> Mapping[int, str]:
        """The values that have too many cells, and the reason why they are bad."""
        places = self.cells.over(values) if self.cells.counts_values else ()
        return dict.fromkeys(places, str(TooManyCellsError(self.cells.most))) if places else {}

    def _convert_all(self, values: Values, over: Mapping[int, str]) -> Converted:
        """Convert all values but those of ``over``, which are bad, each for its own column."""
        converted = self._convert_without(values, over, with_nulls=values.typed)
        if self._adds_too_much(converted) and values.typed:
            converted = self._convert_without(values, over, with_nulls=False)
        if self._adds_too_much(converted):
            converted = self._convert_without(values, {**over, **self._too_new(values, over)}, with_nulls=False)
        return converted

    def _adds_too_much(self, converted: Converted) -> bool:
        return columns_added(converted.changes, fold=self._evolution.case_insensitive) > self._limits.new_columns

    def _convert_without(self, values: Values, over: Mapping[int, str], *, with_nulls: bool) -> Converted:
        """Convert all values but those of ``over``, which are bad for the reasons that it has. ``with_nulls``: as of
        ``Findings``.
        """
        if not over:
            return self._convert(values, with_nulls=with_nulls)
        kept = without(len(values), over)
        part = self._convert(values.choose(kept), with_nulls=with_nulls)
        bad = [*(error.within(kept) for error in part.bad), *(self._bad(*each) for each in over.items())]
        return Converted(part.rows, compose(kept, part.index), sorted(bad, key=lambda e: e.index), part.changes)

    def _too_new(self, values: Values, over: Mapping[int, str]) -> dict[int, str]:
        """The values, beside those of ``over``, that would add too many columns by themselves, and the reason."""
        most, reasons = self._limits.new_columns, dict[int, str]()
        pending: list[Indices] = [without(len(values), over)]
        while pending:
            places = pending.pop()
            changes = self._convert(values.choose(places)).changes
            count = columns_added(changes, fold=self._evolution.case_insensitive)
            if count <= most:
                continue
            if len(places) == 1:
                reasons[places[0]] = f"it would add {count} columns, more than iceberg.limits.new-columns = {most}"
            else:
                half = len(places) // 2
                pending += [places[half:], places[:half]]
        return reasons

    def _convert(self, values: Values, *, with_nulls: bool = False) -> Converted:
        if isinstance(values.data, list):
            return self._objects(values.data)
        if not isinstance(values.data, pa.StructArray):
            return Converted(None, [], [self._bad(i, NOT_AN_OBJECT) for i in range(len(values))])
        return self._columns(values.data, values.typed, with_nulls and len(values) > 0)

    def _columns(self, data: pa.StructArray, typed: bool, with_nulls: bool) -> Converted:
        sources: dict[int, pa.Array] = {}
        findings = Findings(typed=typed, with_nulls=with_nulls, cells=self._limits.cells, records=len(data))
        for source, target, child in zip(data.type, self._columns_for(data.type), children_of(data), strict=True):
            if target is None:
                self._column_changes.missing(child, source, self._struct, (), typed, findings)
            else:
                # Of several fields for one column the last counts, as for records that are read one by one.
                sources[target.field_id] = child
                if typed or pa.types.is_nested(child.type):
                    self._column_changes.inner(child, target.field_type, (target.name,), typed, findings)
        given = [sources.get(target.field_id, pa.nulls(len(data))) for target in self._struct.fields]
        made = cast_each(given, self._struct, self._arrow, self.target) if not self._exactly else [None] * len(given)
        columns = [
            self.target.defaults[target.field_id].repeated(len(data))
            if target.field_id not in sources and target.field_id in self.target.defaults
            else self._column(source, column, target, wanted.type, findings)
            for source, column, target, wanted in zip(given, made, self._struct.fields, self._arrow, strict=True)
        ]
        if findings.reasons and findings.changes:
            # A bad record is not written, so it asks the table for no change.
            good = without(len(data), findings.reasons)
            findings.changes = self._columns(chosen(data, good), typed, with_nulls).changes if good else []
        return self._result(columns, len(data), findings)

    def _columns_for(self, kind: pa.StructType) -> Sequence[NestedField | None]:
        """The column of each field of values of this type. Neighbouring blocks mostly have one type."""
        if kind != self._last_type:
            lookup = self._lookup(self._struct)
            found = [(field.name, lookup.find(field.name)) for field in kind]
            self._last_type = kind
            self._last_columns = one_each(found) if self._follows else [column for _, column in found]
        return self._last_columns

    def _column(
        self, source: pa.Array, made: pa.Array | None, target: NestedField, wanted: pa.DataType, found: Findings
    ) -> pa.Array:
        """The column of a source, of which Arrow has ``made`` one; None if it cannot."""
        column = pa.nulls(len(source), wanted) if source.null_count == len(source) else made
        if column is None:
            return self._column_exactly(source, target, wanted, found)
        if target.required and column.null_count:
            self._missing(target, missing_rows(column), found)
        return column

    def _missing(self, target: NestedField, rows: Sequence[int], found: Findings) -> None:
        try:
            found.changes.append(self._schema_evolution.optional(target, (target.name,)))
        except UnfitError as error:
            for i in rows:
                found.reasons.setdefault(i, str(error))

    def _column_exactly(self, source: pa.Array, target: NestedField, wanted: pa.DataType, found: Findings) -> pa.Array:
        if holds(source.type, _is_moment):
            return self._temporal(source, target, wanted, found)
        values = objects_in_parts(source)
        parts = [self._values_exactly(part, target, wanted, found, start) for start, part in values]
        return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)

    def _temporal(self, source: pa.Array, target: NestedField, wanted: pa.DataType, found: Findings) -> pa.Array:
        """Arrow casts each value that it can, because Python's dates have a smaller range. The other values go the
        exact path.
        """
        parts: list[pa.Array] = []
        pending = [(0, len(source))]
        while pending:
            start, count = pending.pop()
            piece = source.slice(start, count)
            try:
                if piece.null_count == count:
                    raise ExactPathError("only nulls")
                parts.append(conform(cast(piece, target.field_type, self.target, target.field_id), wanted))
            except REFUSALS:
                if count > 1:
                    half = count // 2
                    pending += [(start + half, count - half), (start, half)]
                    continue
                alone = pa.nulls(1, wanted) if piece.null_count else None
                parts.append(alone or self._values_exactly(objects(piece), target, wanted, found, start))
        column = pa.concat_arrays(parts)
        if target.required and column.null_count:
            missing = [i for i in missing_rows(column) if not source[i].is_valid]
            self._missing(target, missing, found) if missing else None
        return column

    def _values_exactly(
        self,
        values: Sequence[Any],
        target: NestedField,
        wanted: pa.DataType,
        found: Findings,
        start: int = 0,
        missing: Collection[int] = (),
    ) -> pa.Array:
        """``start``: the place of the first of these values among all. ``missing``: the places of those whose record
        lacks the field, so that they are the column's default.
        """
        converter = ExactConverter(self._schema_evolution, self.target, typed=found.typed, texts=found.texts)
        rows: list[Any] = [None] * len(values)
        path = (target.name,)
        for i, value in enumerate(values, start):
            if i in missing:
                rows[i - start] = self.target.defaults[target.field_id].value
            elif i not in found.reasons:
                found.texts.start(i)
                try:
                    rows[i - start] = converter.value(value, target, path)
                except UnfitError as error:
                    found.reasons[i] = str(error)
        found.changes += converter.changes
        return arrow(rows, wanted)

    def _objects(self, values: Sequence[object]) -> Converted:
        """Convert objects column by column. Arrow casts the columns that hold values of one kind, which are most
        columns.
        """
        findings = Findings(cells=self._limits.cells, records=len(values))
        given = columns_of(
            values,
            self._struct,
            self._lookup(self._struct),
            whole=self._schema_evolution.adds,
            learned_names=self._limits.learned_names,
            defaults=self.target.defaults.keys(),
        )
        findings.reasons = dict.fromkeys(given.no_objects, NOT_AN_OBJECT)
        columns = []
        for target, wanted in zip(self._struct.fields, self._arrow, strict=True):
            column, missing = given.items[target.field_id], given.missing.get(target.field_id, ())
            keeps = target.field_id in self.target.compared
            is_exact = self._exactly or len(missing) > 0
            source = None if is_exact else simple_column(column, target.field_type, keeps=keeps)
            if source is None:
                columns.append(self._values_exactly(column, target, wanted.type, findings, missing=missing))
            else:
                (made,) = cast_each([source], StructType(target), [wanted], self.target)
                columns.append(self._column(source, made, target, wanted.type, findings))
        if self._schema_evolution.adds:
            self._new(given.new, findings)
        if findings.reasons and findings.changes:
            # A bad record is not written, so it asks the table for no change.
            good = [value for i, value in enumerate(values) if i not in findings.reasons]
            findings.changes = self._objects(good).changes if good else []
        return self._result(columns, len(values), findings)

    def _new(self, items: Sequence[tuple[int, str, object]], found: Findings) -> None:
        """Request columns for fields without one."""
        converter = ExactConverter(self._schema_evolution, self.target)
        for i, name, item in items:
            if i not in found.reasons:
                try:
                    converter.unknown(item, (self._lookup(self._struct).asks_for(name),))
                except UnfitError as error:
                    found.reasons[i] = str(error)
        found.changes += converter.changes

    def _result(self, columns: list[pa.Array], size: int, found: Findings) -> Converted:
        if not columns and not found.changes:
            found.reasons = dict.fromkeys(range(size), NO_COLUMNS) | found.reasons
        bad = [self._bad(i, reason) for i, reason in sorted(found.reasons.items())]
        if found.changes:
            return Converted(None, [], bad, found.changes)
        if not bad:
            return Converted(pa.RecordBatch.from_arrays(columns, schema=self._arrow), range(size))
        index = without(size, found.reasons)
        rows = pa.RecordBatch.from_arrays([chosen(c, index) for c in columns], schema=self._arrow)
        return Converted(rows, index, bad)

    def _bad(self, index: int, reason: str) -> RecordError:
        return RecordError(index, Stage.CONVERSION, "UnfitError", f"table {self._table}: {reason}")


def _is_moment(kind: pa.DataType) -> bool:
    return pa.types.is_temporal(kind) or isinstance(kind, SemanticType)
