"""Which tables of a sink its leader maintains."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from pyiceberg.catalog import Catalog

from calving.iceberg.catalog import find_table, table_id
from calving.iceberg.creation import CREATED_BY
from calving.runtime.preflight import ledger_key
from calving.settings.load import Sink

log = logging.getLogger(__name__)

_AGAIN_SECONDS = 600.0
"""How often to look who has created a table: somebody may drop it, and create it again."""


class MaintainedTables:
    """Those for which the settings say so, and, with ``auto``, those that the sink has created: a table of others may
    have maintenance already, with other rules.

    For the first pause with ``auto`` there are none: a leader that has just begun catches up with its records first.
    """

    def __init__(self, sink: Sink, catalog: Catalog, clock: Callable[[], float]) -> None:
        """``clock``: seconds that never go back."""
        self._sink, self._catalog, self._clock = sink, catalog, clock
        self._began = clock()
        self._own: dict[str, tuple[bool, float]] = {}
        """Whether the sink has created a table, and when somebody has looked."""

    def among(self, names: Iterable[str]) -> tuple[list[str], list[str]]:
        """The tables among these that the leader maintains, and those that it does not; without those of which nobody
        knows it now.
        """
        maintained: list[str] = []
        others: list[str] = []
        for name in names:
            enabled = self._sink.maintains(name)
            answer = self._is_own(name) if enabled == "auto" else enabled == "true"
            if answer is not None:
                (maintained if answer else others).append(name)
        return maintained, others

    def _is_own(self, name: str) -> bool | None:
        """Whether the sink has created a table; None if it does not exist, or nobody knows it now."""
        now = self._clock()
        if now < self._began + int(self._sink.maintenance(name, "pause_ms")) / 1000:
            return None
        known = self._own.get(name)
        if known is not None and now < known[1] + _AGAIN_SECONDS:
            return known[0]
        try:
            table = find_table(self._catalog, table_id(name))
            if table is None:
                return None
            key = ledger_key(self._sink, "", name).with_former(table.properties)
            creator = table.properties.get(CREATED_BY, "")
        except Exception as error:  # a catalog may raise anything; the next look comes
            log.debug("table %s: nobody knows who has created it: %s", name, error)
            return None if known is None else known[0]
        found = creator == self._sink.creator or key.took_over(creator)
        self._own[name] = found, now
        return found
