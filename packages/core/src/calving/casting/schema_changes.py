"""Merges the schema changes that many records or tasks request."""

from __future__ import annotations

from collections.abc import Iterable

from calving.casting.type_counts import join
from calving.model.tables import SchemaChange
from calving.records.inferred import folded, merge


class SchemaChanges(dict[tuple[str, str, tuple[str, ...]], SchemaChange]):
    """One change for each column and kind of change. Types merge to the narrowest type that holds all, and counts add
    up.
    """

    def __init__(self, changes: Iterable[SchemaChange] = (), *, fold: bool = False) -> None:
        """``fold``: names that differ only by case are one name."""
        super().__init__()
        self._fold = fold
        for change in changes:
            self.add(change)

    def add(self, change: SchemaChange) -> None:
        path = tuple(name.lower() for name in change.path) if self._fold else change.path
        key = (change.table, change.kind, path)
        known = self.get(key)
        kind = change.type if known is None else merge(known.type, change.type)
        spelt = change.path if known is None else min(change.path, known.path)
        seen = None if known is None else known.seen
        if change.seen is not None:
            seen = {"kinds": {}} if seen is None else seen
            join(seen, change.seen, fold=self._fold)
        self[key] = SchemaChange(change.table, change.kind, spelt, folded(kind) if self._fold else kind, seen)

    def copy(self) -> SchemaChanges:
        """The same changes, to which others can be added."""
        return SchemaChanges(self.values(), fold=self._fold)
