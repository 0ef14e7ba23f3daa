"""Reports publications of mutation tables that the order gate has held back for several commits."""

from __future__ import annotations

from collections.abc import Mapping

from calving.model.coverage import lowest_uncovered, merged
from calving.model.events import Place, TableId
from calving.model.offsets import TopicPartition, named
from calving.model.text import counted, listed
from calving.protocol.admission import Admitted
from calving.protocol.waiting import DEGRADED


class Gate:
    """The held-back publications of one coordinator. Several threads may call ``settled``, but one table's
    one by one.
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
            missing = listed(_before(admitted))
            self._waits[table] = f"{late_entries} not committed after {max(late)} commit cycles: {missing} are missing"
        else:
            self._waits.pop(table, None)

    @property
    def waits(self) -> dict[TableId, str]:
        """Tables with entries that several commits in a row have held back, and a sentence that names the missing
        offsets.
        """
        return dict(self._waits)


def _before(admitted: Admitted) -> list[str]:
    """The offsets that must be committed before the held-back entries."""
    starts: dict[TopicPartition, int] = {}
    for entry in admitted.held_back:
        for tp, spans in entry.spans.items():
            starts[tp] = min(starts.get(tp, spans[-1].start), spans[-1].start)
    found = []
    for tp, start in sorted(starts.items()):
        ledger = admitted.ledger
        held = lowest_uncovered(merged((*ledger.held(tp), *ledger.gone.get(tp, ()))))
        if held < start:
            found.append(f"offsets {held} to {start} of {named(tp)}")
    return found or ["earlier records"]
