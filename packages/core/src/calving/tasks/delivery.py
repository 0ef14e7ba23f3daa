"""Delivers routed values to tables: converts the values, collects the schema changes that they need, and hands rows to
the writers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa

from calving.casting.schema_changes import SchemaChanges
from calving.casting.table import NOT_AN_OBJECT, Converted, TableConverter
from calving.errors import ConfigError
from calving.model.coverage import decode_coverage
from calving.model.dead_letters import DeadLetter, Stage
from calving.model.mutations import RowMutations
from calving.model.offsets import TopicPartition
from calving.model.tables import SchemaChange
from calving.records.arrays import take
from calving.records.fields import name_mapping, table_schema
from calving.records.indices import Indices, compose, without
from calving.records.inferred import of_type
from calving.records.values import RecordError, Values
from calving.source.reading import Block
from calving.tasks.creation import Creation
from calving.tasks.letters import LETTERS, rows_of
from calving.tasks.mutations import TRUNCATE, Conversion, Origin, operations, without_truncates
from calving.tasks.outcome import Outcome
from calving.tasks.spec import TaskSpec
from calving.tasks.timings import Timings
from calving.tasks.writers import Writers
from calving.writing.changes import DELETE
from calving.writing.layout import Placed


class Delivery:
    """Delivers values to the tables of one task."""

    def __init__(self, spec: TaskSpec, timings: Timings) -> None:
        self._spec, self._timings = spec, timings
        self._converters: dict[str, TableConverter] = {}
        self._conversions: dict[str, Conversion] = {}
        """The conversions of mutation tables."""
        self.writers = Writers(spec)
        self._changes = SchemaChanges(fold=spec.path.evolution.case_insensitive)
        self.creation = Creation(spec, self._ask)
        found = {name: decode_coverage(table.held_json) for name, table in spec.tables.items()}
        self._coverage = {name: coverage for name, coverage in found.items() if coverage}
        self._held: dict[str, set[int]] = {}
        """By table: the places in the block whose records the table holds already."""
        self._rehearsing = self._deleting = False
        self._block: Block | None = None
        self._asked: tuple[Values, RowMutations, pa.Array] | None = None
        """The last values and their operations, cached."""

    def _ask(self, change: SchemaChange) -> None:
        if not self._rehearsing:  # tried records request changes again when they are delivered, and then count
            self._changes.add(change)

    @property
    def changes(self) -> list[SchemaChange]:
        return self._changes.list()

    @contextmanager
    def rehearsal(self) -> Iterator[None]:
        """Within this context, rows are written only in memory, to find bad ones."""
        self._rehearsing = True
        try:
            yield
        finally:
            self._rehearsing = False

    def begin(self, block: Block) -> None:
        """Values of this block come next."""
        self._held, self._block = {}, block
        source = block.source
        for table, coverage in self._coverage.items():
            spans = coverage.get(TopicPartition(source.topic, source.partition), ())
            if any(span.start < source.end and source.start < span.end for span in spans):
                offsets = enumerate(block.offsets.to_pylist())
                self._held[table] = {i for i, o in offsets if any(s.start <= o < s.end for s in spans)}

    def deliver(self, tables: Sequence[str], values: Values, outcome: Outcome, *, deletes: bool = False) -> None:
        """Deliver every value to all tables, or to none: a value that one of the tables cannot take is bad for all. The
        values are added to ``outcome``.

        A missing table is left out if the settings allow that. ``deletes``: the values are keys of rows to delete.
        """
        self._deleting = deletes
        values = self._objects_only(tables, values, outcome)
        if not deletes:
            values = self._without_truncates(tables, values, outcome)
        if values.rowless:
            self.creation.look_for(tables)
            outcome.filtered["truncate event"] += len(values)
        else:
            self._deliver(tables, values, outcome)

    def _deliver(self, tables: Sequence[str], values: Values, outcome: Outcome) -> None:
        spec = self._spec
        live = [table for table in tables if table in spec.tables]
        absent = [table for table in tables if table in spec.missing and not spec.path.evolution.create]
        if absent and spec.path.routing.missing_table != "skip":
            outcome.bad += _without_table(absent[0], values, fatal=spec.path.routing.missing_table == "fail")
            return
        pending = [table for table in tables if table not in live and table not in absent]
        if pending:
            # First the tables must be loaded or created; then the task runs again. For now, only look for schema
            # changes.
            bad, _ = self._tried(live, values)
            outcome.bad += [replace(b, index=values.index[b.index]) for b in bad.values()]
            values = values.choose(without(len(values), bad))
            outcome.written += self.creation.ask_for(pending, values, outcome.bad)
        elif live:
            self._to_tables(live, values, outcome)
        elif len(values):
            outcome.filtered["missing table"] += len(values)

    def _objects_only(self, tables: Sequence[str], values: Values, outcome: Outcome) -> Values:
        """The values that are objects. The others fit no table, and are bad."""
        if isinstance(values.data, list):
            if {*map(type, values.data)} == {dict}:
                return values
            good = [i for i, value in enumerate(values.data) if isinstance(value, dict)]
        else:
            good = list(range(len(values))) if pa.types.is_struct(values.data.type) else []
        if len(good) == len(values):
            return values
        places, kept = values.index, set(good)
        reason = f"table {tables[0]}: {NOT_AN_OBJECT}"
        outcome.bad += [
            RecordError(places[i], Stage.CONVERSION, "UnfitError", reason) for i in range(len(values)) if i not in kept
        ]
        return values.choose(good)

    def _without_truncates(self, tables: Sequence[str], values: Values, outcome: Outcome) -> Values:
        """The values, without events that empty their source: they are not rows."""
        known = [self._spec.tables[table].mutations for table in tables if table in self._spec.tables]
        for mutations in known:
            if mutations is not None and (mutations.cdc_field is not None or values.rowless) and len(values):
                done = self._operations(values, mutations)
                values = without_truncates(values, done, mutations, outcome.bad, outcome.filtered)
        return values

    def _to_tables(self, tables: Sequence[str], values: Values, outcome: Outcome) -> None:
        places = values.index
        held = {
            table: {i for i, place in enumerate(places) if place in self._held[table]}
            for table in tables
            if table in self._held
        }
        done = set.intersection(*(held.get(table, set()) for table in tables)) if held else set()
        bad = {i: found for i, found in self._write(tables, values, held).items() if i not in done}
        outcome.written += len(values) - len(bad) - len(done)
        outcome.bad += [replace(b, index=places[b.index]) for b in bad.values()]
        if done:
            outcome.filtered["held by its tables"] += len(done)

    def _write(self, tables: Sequence[str], values: Values, held: Mapping[str, Set[int]]) -> dict[int, RecordError]:
        """Hand the good values to the writers, except records that a table holds already. Returns the bad values, by
        index.
        """
        with self._timings("convert"):
            bad, converted = self._convert(tables, values)
        # After a schema change the whole task runs again. So from here on, only look for further schema changes.
        if self._changes:
            return bad
        with self._timings("write"):
            prepared = self._prepare(converted, bad, held, len(values))
            if not self._rehearsing:
                for table, ready in prepared:
                    self.writers.accept(table, ready)
                self.writers.flush_largest()
        return bad

    def _convert(
        self, tables: Sequence[str], values: Values
    ) -> tuple[dict[int, RecordError], list[tuple[str, Converted]]]:
        """The values as rows of every table. Schema changes are requested only for values that no table refuses."""
        bad, converted = self._tried(tables, values)
        changes = [change for _, found in converted for change in found.changes]
        if changes and len(tables) > 1 and bad:
            converted = self._convert_some(tables, values, without(len(values), bad))
            changes = [change for _, found in converted for change in found.changes]
        for change in changes:
            self._ask(change)
        return bad, converted

    def _tried(
        self, tables: Sequence[str], values: Values
    ) -> tuple[dict[int, RecordError], list[tuple[str, Converted]]]:
        """Like ``_convert``, but requests no schema changes."""
        bad: dict[int, RecordError] = {}
        converted = [(table, found) for table in tables for found in self._converted(table, values)]
        for _, found in converted:
            for each in found.bad:
                bad.setdefault(each.index, each)
        return bad, converted

    def _convert_some(self, tables: Sequence[str], values: Values, chosen: Indices) -> list[tuple[str, Converted]]:
        if not chosen:
            return []
        some = values.choose(chosen)
        converted = []
        for table in tables:
            found = self._converted(table, some)
            converted += [(table, replace(each, index=compose(chosen, each.index))) for each in found]
        return converted

    def _converted(self, table: str, values: Values) -> list[Converted]:
        """The values as rows; for a mutation table, as changes of rows."""
        converter, mutations = self._converter(table), self._spec.tables[table].mutations
        if mutations is None:
            return [converter.convert(values)]
        assert self._block is not None  # noqa: S101 - values are those of a block
        origin = Origin.of(self._block, values.index)
        return self._conversions[table].convert(values, self._operations(values, mutations), origin)

    def _operations(self, values: Values, mutations: RowMutations) -> pa.Array:
        """The operation of each value. It is used to find truncate events, and again for the conversion."""
        if self._deleting or values.rowless:
            return pa.repeat(pa.scalar(DELETE if self._deleting else TRUNCATE, pa.int8()), len(values))
        if self._asked is None or self._asked[0] is not values or self._asked[1] != mutations:
            self._asked = values, mutations, operations(values, mutations)
        return self._asked[2]

    def _prepare(
        self,
        converted: Sequence[tuple[str, Converted]],
        bad: dict[int, RecordError],
        held: Mapping[str, Set[int]],
        count: int,
    ) -> list[tuple[str, Placed]]:
        """The rows, ready to be written. Values that only the writer finds to be wrong are added to ``bad``."""
        while True:
            ready: list[tuple[str, Placed]] = []
            known = len(bad)
            for table, found in converted:
                if found.rows is None:
                    continue
                left_out = {*bad, *held.get(table, ())}
                here = [row for row, i in enumerate(found.index) if i not in left_out] if left_out else found.index
                kept = compose(found.index, here) if left_out else found.index
                rows = found.rows if len(kept) == len(found.index) else _rows(found.rows, here)
                if rows.num_rows:
                    ready += self.writers.prepare(table, rows, kept, bad, trial=self._rehearsing)
            if len(bad) == known:
                return ready

    def dead_letters(self, letters: Sequence[DeadLetter], places: Sequence[int]) -> None:
        """Deliver dead letters to the dead-letter table, which is created if it is missing. ``places``: their places in
        the block.
        """
        table = self._spec.path.tolerance.table or ""
        held = self._held.get(table, ())
        letters = [letter for letter, place in zip(letters, places, strict=True) if place not in held]
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
        found = self._converters.get(table)
        if found is None:
            spec = self._spec.tables[table]
            schema = table_schema(spec.schema_json)
            names = name_mapping(spec.properties)
            evolution, limits = self._spec.path.evolution, self._spec.path.limits
            if spec.mutations is None:
                found = TableConverter(table, schema, evolution, names, limits)
            else:
                conversion = self._conversions[table] = Conversion(spec, evolution, names, limits)
                found = conversion.rows
            self._converters[table] = found
        return found


def _without_table(table: str, values: Values, *, fatal: bool) -> list[RecordError]:
    advice = (
        ": create it, or set iceberg.tables.auto-create-enabled = true, or iceberg.tables.on-missing-table = skip or"
        " dead-letter"
    )
    reason = f"table {table} does not exist{advice if fatal else ''}"
    return [RecordError(i, Stage.ROUTING, "MissingTableError", reason, fatal) for i in values.index]


def _rows(rows: pa.RecordBatch, chosen: Indices) -> pa.RecordBatch:
    indices = pa.array(chosen, pa.int32())
    return pa.RecordBatch.from_arrays([take(column, indices) for column in rows.columns], schema=rows.schema)
