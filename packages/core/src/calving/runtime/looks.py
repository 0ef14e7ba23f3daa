"""Looks at the tables of a sink while a process leads it (R2a)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable
from typing import Protocol

from calving.model.events import TableId

log = logging.getLogger(__name__)


class Looker(Protocol):
    """What is looked at, and how."""

    @property
    def tables(self) -> Callable[[], Iterable[TableId]]:
        """The tables that may hold records of the sink."""

    def take_read(self) -> Collection[TableId]:
        """The tables that were read since the last call; a look at them would tell nothing new."""

    def look(self, table: TableId) -> None:
        """Look at one table. Any error may be raised, and means nothing for the other tables."""


class Looks:
    """Looks at each table at once, and then every ``seconds``, on a thread of its own: a catalog that hangs delays no
    commit.
    """

    def __init__(self, looker: Looker, seconds: float) -> None:
        self._looker, self._seconds = looker, seconds
        self._stop = threading.Event()
        threading.Thread(target=self._run, name="calving-looks", daemon=True).start()

    def stop(self) -> None:
        """Request the end after the present table."""
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._look_at_each()
            except Exception as error:  # the thread has no caller; the next round may find the tables
                log.warning("the tables could not be looked at for rollbacks: %s: %s", type(error).__name__, error)
            self._stop.wait(self._seconds)

    def _look_at_each(self) -> None:
        read = self._looker.take_read()
        for table in self._looker.tables():
            if self._stop.is_set():
                return
            if table not in read:
                self._look(table)

    def _look(self, table: TableId) -> None:
        try:
            self._looker.look(table)
        except Exception as error:  # the next look, or the next commit, tells
            log.info("table %s could not be looked at: %s", ".".join(table), error)
