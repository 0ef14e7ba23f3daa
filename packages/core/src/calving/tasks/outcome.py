"""One run of records of a block to the tables, and what becomes of these records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from calving.casting.schema_changes import SchemaChanges
from calving.model.tables import SchemaChange
from calving.records.values import RecordError, Values
from calving.source.reading import Block


@dataclass(slots=True)
class Outcome:
    """Every record of a block has exactly one outcome: written, filtered by a named cause, or bad. The indices of
    ``bad`` are places in the block.
    """

    written: int = 0
    filtered: Counter[str] = field(default_factory=Counter)
    bad: list[RecordError] = field(default_factory=list)
    unnamed: Counter[str] = field(default_factory=Counter)
    """Records of mutation tables that name no operation, by the field that they lack."""


@dataclass(frozen=True, slots=True)
class BlockRun:
    """One run of records of a block. All steps add to ``outcome`` and to ``changes``, the schema changes of the task.

    ``trial``: rows are written only in memory, to find bad ones. ``deletes``: the values are keys of rows to delete.
    ``before``: before images of some of the values, which have the same places in the block.
    """

    block: Block
    changes: SchemaChanges
    trial: bool = False
    deletes: bool = False
    before: Sequence[Values] = ()
    outcome: Outcome = field(default_factory=Outcome)

    def ask(self, change: SchemaChange) -> None:
        """Request a schema change."""
        if not self.trial:  # tried records request changes again when they are delivered, and then count
            self.changes.add(change)

    def of_deletes(self) -> BlockRun:
        """The same run, for keys of rows to delete."""
        return replace(self, deletes=True)

    def beside(self, before: Sequence[Values]) -> BlockRun:
        """The same run, for values with these before images."""
        return replace(self, before=before)
