"""Casts routed values to the rows of their tables, and collects the schema changes that the values need."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from calving.casting.converted import Converted, TableRows
from calving.casting.table import NOT_AN_OBJECT, TableConverter
from calving.errors import ConfigError
from calving.model.dead_letters import Stage
from calving.model.record_path import Evolution
from calving.model.tables import MissingTable, SchemaChange, TableSpec
from calving.records.arrays import Indices, compose, without
from calving.records.cells import FullBlockError
from calving.records.fields import name_mapping, table_schema
from calving.records.values import RecordError, Values
from calving.tasks.changed_fields import as_rows, without_cuts
from calving.tasks.creation import Creation
from calving.tasks.mutations import Conversion, Origin
from calving.tasks.operated import complete_only, operated
from calving.tasks.route import HeldOffsets
from calving.tasks.row_keys import identified
from calving.tasks.selection import Accounts, Routed, Tables, Timings
from calving.tasks.spec import TaskSpec
from calving.tasks.write import refusals
from calving.writing.layout import Layout
from calving.writing.schemas import evolved, is_declared


@dataclass(frozen=True, slots=True)
class CastRows:
    """Values as rows of their tables. ``bad``: the errors of values that some table cannot take, by index; no table
    takes such a value.
    """

    routed: Routed
    converted: Sequence[TableRows]
    bad: dict[int, RecordError]

    def settle(self) -> None:
        """Account for the values: those that are not bad are written."""
        accounts, places = self.routed.selected.accounts, self.routed.values.index
        accounts.written += len(places) - len(self.bad)
        accounts.bad += [error.within(places) for error in self.bad.values()]


class Caster:
    """Casts to the tables of one task."""

    def __init__(self, spec: TaskSpec, held: HeldOffsets, timings: Timings) -> None:
        self._spec, self._held, self._timings = spec, held, timings
        self._converters: dict[str, TableConverter] = {}
        self._conversions: dict[str, Conversion] = {}
        """The conversions of mutation tables."""
        self._refusing: dict[str, bool] = {}
        self.creation = Creation(spec)

    def rows(self, routed: Routed) -> Iterator[CastRows]:
        """The values as rows of all their tables, in parts whose rows do not take too much memory together. A value
        that one of the tables cannot take is bad for all.

        A missing table is left out if the settings allow that. The caller may add to ``bad``; the values are accounted
        for when it asks for the next part.
        """
        self._timings.start("convert")
        found = operated(_objects_only(routed), self._spec.tables, fold=self._spec.path.evolution.case_insensitive)
        if found.truncates is not None:
            yield from self._emptied(found.truncates)
        known: dict[str, TableSpec | MissingTable] = {**self._spec.missing, **self._spec.tables}
        routed = complete_only(identified(found.routed, self._spec.tables), known)
        accounts, values = routed.selected.accounts, routed.values
        if values.content == "truncate":
            self.creation.look_for(accounts, routed.tables)
            accounts.filtered["truncate event"] += len(values)
            return
        for part in self._lacking(routed):
            for piece in self._parts(part):
                yield from self._divided(piece)

    def _lacking(self, routed: Routed) -> Iterator[Routed]:
        """The values by the tables that do not hold them yet. Values that all tables hold are filtered. But those that
        a table refused may lack their letter in the dead-letter table, so they have to be known again.
        """
        selected = routed.selected
        rows_of = None
        if self._held.coverage:
            rows_of = self._held.lacking(selected.block, routed.tables, routed.values.index)
        if rows_of is None:
            yield routed
            return
        refused = self._spec.path.tolerance.to == "table"
        for tables, rows in rows_of.items():
            holders = tuple(table for table in routed.tables if refused and table not in tables)
            yield replace(routed.choose(rows), tables=tables, holders=holders)

    def _emptied(self, truncates: Routed) -> Iterator[CastRows]:
        """Truncate events for the tables that they empty and that do not hold them yet."""
        for part in self._lacking(truncates):
            if not len(part.values):
                continue
            converted, bad = [], dict[int, RecordError]()
            for table in part.tables:
                self.converter(table)  # makes its conversion
                origin = Origin.of(part.selected.block, part.values.index)
                emptied = self._conversions[table].emptied(part.values, origin)
                converted.append((table, emptied))
                bad.update((error.index, error) for error in emptied.bad)
            accounts = part.selected.accounts
            accounts.filtered -= Counter({"truncate event": len(bad)})
            accounts.bad += [error.within(part.values.index) for error in bad.values()]
            yield CastRows(part, converted, bad)

    def _parts(self, routed: Routed) -> list[Routed]:
        """The values in parts whose rows do not take too much memory together."""
        parts = [routed]
        for table in (*routed.tables, *routed.holders):
            if table in self._spec.tables:
                converter = self.converter(table)
                parts = [piece for part in parts for piece in _pieces(part, converter)]
        return parts

    def _divided(self, routed: Routed) -> Iterator[CastRows]:
        """The rows, in parts if they turn out to take too much memory together."""
        pending = [routed]
        while pending:
            part = pending.pop()
            if self._timings.step != "convert":
                self._timings.start("convert")
            try:
                part = self._unrefused(part)
                rows = self._rows(part)
            except FullBlockError:  # raised before anything is accounted for
                if len(part.values) == 1:
                    raise
                half = len(part.values) // 2
                pending += [part.choose(range(half, len(part.values))), part.choose(range(half))]
                continue
            if rows is not None:
                yield rows
                rows.settle()

    def _unrefused(self, routed: Routed) -> Routed:
        """The values that no table refuses that holds them."""
        accounts = routed.selected.accounts
        if routed.holders:
            bad, _ = self._tried(routed, tuple(table for table in routed.holders if table in self._spec.tables))
            accounts.bad += [error.within(routed.values.index) for error in bad.values()]
            routed = replace(routed.choose(without(len(routed.values), bad)), holders=())
        if not routed.tables:
            accounts.filtered["held by its tables"] += len(routed.values)
        return routed

    def _rows(self, routed: Routed) -> CastRows | None:
        """The rows for the tables that are there; None if no row is written now."""
        tables = self._known(routed)
        if not tables:
            return None
        bad, converted = self._unrefused_rows(routed, tables, only_changes=True)
        for change in _changes(converted):
            routed.selected.accounts.changes.add(change)
        return CastRows(routed, converted, bad)

    def _unrefused_rows(
        self, routed: Routed, tables: Tables, *, only_changes: bool
    ) -> tuple[dict[int, RecordError], list[TableRows]]:
        """As ``_tried``, with schema changes only for values that no table refuses: neither at once, nor when they are
        to be written after these changes. ``only_changes``: without a change, the writers are not asked.
        """
        bad, converted = self._tried(routed, tables)
        known = 0 if len(tables) > 1 else len(bad)
        while (changes := _changes(converted)) or not only_changes:
            if len(bad) == known:
                bad |= self._refused(routed, tables, changes, without(len(routed.values), bad))
                if len(bad) == known:
                    break
            known = len(bad)
            converted = self._some(routed, tables, without(len(routed.values), bad))
        return bad, converted

    def _refused(
        self, routed: Routed, tables: Tables, changes: Sequence[SchemaChange], rows: Indices
    ) -> dict[int, RecordError]:
        """Those of the values, by index, that a writer would refuse if the tables had these changes, or that would not
        fit a new column whose type is declared.
        """
        spec, fold = self._spec, self._spec.path.evolution.case_insensitive
        declared = any(is_declared(spec.tables[each.table], each, fold=fold) for each in changes)
        if not declared and not spec.trial_run and not any(map(self._may_refuse, tables)):
            return {}
        changed = {
            table: evolved(spec.tables[table], [each for each in changes if each.table == table], fold=fold)
            for table in tables
        }
        path = replace(spec.path, evolution=Evolution(case_insensitive=fold))
        spec = replace(spec, tables=changed, path=path)
        later = Caster(spec, self._held, self._timings)
        try:
            bad, converted = later._tried(routed.choose(rows), tables)
            found = refusals(spec, converted) | (bad if declared else {})
        except ConfigError:  # whoever changes the table finds that it cannot be written then
            return {}
        return {rows[i]: error.within(rows) for i, error in found.items()}

    def _may_refuse(self, table: str) -> bool:
        """Whether the table's writer may refuse rows that were converted."""
        if table not in self._refusing:
            try:
                self._refusing[table] = Layout(self._spec.tables[table]).refuses
            except ConfigError:  # the writer says it
                self._refusing[table] = False
        return self._refusing[table]

    def _known(self, routed: Routed) -> Tables:
        """The tables into which the values are written now. Without one, the values are accounted for."""
        spec, accounts, values = self._spec, routed.selected.accounts, routed.values
        known = tuple(table for table in routed.tables if table in spec.tables)
        if len(known) == len(routed.tables):
            return known
        absent = [table for table in routed.tables if table in spec.missing and not spec.path.evolution.create]
        if absent and spec.path.routing.missing_table != "skip":
            _reject_without_table(absent[0], values, accounts, fatal=spec.path.routing.missing_table == "fail")
            return ()
        pending = [table for table in routed.tables if table not in known and table not in absent]
        if pending:
            # First the tables must be loaded or created; then the task runs again. For now, only look for bad values.
            bad, _ = self._unrefused_rows(routed, known, only_changes=not known)
            self._create(accounts, pending, values.choose(without(len(values), bad)))
            accounts.bad += [error.within(values.index) for error in bad.values()]
            return ()
        if not known and len(values):
            accounts.filtered["missing table"] += len(values)
        return known

    def _create(self, accounts: Accounts, tables: Sequence[str], values: Values) -> None:
        """Have these tables created by the values."""
        if values.content == "partial row":
            missing = (self._spec.missing.get(table) for table in tables)
            changes_rows = any(each is not None and each.mutations is not None for each in missing)
            try:
                values = as_rows(values, self._spec.path.limits) if changes_rows else without_cuts(values)
            except ValueError as error:
                reason = f"table {tables[0]}: {error}"
                accounts.reject(values.index, Stage.CONVERSION, "PartialUpdateError", reason)
                return
        self.creation.ask_for(accounts, tables, values)

    def _tried(self, routed: Routed, tables: Tables) -> tuple[dict[int, RecordError], list[TableRows]]:
        """The rows of every table, and the bad values by index."""
        bad: dict[int, RecordError] = {}
        converted = [(table, part) for table in tables for part in self._converted(routed, table)]
        for _, part in converted:
            for each in part.bad:
                bad.setdefault(each.index, each)
        return bad, converted

    def _some(self, routed: Routed, tables: Tables, rows: Indices) -> list[TableRows]:
        """The rows of these values alone."""
        if not rows:
            return []
        some = routed.choose(rows)
        parts = [(table, part) for table in tables for part in self._converted(some, table)]
        return [(table, replace(part, index=compose(rows, part.index))) for table, part in parts]

    def _converted(self, routed: Routed, table: str) -> list[Converted]:
        """The values as rows; for a mutation table, as changes of rows."""
        converter, values, selected = self.converter(table), routed.values, routed.selected
        if (done := routed.operations.get(table)) is None:
            return [converter.convert(without_cuts(values) if values.content == "partial row" else values)]
        return self._conversions[table].convert(values, done, Origin.of(selected.block, values.index), selected.before)

    def converter(self, table: str) -> TableConverter:
        """The converter of a table's rows."""
        known = self._converters.get(table)
        if known is None:
            spec = self._spec.tables[table]
            schema = table_schema(spec.schema_json)
            names = name_mapping(spec.properties)
            evolution, limits = self._spec.path.evolution, self._spec.path.limits
            if table == self._spec.path.tolerance.table:  # a dead letter is never bad itself
                limits = replace(limits, cells=sys.maxsize)
            if spec.mutations is None:
                known = TableConverter(
                    table,
                    schema,
                    evolution,
                    names,
                    limits,
                    spec.moments,
                    partition_names=spec.partition_names,
                    refused=spec.refused,
                    on_type_change=spec.on_type_change,
                )
            else:
                conversion = self._conversions[table] = Conversion(spec, evolution, names, limits)
                known = conversion.rows
            self._converters[table] = known
        return known


def _changes(converted: Sequence[TableRows]) -> list[SchemaChange]:
    return [change for _, part in converted for change in part.changes]


def _pieces(routed: Routed, converter: TableConverter) -> list[Routed]:
    parts = [*converter.parts(routed.values)]
    return [routed] if len(parts) == 1 else [routed.choose(rows) for rows in parts]


def _objects_only(routed: Routed) -> Routed:
    """The values that are objects. The others fit no table, and are bad."""
    values = routed.values
    if isinstance(values.data, list):
        if {*map(type, values.data)} == {dict}:
            return routed
        good = [i for i, value in enumerate(values.data) if isinstance(value, dict)]
    elif pa.types.is_struct(values.data.type):
        return routed
    else:
        good = []
    if len(good) == len(values):
        return routed
    wrong = compose(values.index, without(len(values), dict.fromkeys(good)))
    reason = f"table {routed.tables[0]}: {NOT_AN_OBJECT}"
    routed.selected.accounts.reject(wrong, Stage.CONVERSION, "UnfitError", reason)
    return routed.choose(good)


def _reject_without_table(table: str, values: Values, accounts: Accounts, *, fatal: bool) -> None:
    advice = (
        ": create it, or set iceberg.tables.auto-create-enabled = true, or iceberg.tables.on-missing-table = skip or"
        " dead-letter"
    )
    reason = f"table {table} does not exist{advice if fatal else ''}"
    accounts.reject(values.index, Stage.ROUTING, "MissingTableError", reason, fatal=fatal)
