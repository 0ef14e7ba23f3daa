"""What the order gate holds back for long: publications of mutation tables whose earlier records do not come."""

from __future__ import annotations

from collections.abc import Mapping

from calving.model.coverage import lowest_uncovered, merged
from calving.model.events import Place, TableId
from calving.model.offsets import TopicPartition, named
from calving.model.text import counted, listed
from calving.protocol.admission import Admitted
from calving.protocol.waiting import DEGRADED


class Gate:
    """Of one coordinator. Tables may be told from several threads, each table from one at a time."""

    def __init__(self) -> None:
        self._commits: dict[TableId, Mapping[Place, int]] = {}
        self._waits: dict[TableId, str] = {}

    def settled(self, table: TableId, admitted: Admitted) -> None:
        """A commit of the table has settled."""
        before = self._commits.get(table, {})
        self._commits[table] = now = {e.place: before.get(e.place, 0) + 1 for e in admitted.held_back}
        late = [count for count in now.values() if count >= DEGRADED]
        if late:
            waits = f"{counted(len(late), 'entry', 'entries')} waited for {max(late)} commit cycles"
            self._waits[table] = f"{waits} until {listed(_before(admitted))} are published"
        else:
            self._waits.pop(table, None)

    @property
    def waits(self) -> dict[TableId, str]:
        """Tables with entries that were held back in several commits in a row, and what these wait for."""
        return dict(self._waits)


def _before(admitted: Admitted) -> list[str]:
    """The records that have to come first."""
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
