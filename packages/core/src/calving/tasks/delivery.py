"""Delivers routed values to tables: converts the values, collects the schema changes that they need, and hands rows to
the writers.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from calving.casting.schema_changes import SchemaChanges
from calving.casting.table import NOT_AN_OBJECT, Converted, TableConverter
from calving.errors import ConfigError
from calving.model.coverage import decode_coverage
from calving.model.dead_letters import DeadLetter, Stage
from calving.model.mutations import RowMutations
from calving.model.offsets import TopicPartition
from calving.model.tables import SchemaChange
from calving.records.arrays import Indices, chosen, chosen_rows, compose, without
from calving.records.cells import FullBlockError
from calving.records.fields import name_mapping, table_schema
from calving.records.inferred import of_type
from calving.records.values import RecordError, Values
from calving.source.reading import Block
from calving.tasks.creation import Creation
from calving.tasks.letters import LETTERS, rows_of
from calving.tasks.mutations import TRUNCATE, Conversion, Origin, operations, without_truncates
from calving.tasks.outcome import BlockRun, Outcome
from calving.tasks.spec import TaskSpec
from calving.tasks.timings import Timings
from calving.tasks.writers import Writers
from calving.writing.changes import DELETE, INSERT
from calving.writing.layout import Placed

WHOLE = (
    "the connector has to write whole documents, such as Debezium's for MongoDB with capture.mode ="
    " change_streams_update_full"
)
"""What makes partial updates whole."""


class Delivery:
    """Delivers values to the tables of one task."""

    def __init__(self, spec: TaskSpec, timings: Timings) -> None:
        self._spec, self._timings = spec, timings
        self._converters: dict[str, TableConverter] = {}
        self._conversions: dict[str, Conversion] = {}
        """The conversions of mutation tables."""
        self.writers = Writers(spec)
        self._changes = SchemaChanges(fold=spec.path.evolution.case_insensitive)
        self.creation = Creation(spec)
        coverage_of = {name: decode_coverage(table.held_json) for name, table in spec.tables.items()}
        self._coverage = {name: coverage for name, coverage in coverage_of.items() if coverage}
        self._asked: tuple[Values, RowMutations, pa.Array] | None = None
        """The last values and their operations, cached."""

    @property
    def changes(self) -> list[SchemaChange]:
        return self._changes.list()

    def start(self, block: Block, *, trial: bool = False) -> BlockRun:
        """A run of records of this block. ``trial``: rows are written only in memory, to find bad ones."""
        return BlockRun(block, self._changes, trial)

    def deliver(self, run: BlockRun, tables: Sequence[str], values: Values) -> None:
        """Deliver every value to all tables, or to none: a value that one of the tables cannot take is bad for all.

        A missing table is left out if the settings allow that.
        """
        values = self._objects_only(tables, values, run.outcome)
        if not run.deletes:
            values = self._without_truncates(run, tables, values)
            values = self._whole_only(tables, values, run.outcome)
        if values.content == "truncate":
            self.creation.look_for(run, tables)
            run.outcome.filtered["truncate event"] += len(values)
        else:
            for part in self._parts(tables, values):
                self._divided(run, tables, part)

    def _parts(self, tables: Sequence[str], values: Values) -> list[Values]:
        """The values in parts whose rows do not take too much memory together."""
        parts = [values]
        for table in tables:
            if table in self._spec.tables:
                cells = self._converter(table).cells
                parts = [part.choose(rows) for part in parts for rows in cells.parts(part)]
        return parts

    def _divided(self, run: BlockRun, tables: Sequence[str], values: Values) -> None:
        """Deliver the values, in parts if their rows turn out to take too much memory together."""
        pending = [values]
        while pending:
            part = pending.pop()
            try:
                self._deliver(run, tables, part)
            except FullBlockError:  # raised before anything is delivered
                if len(part) == 1:
                    raise
                half = len(part) // 2
                pending += [part.choose(range(half, len(part))), part.choose(range(half))]

    def _deliver(self, run: BlockRun, tables: Sequence[str], values: Values) -> None:
        spec, outcome = self._spec, run.outcome
        live = [table for table in tables if table in spec.tables]
        absent = [table for table in tables if table in spec.missing and not spec.path.evolution.create]
        if absent and spec.path.routing.missing_table != "skip":
            outcome.bad += _without_table(absent[0], values, fatal=spec.path.routing.missing_table == "fail")
            return
        pending = [table for table in tables if table not in live and table not in absent]
        if pending:
            # First the tables must be loaded or created; then the task runs again. For now, only look for schema
            # changes.
            bad, _ = self._tried(run, live, values)
            outcome.bad += [error.within(values.index) for error in bad.values()]
            values = values.choose(without(len(values), bad))
            self.creation.ask_for(run, pending, values)
        elif live:
            self._to_tables(run, live, values)
        elif len(values):
            outcome.filtered["missing table"] += len(values)

    def _objects_only(self, tables: Sequence[str], values: Values, outcome: Outcome) -> Values:
        """The values that are objects. The others fit no table, and are bad."""
        if isinstance(values.data, list):
            if {*map(type, values.data)} == {dict}:
                return values
            good = [i for i, value in enumerate(values.data) if isinstance(value, dict)]
        elif pa.types.is_struct(values.data.type):
            return values
        else:
            good = []
        if len(good) == len(values):
            return values
        places, kept = values.index, set(good)
        reason = f"table {tables[0]}: {NOT_AN_OBJECT}"
        outcome.bad += [
            RecordError(places[i], Stage.CONVERSION, "UnfitError", reason) for i in range(len(values)) if i not in kept
        ]
        return values.choose(good)

    def _whole_only(self, tables: Sequence[str], values: Values, outcome: Outcome) -> Values:
        """The values, unless they are partial rows and a mutation table would take them for whole ones."""
        known = [table for table in tables if table in self._spec.tables]
        table = next((each for each in known if self._spec.tables[each].mutations is not None), None)
        if values.content != "partial row" or table is None:
            return values
        reason = f"table {table}: the update has only the changed fields, and would empty all others: {WHOLE}"
        outcome.bad += [RecordError(i, Stage.CONVERSION, "PartialUpdateError", reason) for i in values.index]
        return values.choose([])

    def _without_truncates(self, run: BlockRun, tables: Sequence[str], values: Values) -> Values:
        """The values, without events that empty their source: they are not rows."""
        known = [self._spec.tables[table].mutations for table in tables if table in self._spec.tables]
        lacking: dict[str, int] = {}
        for mutations in known:
            if (
                mutations is not None
                and (mutations.cdc_field is not None or values.content == "truncate")
                and len(values)
            ):
                done = self._operations(run, values, mutations)
                if done.null_count:
                    lacking[mutations.cdc_field or ""] = done.null_count
                values = without_truncates(values, done, mutations, run.outcome.bad, run.outcome.filtered)
        run.outcome.unnamed.update(lacking)
        return values

    def _to_tables(self, run: BlockRun, tables: Sequence[str], values: Values) -> None:
        outcome, places = run.outcome, values.index
        held_by = {table: self._held(table, run.block, places) for table in tables}
        held = {table: here for table, here in held_by.items() if here}
        done = set.intersection(*(held_by[table] for table in tables)) if held else set()
        bad = {i: error for i, error in self._write(run, tables, values, held).items() if i not in done}
        outcome.written += len(values) - len(bad) - len(done)
        outcome.bad += [error.within(places) for error in bad.values()]
        if done:
            outcome.filtered["held by its tables"] += len(done)

    def _held(self, table: str, block: Block, places: Indices) -> set[int]:
        """The records, of those at ``places`` of the block, that the table holds already, as indices of ``places``."""
        source = block.source
        spans = self._coverage.get(table, {}).get(TopicPartition(source.topic, source.partition), ())
        if not any(span.start < source.end and source.start < span.end for span in spans):
            return set()
        offsets = enumerate(chosen(block.offsets, places).to_pylist())
        return {i for i, offset in offsets if any(span.start <= offset < span.end for span in spans)}

    def _write(
        self, run: BlockRun, tables: Sequence[str], values: Values, held: Mapping[str, Set[int]]
    ) -> dict[int, RecordError]:
        """Hand the good values to the writers, except records that a table holds already. Returns the bad values, by
        index.
        """
        with self._timings("convert"):
            bad, converted = self._convert(run, tables, values)
        # After a schema change the whole task runs again. So from here on, only look for further schema changes.
        if run.changes:
            return bad
        with self._timings("write"):
            prepared = self._prepare(converted, bad, held, trial=run.trial)
            if not run.trial:
                for table, ready in prepared:
                    self.writers.accept(table, ready)
                self.writers.flush_largest()
        return bad

    def _convert(
        self, run: BlockRun, tables: Sequence[str], values: Values
    ) -> tuple[dict[int, RecordError], list[tuple[str, Converted]]]:
        """The values as rows of every table. Schema changes are requested only for values that no table refuses."""
        bad, converted = self._tried(run, tables, values)
        changes = [change for _, part in converted for change in part.changes]
        if changes and len(tables) > 1 and bad:
            converted = self._convert_some(run, tables, values, without(len(values), bad))
            changes = [change for _, part in converted for change in part.changes]
        for change in changes:
            run.ask(change)
        return bad, converted

    def _tried(
        self, run: BlockRun, tables: Sequence[str], values: Values
    ) -> tuple[dict[int, RecordError], list[tuple[str, Converted]]]:
        """Like ``_convert``, but requests no schema changes."""
        bad: dict[int, RecordError] = {}
        converted = [(table, part) for table in tables for part in self._converted(run, table, values)]
        for _, part in converted:
            for each in part.bad:
                bad.setdefault(each.index, each)
        return bad, converted

    def _convert_some(
        self, run: BlockRun, tables: Sequence[str], values: Values, rows: Indices
    ) -> list[tuple[str, Converted]]:
        if not rows:
            return []
        some = values.choose(rows)
        converted = []
        for table in tables:
            parts = self._converted(run, table, some)
            converted += [(table, replace(each, index=compose(rows, each.index))) for each in parts]
        return converted

    def _converted(self, run: BlockRun, table: str, values: Values) -> list[Converted]:
        """The values as rows; for a mutation table, as changes of rows."""
        converter, mutations = self._converter(table), self._spec.tables[table].mutations
        if mutations is None:
            return [converter.convert(values)]
        origin = Origin.of(run.block, values.index)
        done = pc.fill_null(self._operations(run, values, mutations), INSERT)
        return self._conversions[table].convert(values, done, origin, run.before)

    def _operations(self, run: BlockRun, values: Values, mutations: RowMutations) -> pa.Array:
        """The operation of each value, as ``operations`` returns it. It is used to find truncate events, and again for
        the conversion.
        """
        if run.deletes or values.content == "truncate":
            return pa.repeat(pa.scalar(DELETE if run.deletes else TRUNCATE, pa.int8()), len(values))
        if self._asked is None or self._asked[0] is not values or self._asked[1] != mutations:
            fold = self._spec.path.evolution.case_insensitive
            self._asked = values, mutations, operations(values, mutations, fold=fold)
        return self._asked[2]

    def _prepare(
        self,
        converted: Sequence[tuple[str, Converted]],
        bad: dict[int, RecordError],
        held: Mapping[str, Set[int]],
        *,
        trial: bool,
    ) -> list[tuple[str, Placed]]:
        """The rows, ready to be written. Values that only the writer finds to be wrong are added to ``bad``."""
        while True:
            ready: list[tuple[str, Placed]] = []
            known = len(bad)
            for table, part in converted:
                if part.rows is None:
                    continue
                left_out = {*bad, *held.get(table, ())}
                here = [row for row, i in enumerate(part.index) if i not in left_out] if left_out else part.index
                kept = compose(part.index, here) if left_out else part.index
                rows = part.rows if len(kept) == len(part.index) else chosen_rows(part.rows, here)
                if rows.num_rows:
                    ready += self.writers.prepare(table, rows, kept, bad, trial=trial)
            if len(bad) == known:
                return ready

    def dead_letters(self, letters: Sequence[DeadLetter], block: Block, places: Indices) -> None:
        """Deliver dead letters to the dead-letter table, which is created if it is missing. They are the records at
        ``places`` of the block.
        """
        table = self._spec.path.tolerance.table or ""
        held = self._held(table, block, places)
        letters = [letter for i, letter in enumerate(letters) if i not in held]
        if not letters:
            return
        if table not in self._spec.tables:
            self._changes.add(
                SchemaChange(table, "create", type=of_type(LETTERS))
                if table in self._spec.missing
                else SchemaChange(table, "load")
            )
            return
        converted = self._converter(table).convert(Values(rows_of(letters), True))
        if converted.bad:
            raise ConfigError(f"dead-letter table {table} cannot take dead letters: {converted.bad[0].reason}")
        for change in converted.changes:
            self._changes.add(change)
        if converted.rows is not None and not self._changes:
            self.writers.of(table).write(converted.rows)

    def _converter(self, table: str) -> TableConverter:
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
                    table, schema, evolution, names, limits, spec.moments, partition_names=spec.partition_names
                )
            else:
                conversion = self._conversions[table] = Conversion(spec, evolution, names, limits)
                known = conversion.rows
            self._converters[table] = known
        return known


def _without_table(table: str, values: Values, *, fatal: bool) -> list[RecordError]:
    advice = (
        ": create it, or set iceberg.tables.auto-create-enabled = true, or iceberg.tables.on-missing-table = skip or"
        " dead-letter"
    )
    reason = f"table {table} does not exist{advice if fatal else ''}"
    return [RecordError(i, Stage.ROUTING, "MissingTableError", reason, fatal) for i in values.index]
