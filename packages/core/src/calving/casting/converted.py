"""Values as rows of one table: the outcome of a conversion."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from calving.model.tables import SchemaChange
from calving.records.arrays import Indices, compose, numbers, take
from calving.records.values import RecordError


@dataclass(slots=True)
class Converted:
    """Rows in the table's Arrow schema, with their indices among the values; values that do not fit; schema changes.

    With schema changes there are no rows: the values are converted again after the table has changed.
    """

    rows: pa.RecordBatch | None
    index: Indices
    """The index of each row's value."""
    bad: list[RecordError] = field(default_factory=list)
    changes: list[SchemaChange] = field(default_factory=list)

    def with_others(self, others: Converted, places: Indices) -> Converted:
        """This conversion, with another one for the bad values at these places."""
        gone = {*places}
        bad = [error for error in self.bad if error.index not in gone]
        bad = sorted([*bad, *(error.within(places) for error in others.bad)], key=lambda error: error.index)
        changes = [*self.changes, *others.changes]
        if changes or self.rows is None or others.rows is None:
            return Converted(None, [], bad, changes)
        index = [*self.index, *compose(places, others.index)]
        order = sorted(range(len(index)), key=index.__getitem__)
        pairs = zip(self.rows.columns, others.rows.columns, strict=True)
        columns = [take(pa.concat_arrays(pair), numbers(order)) for pair in pairs]
        rows = pa.RecordBatch.from_arrays(columns, schema=self.rows.schema)
        return Converted(rows, [index[place] for place in order], bad)


TableRows = tuple[str, Converted]
"""Rows, and the name of their table."""
