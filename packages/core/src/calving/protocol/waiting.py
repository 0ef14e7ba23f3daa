"""Which tables have files that wait, as anybody can tell who hears the control log: pure.

The coordinator tells which tables it has committed, and with every CommitComplete which records are settled in all of
them. A table that neither is true of was not committed in that cycle.
"""

from __future__ import annotations

from calving.model.coverage import Coverage, without
from calving.model.events import CommitComplete, CommitToTable, DataWritten, Envelope, TableId
from calving.model.offsets import Span

DEGRADED = 3
"""Cycles after which a table counts as one that cannot be committed: two are enough when all is well."""


class Waiting:
    """Of each table only the oldest publication that waits is kept."""

    def __init__(self) -> None:
        self._oldest: dict[TableId, tuple[Coverage, int]] = {}

    def hear(self, envelope: Envelope) -> None:
        """An entry of the control log."""
        match envelope.event:
            case DataWritten(table=table) if envelope.spans:
                self._oldest.setdefault(table.identifier, (envelope.spans, 0))
            case CommitToTable(table=table):
                # Its publications may not be settled for long, because of what they hold for other tables.
                self._oldest.pop(table.identifier, None)
            case CommitComplete() if envelope.attached.settled:
                self._oldest = {
                    table: (spans, cycles + 1)
                    for table, (spans, cycles) in self._oldest.items()
                    if not settled(spans, envelope.attached.settled)
                }

    @property
    def cycles(self) -> dict[TableId, int]:
        """Tables with files that wait, and how many cycles have ended without the oldest of them."""
        return {table: cycles for table, (_, cycles) in self._oldest.items()}

    @property
    def degraded(self) -> dict[TableId, int]:
        """Tables that were not committed for several cycles, and how many."""
        return {table: cycles for table, (_, cycles) in self._oldest.items() if cycles >= DEGRADED}


def settled(publication: Coverage, done: Coverage) -> bool:
    """Whether all that a publication covers is ``done``."""
    own = ((tp, spans[-1]) for tp, spans in publication.items())
    return not any(without((_plain(span),), done.get(tp, ())) for tp, span in own)


def _plain(span: Span) -> Span:
    return span if span.start <= span.end else Span(0, span.end)
