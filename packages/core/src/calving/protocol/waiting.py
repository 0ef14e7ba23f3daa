"""Derives from the control log which tables have files that are not committed: pure, for every worker.

The coordinator writes a CommitToTable for each table that it has committed, and with each CommitComplete the offsets
that are settled in all tables. A table without a CommitToTable, whose offsets are not settled either, was not committed
in that cycle.
"""

from __future__ import annotations

from calving.model.coverage import Coverage, without
from calving.model.events import CommitComplete, CommitToTable, DataWritten, Envelope, TableId

DEGRADED = 3
"""Cycles after which a table with uncommitted files is DEGRADED. A healthy table needs at most two."""


class OldestPublications:
    """Keeps the oldest uncommitted publication of each table."""

    def __init__(self) -> None:
        self._oldest: dict[TableId, tuple[Coverage, int]] = {}

    def hear(self, envelope: Envelope) -> None:
        """Take in an entry of the control log."""
        match envelope.event:
            case DataWritten(table=table) if envelope.spans:
                self._oldest.setdefault(table.identifier, (envelope.spans, 0))
            case CommitToTable(table=table):
                # The table's publications may stay unsettled for long, because other tables lack their files.
                self._oldest.pop(table.identifier, None)
            case CommitComplete() if envelope.attached.settled:
                self._oldest = {
                    table: (spans, cycles + 1)
                    for table, (spans, cycles) in self._oldest.items()
                    if not settled(spans, envelope.attached.settled)
                }

    @property
    def cycles(self) -> dict[TableId, int]:
        """Tables with uncommitted files; for each the number of cycles that ended without committing the oldest of
        these files.
        """
        return {table: cycles for table, (_, cycles) in self._oldest.items()}

    @property
    def degraded(self) -> dict[TableId, int]:
        """Tables that were not committed for at least three cycles, each with the number of cycles."""
        return {table: cycles for table, (_, cycles) in self._oldest.items() if cycles >= DEGRADED}


def settled(publication: Coverage, done: Coverage) -> bool:
    """Whether ``done`` includes all offsets of a publication."""
    own = ((tp, spans[-1]) for tp, spans in publication.items())
    return not any(without((span,), done.get(tp, ())) for tp, span in own)
