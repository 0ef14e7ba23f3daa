"""What schema changes of source tables ask of the target tables. No record waits for them, and none is bad for them."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from calving.casting.evolution import UnfitError
from calving.casting.source_columns import SourceColumns
from calving.model.tables import SchemaChange
from calving.records.arrays import children_of
from calving.records.values import Records, texts
from calving.tasks.cast import Caster
from calving.tasks.route import Router
from calving.tasks.selection import Accounts
from calving.tasks.spec import TaskSpec


class SourceTables:
    """The source tables of one task."""

    def __init__(self, spec: TaskSpec, router: Router, cast: Caster) -> None:
        self._spec, self._router, self._cast = spec, router, cast
        self._known: dict[str, SourceColumns] = {}

    def follow(self, records: Records, accounts: Accounts) -> None:
        """Request what these columns, or a renamed column, need. They go to the tables to which the rows of their
        source table go.
        """
        if not isinstance(records.value, pa.StructArray):
            return  # a transform has made something else of rows
        columns = [
            field
            for field, column in zip(records.value.type, children_of(records.value), strict=True)
            if column.null_count == len(column)  # the others are what transforms have added
        ]
        for table in self._tables(records):
            if table in self._spec.tables:
                self._follow(table, columns, records.content == "renamed column", accounts)
            elif table not in self._spec.missing and table not in self._spec.refused:
                accounts.changes.add(SchemaChange(table, "load"))

    def _tables(self, records: Records) -> Iterator[str]:
        if self._router.field is not None:
            routes = [*self._router.by_field(texts(records.value, self._router.field))]
        else:
            routes = [*map(self._router.by_topic, records.topic.unique().to_pylist())]
        for tables in routes:
            if self._router.mistake(tables) is None:
                yield from tables

    def _follow(self, table: str, columns: list[pa.Field], is_renamed: bool, accounts: Accounts) -> None:
        source = self._source(table)
        pending = [each.path for each in accounts.changes.values() if (each.table, each.kind) == (table, "rename")]
        if not is_renamed:
            for change in source.changes(pa.struct(columns), pending):
                if isinstance(change, UnfitError):
                    _warn(accounts, table, "the source has a column that the table cannot have", change)
                else:
                    accounts.changes.add(change)
        elif len(columns) == 2:  # a transform may leave one of them out
            former, new = (column.name for column in columns)
            try:
                renamed = source.renamed(former, new, pending)
                if renamed is not None:
                    accounts.changes.add(renamed)
            except UnfitError as error:
                _warn(accounts, table, f"the source has renamed '{former}' to '{new}', and the table has not", error)

    def _source(self, table: str) -> SourceColumns:
        known = self._known.get(table)
        if known is None:
            path, target = self._spec.path, self._cast.converter(table).target
            known = SourceColumns(self._spec.tables[table], path.evolution, path.limits, target)
            self._known[table] = known
        return known


def _warn(accounts: Accounts, table: str, what: str, why: UnfitError) -> None:
    accounts.warnings[f"table {table}: {what}: {why}"] = None
