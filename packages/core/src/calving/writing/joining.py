"""Joins the partial changes of a batch with the changes of their keys before them (rule M15)."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from calving.model.tables import TableSpec
from calving.records.fields import table_schema
from calving.writing.changes import DELETE, KEPT, OFFSET, OPERATION, SOURCE, Identity, is_operation, rows_of, run_of
from calving.writing.kept_columns import ROOTLESS
from calving.writing.key_runs import KeyRuns, numbered
from calving.writing.partial_rows import PartialRows


class ChangeJoiner:
    """The joiner of one mutation table: the last change of a key then says all that the batch tells of its row."""

    def __init__(self, table: TableSpec, identity: Identity) -> None:
        self._identity = identity
        self._rows = PartialRows(table_schema(table.schema_json))
        self._removes = table.mutations is not None and table.mutations.delete_mode == "hard"

    def joined(self, changes: Sequence[pa.RecordBatch]) -> Sequence[pa.RecordBatch]:
        """The changes, and of each key whose last change is partial only one."""
        if all(part.column(KEPT).null_count == part.num_rows for part in changes):
            return changes
        whole = pa.concat_batches(changes)
        if run_of(whole) is None:
            places = pa.table({SOURCE: whole.column(SOURCE), OFFSET: whole.column(OFFSET)})
            whole = whole.take(pc.sort_indices(places, sort_keys=[(SOURCE, "ascending"), (OFFSET, "ascending")]))
        numbers = numbered([column.of(whole) for column in self._identity.columns])
        runs = KeyRuns.of(numbers)
        if len(runs.ends) == len(numbers):
            return [whole]
        if not whole.column(KEPT).null_count:
            return [self._joined(whole, runs)]
        is_last = runs.are_last
        partial = numbers.filter(pc.and_(is_last, whole.column(KEPT).is_valid()))
        concerned = pc.and_(
            pc.is_in(numbers, value_set=numbers.filter(pc.invert(is_last))), pc.is_in(numbers, value_set=partial)
        )
        if not pc.any(concerned, min_count=0).as_py():
            return [whole]
        joined = self._joined(whole.filter(concerned), KeyRuns.of(numbers.filter(concerned)))
        return [whole.filter(pc.invert(concerned)), joined]

    def _joined(self, changes: pa.RecordBatch, runs: KeyRuns) -> pa.RecordBatch:
        """One change of each key."""
        kept = self._kept(changes, runs) if self._removes else changes.column(KEPT)
        made = self._rows.join(rows_of(changes), runs, kept)
        marks = [changes.column(name).take(made.last) for name in (OPERATION, SOURCE, OFFSET)]
        return pa.RecordBatch.from_arrays([*made.rows.columns, *marks, made.kept], schema=changes.schema)

    def _kept(self, changes: pa.RecordBatch, runs: KeyRuns) -> pa.Array:
        """The columns that each row lacks. A partial row right behind a delete of its key has no row before it."""
        kept, order, ordered = changes.column(KEPT), runs.order, runs.numbers
        gone = is_operation(changes.column(OPERATION), DELETE).take(order)
        if not pc.any(gone).as_py():
            return kept
        most = len(order) - 1
        follows = pc.and_(pc.equal(ordered.slice(1), ordered.slice(0, most)), gone.slice(0, most))
        behind = order.slice(1).filter(follows)
        is_behind = pc.is_in(pa.arange(0, len(kept)), value_set=behind)
        rootless = pc.binary_join_element_wise(ROOTLESS, kept, " ")
        return pc.if_else(pc.and_(is_behind, kept.is_valid()), rootless, kept)
