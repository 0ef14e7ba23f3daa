"""The schema changes that a task requests for missing tables: to load a table, or to create it from records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from calving.casting.growth import check_new
from calving.casting.seen import seen_of
from calving.model.dead_letters import Stage
from calving.model.tables import SchemaChange
from calving.records.inferred import InferredType, find, folded
from calving.records.values import RecordError, Values
from calving.tasks.kinds import Kind, kinds_of
from calving.tasks.spec import TaskSpec


class Creation:
    """The missing tables of one task. Every record counts for their schemas, whichever task reads it."""

    def __init__(self, spec: TaskSpec, ask: Callable[[SchemaChange], None]) -> None:
        self._spec, self._ask = spec, ask

    def ask_for(self, tables: Sequence[str], values: Values, bad: list[RecordError]) -> int:
        """Request that these tables be loaded, if they were not looked for yet, or be created. Returns how many of the
        values the tables can hold.
        """
        for table in tables:
            if table not in self._spec.missing:
                self._ask(SchemaChange(table, "load"))
        missing = [table for table in tables if table in self._spec.missing]
        if not missing:
            return len(values)
        good = 0
        for kind in kinds_of(values):
            reasons = {table: why for table in missing if (why := self._uncreatable(table, kind.type)) is not None}
            barren = next((table for table in reasons if table in self._spec.barren), None)
            if barren is not None:
                reason = f"table {barren}: {reasons[barren]}"
                bad += [RecordError(values.index[row], Stage.CONVERSION, "UnfitError", reason) for row in kind.rows]
                continue
            good += len(kind.rows)
            if reasons:
                self._doubt(reasons)
            else:
                self._infer(missing, kind, typed=values.typed)
        return good

    def look_for(self, tables: Iterable[str]) -> None:
        """Request these tables. Rows for them are converted once the tables are loaded, or are created because of other
        records.
        """
        for table in tables:
            if table in self._spec.tables or table in self._spec.barren:
                continue
            if table not in self._spec.missing:
                self._ask(SchemaChange(table, "load"))
            elif self._spec.path.evolution.create and self._spec.id_columns.get(table):
                self._doubt([table])

    def _doubt(self, tables: Iterable[str]) -> None:
        """Request the tables without a schema: the record may fit the tables that other records create."""
        for table in tables:
            self._ask(SchemaChange(table, "create"))

    def _infer(self, tables: Iterable[str], kind: Kind, *, typed: bool) -> None:
        """Request the tables with schemas that can hold these records, too."""
        fold = self._spec.path.evolution.case_insensitive
        for table in tables:
            if typed:
                self._ask(SchemaChange(table, "create", type=kind.type))
            else:
                seen = seen_of(folded(kind.type) if fold else kind.type, len(kind.rows), kind.value)
                self._ask(SchemaChange(table, "create", seen=seen))

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
