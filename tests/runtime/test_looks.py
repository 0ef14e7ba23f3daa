"""A look at a table that fails ends no other look."""

from __future__ import annotations

import queue
from collections.abc import Collection, Iterable

from calving.model.events import TableId
from calving.runtime.coordinator import Looks

TABLE = ("db", "t")


class Looker:
    """Cannot name its tables the first time."""

    def __init__(self) -> None:
        self.looked: queue.Queue[TableId] = queue.Queue()
        self._asked = 0

    def tables(self) -> Iterable[TableId]:
        self._asked += 1
        if self._asked == 1:
            raise RuntimeError("dictionary changed size during iteration")
        return [TABLE]

    def take_read(self) -> Collection[TableId]:
        return ()

    def look(self, table: TableId) -> None:
        self.looked.put(table)


def test_tables_that_cannot_be_named_now_are_looked_at_the_next_time() -> None:
    looker = Looker()
    looks = Looks(looker, 0.01)
    assert looker.looked.get(timeout=60) == TABLE
    looks.stop()
