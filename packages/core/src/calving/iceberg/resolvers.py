"""What stays from commit to commit of tables whose rows records change."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from pyiceberg.io import FileIO

from calving.iceberg.orphans import delete_orphans
from calving.iceberg.resolution import Resolver
from calving.model.events import TableId
from calving.model.mutations import RowMutations
from calving.mutations.cache import KeyCache
from calving.mutations.lookup import Tasks


class Resolvers:
    """Of all tables of a process. ``mutations`` tells which these are, ``tasks`` where large ones are looked into."""

    def __init__(
        self,
        mutations: Callable[[TableId], RowMutations | None],
        cache_bytes: int,
        tasks: Callable[[], Tasks | None] = lambda: None,
    ) -> None:
        self._mutations, self._cache_bytes, self._tasks = mutations, cache_bytes, tasks
        self._cache: KeyCache | None = None
        self._made: dict[TableId, Resolver] = {}
        self._lock = threading.Lock()
        self._served: dict[TableId, tuple[str, ...]] = {}
        """Files that a table's last commit has read, and does not name."""

    def of(self, table: TableId) -> Resolver | None:
        """A table's own; None where rows are only appended, or keys stay keys."""
        mutations = self._mutations(table)
        if mutations is None or mutations.row_deletes == "equality":
            return None
        with self._lock:
            if table not in self._made:
                self._cache = self._cache or KeyCache(self._cache_bytes)
                appends = mutations.cdc_field is not None and mutations.inserts == "append"
                self._made[table] = Resolver(mutations.order_field, self._cache, tasks=self._tasks, appends=appends)
            return self._made[table]

    @property
    def cache_bytes(self) -> dict[str, int]:
        """What of the key cache is each table's."""
        return {} if self._cache is None else self._cache.by_owner()

    def served(self, table: TableId, paths: Iterable[str], io: FileIO) -> None:
        """Key files, and data files without a row that stays: what they say is in the table, and nobody reads them
        again. Those of the commit before are deleted now that the position that was saved after it has passed them.
        """
        before = self._served.pop(table, ())
        if found := tuple(paths):
            self._served[table] = found
        delete_orphans(io, before)
