"""Keeps the state of mutation tables from commit to commit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from uuid import UUID

from pyiceberg.io import FileIO

from calving.iceberg.orphans import delete_orphans
from calving.iceberg.resolution import RowChangeResolver
from calving.model.events import TableId
from calving.model.mutations import RowMutations
from calving.mutations.cache import KeyCache
from calving.mutations.lookup import Tasks


class Resolvers:
    """The resolvers of a process. ``mutations`` returns a table's settings. ``tasks`` returns the engine for searches
    in large tables.
    """

    def __init__(
        self,
        mutations: Callable[[TableId], RowMutations | None],
        cache_bytes: int,
        tasks: Callable[[], Tasks | None] = lambda: None,
    ) -> None:
        self._mutations, self._cache_bytes, self._tasks = mutations, cache_bytes, tasks
        self._cache: KeyCache | None = None
        self._made: dict[TableId, RowChangeResolver] = {}
        self._lock = threading.Lock()
        self._served: dict[TableId, tuple[UUID, tuple[str, ...]]] = {}
        """Files that the last cycle's commits of a table have used, but that are not part of the table."""

    def of(self, table: TableId) -> RowChangeResolver | None:
        """The resolver of a table; None if it is only appended to, or keeps equality deletes."""
        mutations = self._mutations(table)
        if mutations is None or mutations.row_deletes == "equality":
            return None
        with self._lock:
            if table not in self._made:
                self._cache = self._cache or KeyCache(self._cache_bytes)
                appends = mutations.cdc_field is not None and mutations.inserts == "append"
                self._made[table] = RowChangeResolver(
                    mutations.order_field,
                    self._cache,
                    tasks=self._tasks,
                    order_type=mutations.order_type,
                    appends=appends,
                )
            return self._made[table]

    @property
    def cache_bytes(self) -> dict[str, int]:
        """Bytes in the key cache, by table."""
        return {} if self._cache is None else self._cache.by_owner()

    def served(self, table: TableId, cycle: UUID, paths: Iterable[str], io: FileIO) -> None:
        """Note files that are not needed after their commit: key files, and data files without live rows. Files from an
        earlier cycle are deleted now: since then a saved position above their entries was written, so no coordinator
        reads them again.
        """
        before, due = self._served.pop(table, (cycle, ()))
        if before == cycle:
            paths = (*due, *paths)
        else:
            delete_orphans(io, due)
        self._served[table] = cycle, tuple(paths)
