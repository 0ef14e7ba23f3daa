"""How far the tables were when the coordinator last saw them, so that a catalog that goes back is noticed.

A catalog that fails over to a replica that is behind, or is restored from a backup, shows a table as it was before:
with fewer rows, and a ledger that was true then. Nothing that a table goes through lowers its last sequence number, a
rollback neither. (Tables of format version 1 have none.)
"""

from __future__ import annotations

from collections.abc import Mapping

from calving.model.events import TableId, TableMark

_MOST = 1_000
"""Tables that have a mark, those committed last: the marks travel with every CommitComplete."""


class Marks:
    def __init__(self) -> None:
        self._known: dict[TableId, TableMark] = {}

    def note(self, table: TableId, mark: TableMark) -> None:
        """The table was seen so; what was known of it before only counts if it was farther."""
        before = self._known.pop(table, None)
        farther = before is not None and before.uuid == mark.uuid and before.sequence > mark.sequence
        self._known[table] = before if before is not None and farther else mark
        if len(self._known) > _MOST:
            del self._known[next(iter(self._known))]

    @property
    def known(self) -> Mapping[TableId, TableMark]:
        """Those committed last come last."""
        return dict(self._known)
