"""Columns that the sink fills itself: without them, a mutation table takes no row."""

from __future__ import annotations

from collections.abc import Sequence

from calving.casting.converted import Converted
from calving.model.dead_letters import Stage
from calving.model.tables import SchemaChange, TableSpec
from calving.records.values import RecordError


class OwnColumns:
    """The schema changes that one table needs for them, maybe none."""

    def __init__(self, table: TableSpec, changes: Sequence[SchemaChange]) -> None:
        self._changes = [*changes]
        refused = {(each.kind, each.path): each.reason for each in table.refused}
        reasons = ((each.path[0], refused.get((each.kind, each.path))) for each in changes)
        found = (f"table {table.name}: field '{name}': {why}" for name, why in reasons if why is not None)
        self._why = next(found, None)
        """Why one of the changes cannot be made; None if all can."""

    def asked_for(self, count: int) -> Converted | None:
        """What becomes of so many values while a change is needed: they wait for it, or are bad if it cannot be made;
        None if no change is needed.
        """
        if not self._changes:
            return None
        if self._why is None:
            return Converted(None, [], [], self._changes)
        return Converted(None, [], [RecordError(i, Stage.CONVERSION, "UnfitError", self._why) for i in range(count)])
