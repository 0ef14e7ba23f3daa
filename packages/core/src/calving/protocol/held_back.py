"""What tables lack: publications that wait for their commit, and records that these publications wait for.

Which tables have files that are not committed, every worker derives from the control log. The coordinator writes a
CommitToTable for each table that it has committed, and with each CommitComplete the offsets that are settled in all
tables. A table without a CommitToTable, whose offsets are not settled either, was not committed in that cycle. Which
publications the order gate of mutation tables holds back, the coordinator itself knows from its commits.
"""

from __future__ import annotations

from collections.abc import Mapping

from calving.model.events import CommitComplete, CommitToTable, DataWritten, Envelope, Place, TableId
from calving.model.offsets import Coverage, Span, TopicPartition, common, merged, text_of, without
from calving.model.text import counted
from calving.protocol.commit import Admitted
from calving.protocol.ledger import Ledger, SourceProgress

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


class Gate:
    """The held-back publications of one coordinator. Several threads may call ``settled``, but for one table only one
    at a time.
    """

    def __init__(self) -> None:
        self._commits: dict[TableId, Mapping[Place, int]] = {}
        self._waits: dict[TableId, str] = {}

    def settled(self, table: TableId, admitted: Admitted) -> None:
        """Count one more commit of the table, with the entries that it held back."""
        before = self._commits.get(table, {})
        self._commits[table] = now = {e.place: before.get(e.place, 0) + 1 for e in admitted.held_back}
        late = [count for count in now.values() if count >= DEGRADED]
        if late:
            late_entries = counted(len(late), "entry is", "entries are")
            missing = text_of(_missing(admitted))
            self._waits[table] = f"{late_entries} not committed after {max(late)} commit cycles: {missing} are missing"
        else:
            self._waits.pop(table, None)

    @property
    def waits(self) -> dict[TableId, str]:
        """Tables with entries that several commits in a row have held back; each with a sentence that names the missing
        offsets.
        """
        return dict(self._waits)


def waiting(admitted: Admitted) -> str:
    """A sentence on the entries that a commit held back, and on the offsets that these entries wait for."""
    entries = counted(len(admitted.held_back), "entry waits", "entries wait")
    return f"{entries} for earlier records: {text_of(_missing(admitted))}"


def _missing(admitted: Admitted) -> Coverage:
    """The offsets before the held-back entries that no publication has covered yet."""
    ends: dict[TopicPartition, int] = {}
    for entry in admitted.held_back:
        for tp in entry.spans.keys() - admitted.progress.restarted.keys():
            ends[tp] = max(ends.get(tp, 0), entry.spans[tp][-1].start)
    ledger, covered = admitted.ledger, admitted.progress.covered
    known = {tp: merged((*ledger.held(tp), *ledger.gone.get(tp, ()), *covered.get(tp, ()))) for tp in ends}
    missing = {tp: without((Span(0, end),), known[tp]) for tp, end in ends.items()}
    return {tp: spans for tp, spans in missing.items() if spans}


def passed_over(ledger: Ledger, progress: SourceProgress) -> Coverage:
    """Missing offsets below the end of the offsets that have been read: a later publication of the same partition was
    read. Offsets that a rollback removed are left out, because they were not passed over.
    """
    missing = {tp: without(holes, ledger.gone.get(tp, ())) for tp, holes in ledger.missing.items()}
    unread = {tp: common(holes, _heard(progress.covered.get(tp, ()))) for tp, holes in missing.items()}
    return {tp: spans for tp, spans in unread.items() if spans}


def _heard(covered: tuple[Span, ...]) -> tuple[Span, ...]:
    return (Span(0, covered[-1].end),) if covered else ()
