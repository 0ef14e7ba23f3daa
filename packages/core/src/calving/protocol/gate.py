"""Says which publications of mutation tables the order gate holds back, and which records these publications wait
for.
"""

from __future__ import annotations

from collections.abc import Mapping

from calving.model.coverage import Coverage, merged, text_of, without
from calving.model.events import Place, TableId
from calving.model.offsets import Span, TopicPartition
from calving.model.text import counted
from calving.protocol.admission import Admitted
from calving.protocol.waiting import DEGRADED


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
