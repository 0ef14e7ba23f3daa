"""The tables as the coordinator last loaded them, to detect a catalog that shows an older state.

A catalog that fails over to a stale replica, or is restored from a backup, shows an older state of a table: with fewer
rows, and the ledger of that time. No operation on a table lowers its last sequence number, not even a rollback. (Tables
of format version 1 have no sequence number.)
"""

from __future__ import annotations

from collections.abc import Mapping

from calving.model.events import Envelope, TableId, TableMark

_MOST = 1_000
"""How many tables have a mark, at most: the tables committed last. The number is limited, because every CommitComplete
carries all marks.
"""


def _confirms(found: TableMark, before: TableMark) -> bool:
    return found.uuid == before.uuid and found.sequence >= before.sequence


class Marks:
    """The last mark of each table; if there are more than a thousand, of the thousand tables that were committed
    last.
    """

    def __init__(self) -> None:
        self._known: dict[TableId, TableMark] = {}

    def hear(self, envelope: Envelope) -> None:
        """An entry of the control log, with the marks that its coordinator knew."""
        for table, mark in envelope.attached.marks.items():
            self.note(table, mark)

    def note(self, table: TableId, mark: TableMark) -> None:
        """The table was loaded with this mark. It replaces the earlier mark unless the earlier one has a higher
        sequence number.
        """
        before = self._known.pop(table, None)
        self._known[table] = before if before is not None and mark.is_older_than(before) else mark
        if len(self._known) > _MOST:
            del self._known[next(iter(self._known))]

    @property
    def known(self) -> Mapping[TableId, TableMark]:
        """The marks, in the order of the last commits."""
        return dict(self._known)

    def unconfirmed(self, seen: Mapping[TableId, TableMark]) -> set[TableId]:
        """Marked tables that ``seen`` lacks, or shows in an older state or with another UUID."""
        return {t for t, mark in self._known.items() if (now := seen.get(t)) is None or not _confirms(now, mark)}

    def older(self, tables: Mapping[TableId, TableMark]) -> set[TableId]:
        """The ``tables`` whose marks are of an older state than their last marks here."""
        return {table for table, mark in tables.items() if mark.is_older_than(self._known.get(table))}
