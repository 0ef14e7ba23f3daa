"""The schema changes that a task requests for missing tables: to load a table, or to create it from records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from calving.casting.growth import check_new
from calving.casting.seen import seen_of
from calving.model.dead_letters import Stage
from calving.model.tables import SchemaChange
from calving.records.inferred import InferredType, find, folded
from calving.records.values import RecordError, Values
from calving.tasks.kinds import Kind, kinds_of
from calving.tasks.outcome import BlockRun
from calving.tasks.spec import TaskSpec


class Creation:
    """The missing tables of one task. Every record counts for their schemas, whichever task reads it."""

    def __init__(self, spec: TaskSpec) -> None:
        self._spec = spec

    def ask_for(self, run: BlockRun, tables: Sequence[str], values: Values) -> None:
        """Request that these tables be loaded, if they were not looked for yet, or be created. Values that the tables
        can hold count as written.
        """
        for table in tables:
            if table not in self._spec.missing:
                run.ask(SchemaChange(table, "load"))
        missing = [table for table in tables if table in self._spec.missing]
        if not missing:
            run.outcome.written += len(values)
            return
        for kind in kinds_of(values):
            reasons = {table: why for table in missing if (why := self._uncreatable(table, kind.type)) is not None}
            barren = next((table for table in reasons if table in self._spec.barren), None)
            if barren is not None:
                reason = f"table {barren}: {reasons[barren]}"
                run.outcome.bad += [
                    RecordError(values.index[row], Stage.CONVERSION, "UnfitError", reason) for row in kind.rows
                ]
                continue
            run.outcome.written += len(kind.rows)
            if reasons:
                _doubt(run, reasons)
            else:
                self._infer(run, missing, kind, typed=values.typed)

    def look_for(self, run: BlockRun, tables: Iterable[str]) -> None:
        """Request these tables. Rows for them are converted once the tables are loaded, or are created because of other
        records.
        """
        for table in tables:
            if table in self._spec.tables or table in self._spec.barren:
                continue
            if table not in self._spec.missing:
                run.ask(SchemaChange(table, "load"))
            elif self._spec.path.evolution.create and self._spec.id_columns.get(table):
                _doubt(run, [table])

    def _infer(self, run: BlockRun, tables: Iterable[str], kind: Kind, *, typed: bool) -> None:
        """Request the tables with schemas that can hold these records, too."""
        fold = self._spec.path.evolution.case_insensitive
        for table in tables:
            if typed:
                run.ask(SchemaChange(table, "create", type=kind.type))
            else:
                seen = seen_of(folded(kind.type) if fold else kind.type, len(kind.rows), kind.value)
                run.ask(SchemaChange(table, "create", seen=seen))

    def _uncreatable(self, table: str, kind: InferredType | None) -> str | None:
        """The reason why the table cannot be created from a record of this type; None if it can be created."""
        fold = self._spec.path.evolution.case_insensitive
        kind = folded(kind) if fold else kind
        for column in self._spec.id_columns.get(table, ()):
            _, found = find(kind, column, str.lower if fold else str) or ((), None)
            if found is None:
                return f"the record has no value for the id-column '{column}'"
            if column in self._spec.declared.get(table, ()):
                continue
            if not isinstance(found, str) or found in ("float", "double"):
                return f"the id-column '{column}' cannot hold what the record has there: a fraction, or several values"
        if kind is None:
            return "it does not exist, and the record has no field with a value to create it from"
        try:
            check_new(kind, self._spec.path.limits, fold)
        except ValueError as error:
            return str(error)
        return None


def _doubt(run: BlockRun, tables: Iterable[str]) -> None:
    """Request the tables without a schema: the record may fit the tables that other records create."""
    for table in tables:
        run.ask(SchemaChange(table, "create"))
