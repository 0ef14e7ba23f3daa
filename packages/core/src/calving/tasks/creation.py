"""The changes that a task asks for if a table is missing: to load it, or to create it from records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from calving.casting.growth import check_new
from calving.casting.schema_changes import SchemaChanges
from calving.model.dead_letters import Stage
from calving.model.tables import SchemaChange
from calving.records.inferred import InferredType, find, folded, of_array, of_type, of_value
from calving.records.values import RecordError, Values
from calving.tasks.spec import TaskSpec


class Creation:
    """The missing tables of one task. A table is created from up to ``inferred_records`` (a limit) records."""

    def __init__(self, spec: TaskSpec, changes: SchemaChanges) -> None:
        self._spec, self._changes = spec, changes
        self._inferred: Counter[str] = Counter()

    def ask_for(self, tables: Sequence[str], values: Values, bad: list[RecordError]) -> int:
        """Tables that were not looked for yet, or that may be created; how many of the values can be in them."""
        unknown = [table for table in tables if table not in self._spec.missing]
        for table in unknown:
            self._changes.add(SchemaChange(table, "load"))
        missing = [table for table in tables if table in self._spec.missing]
        most = self._spec.path.limits.inferred_records
        if all(self._inferred[table] >= most for table in missing):
            return len(values)
        good = 0
        for place, kind in zip(values.index, _types(values), strict=True):
            reasons = {table: why for table in missing if (why := self._uncreatable(table, kind)) is not None}
            barren = next((table for table in reasons if table in self._spec.barren), None)
            if barren is not None:
                bad.append(RecordError(place, Stage.CONVERSION, "UnfitError", f"table {barren}: {reasons[barren]}"))
                continue
            good += 1
            if reasons:
                self._doubt(reasons)
            else:
                self._infer(missing, kind)
        return good

    def look_for(self, tables: Iterable[str]) -> None:
        """What becomes of rows that these tables have is only known once they were looked for, and those that other
        records create are there.
        """
        for table in tables:
            if table in self._spec.tables or table in self._spec.barren:
                continue
            if table not in self._spec.missing:
                self._changes.add(SchemaChange(table, "load"))
            elif self._spec.path.evolution.create and self._spec.id_columns.get(table):
                self._doubt([table])

    def _doubt(self, tables: Iterable[str]) -> None:
        """The record may yet fit the tables that others create."""
        for table in tables:
            self._changes.add(SchemaChange(table, "create"))

    def _infer(self, tables: Iterable[str], kind: InferredType | None) -> None:
        """The tables are to be such that they take this record as well."""
        for table in tables:
            if self._inferred[table] < self._spec.path.limits.inferred_records:
                self._inferred[table] += 1
                self._changes.add(SchemaChange(table, "create", type=kind))

    def _uncreatable(self, table: str, kind: InferredType | None) -> str | None:
        """Why the table cannot be created from a record of this type; None: it can."""
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


def _types(values: Values) -> Iterator[InferredType | None]:
    """The inferred type of each value."""
    if isinstance(values.data, list):
        yield from map(of_value, values.data)
        return
    if values.typed:
        yield from [of_type(values.data.type)] * len(values)
        return
    for i in range(len(values)):
        yield of_array(values.data.slice(i, 1), typed=False)
