"""The lease of a table: who maintains it at the moment (K13).

It saves work, and protects nothing: two that maintain one table are harmless. Some catalogs apply changes of properties
without comparing them. So who takes a lease reads it again a moment later, and the one who is there then has it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.update import AssertTableUUID, RemovePropertiesUpdate, SetPropertiesUpdate, TableUpdate

from calving.errors import UnavailableError
from calving.iceberg.catalog import find_table, is_refusal
from calving.model.events import TableId
from calving.model.text import natural
from calving.retries import Backoff, tries
from calving.storage_errors import described

LEASE = "calving.maintenance.lease"
LEASE_MS = 15 * 60_000
_TRIES, _BACKOFF = 10, Backoff(0.04, 2.0)
_SETTLED_SECONDS = 1.0
"""After this time a write of somebody else at the same moment is visible, too."""


@dataclass(frozen=True, slots=True)
class Lease:
    """``until_ms``: when it ends, in milliseconds since 1970."""

    holder: str
    until_ms: int

    def __str__(self) -> str:
        return f"{self.holder} {self.until_ms}"

    @staticmethod
    def parse(text: str | None) -> Lease | None:
        """The lease in a property; None if it is no lease, so that nobody waits for it."""
        holder, _, until = (text or "").rpartition(" ")
        until_ms = natural(until)
        return Lease(holder, until_ms) if holder and until_ms is not None else None

    def is_over(self, now_ms: int) -> bool:
        """Whether it has ended. One that ends later than any lease does, by a wrong clock, counts as ended, too."""
        return not now_ms < self.until_ms <= now_ms + 2 * LEASE_MS


def lease_name(branch: str) -> str:
    """The table property with the lease of a branch."""
    return LEASE if branch == "main" else f"{LEASE}@{branch}"


def held_by_other(properties: Mapping[str, str], branch: str, holder: str, now_ms: int) -> Lease | None:
    """The lease of somebody else that has not ended; None if there is none."""
    lease = Lease.parse(properties.get(lease_name(branch)))
    return None if lease is None or lease.holder == holder or lease.is_over(now_ms) else lease


class TableLease:
    """The lease of one branch of one table, for one ``holder``."""

    def __init__(
        self,
        catalog: Catalog,
        table: TableId,
        branch: str,
        holder: str,
        clock: Callable[[], int],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """``clock``: tells the milliseconds since 1970."""
        self._catalog, self._table, self._branch, self._holder = catalog, table, branch, holder
        self._clock, self._sleep = clock, sleep

    def take(self) -> Lease | None:
        """Take the lease, or prolong it once half of it is over. The lease of somebody else, if this one has it.

        :raises UnavailableError: the catalog gives no clear answer, or others changed the table each time.
        """
        now_ms = self._clock()
        own = Lease(self._holder, now_ms + LEASE_MS)
        for is_last in tries(_TRIES, lambda number: self._sleep(_BACKOFF.pause(number))):
            properties = self._properties()
            if properties is None:
                return None
            if (other := held_by_other(properties, self._branch, self._holder, now_ms)) is not None:
                return other
            held = Lease.parse(properties.get(lease_name(self._branch)))
            if held is not None and held.holder == self._holder and held.until_ms - now_ms > LEASE_MS // 2:
                return None
            if self._changed(SetPropertiesUpdate(updates={lease_name(self._branch): str(own)}), is_last=is_last):
                break
        self._sleep(_SETTLED_SECONDS)
        return held_by_other(self._properties() or {}, self._branch, self._holder, now_ms)

    def release(self) -> None:
        """Give the lease back.

        :raises UnavailableError: the catalog gives no clear answer. The lease ends by itself.
        """
        for is_last in tries(_TRIES, lambda number: self._sleep(_BACKOFF.pause(number))):
            held = Lease.parse((self._properties() or {}).get(lease_name(self._branch)))
            if held is None or held.holder != self._holder:
                return
            if self._changed(RemovePropertiesUpdate(removals=[lease_name(self._branch)]), is_last=is_last):
                return

    def _properties(self) -> Mapping[str, str] | None:
        """None if the table does not exist."""
        table = find_table(self._catalog, self._table)
        return table.metadata.properties if table is not None else None

    def _changed(self, update: TableUpdate, *, is_last: bool) -> bool:
        """One attempt; whether it succeeded."""
        if (table := find_table(self._catalog, self._table)) is None:
            return True
        try:
            table._do_commit((update,), (AssertTableUUID(uuid=table.metadata.table_uuid),))
        except CommitFailedException as error:
            if is_last:
                raise UnavailableError(
                    f"table {'.'.join(self._table)}: others changed it each time: {error}"
                ) from error
            return False
        except Exception as error:  # a catalog or its transport may raise anything
            if is_last or is_refusal(error, self._catalog):
                raise UnavailableError(f"table {'.'.join(self._table)}: {described(error)}") from error
            return False
        return True
