"""The resolvers of all tables of a process, and the key cache that they share."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from uuid import UUID

from pyiceberg.io import FileIO
from pyiceberg.table import Table

from calving.iceberg.locations import delete_orphans
from calving.iceberg.lookups import KeySearch
from calving.iceberg.manifests import partition_sources
from calving.iceberg.resolution import RowChangeResolver
from calving.model.events import TableId
from calving.model.files import DataFile
from calving.model.tables import RowMutations
from calving.mutations.cache import KeyCache
from calving.mutations.candidates import new_files
from calving.mutations.columns import ColumnReader
from calving.mutations.lookup import Tasks

log = logging.getLogger(__name__)


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
        self._to_discard: dict[TableId, tuple[UUID, tuple[str, ...]]] = {}
        """Files that the last cycle's commits of a table have used, but that are not part of the table."""

    def of(self, table: TableId) -> RowChangeResolver | None:
        """The resolver of a table; None if it is only appended to, or keeps equality deletes."""
        mutations = self._mutations(table)
        if mutations is None or mutations.row_deletes == "equality":
            return None
        cache = self.cache()
        with self._lock:
            if table not in self._made:
                appends = mutations.cdc_field is not None and mutations.inserts == "append"
                self._made[table] = RowChangeResolver(
                    mutations.order_field,
                    cache,
                    tasks=self._tasks,
                    order_type=mutations.order_type,
                    appends=appends,
                    on_missing=mutations.on_missing_row,
                    has_versions=mutations.has_versions,
                )
            return self._made[table]

    def cache(self) -> KeyCache:
        """The key cache of the process, made when it is needed first."""
        with self._lock:
            self._cache = self._cache or KeyCache(self._cache_bytes)
            return self._cache

    def learn(self, table: Table, outputs: Sequence[DataFile]) -> None:
        """Read the keys of files that are about to replace others in the table: otherwise its next commit would (K12).
        An error is none: then that commit reads them.
        """
        resolver = self._made.get(table.name())
        if resolver is None or not resolver.columns:
            return
        mapping = table.name_mapping()
        reading = ColumnReader(table.io, resolver.columns, tuple(mapping.root) if mapping is not None else ())
        metadata = table.metadata
        found = new_files([outputs], metadata.specs(), partition_sources(metadata))
        try:
            resolver.lookups.learn(KeySearch(table, reading, len(resolver.columns), ()), found.values())
        except Exception as error:  # a storage may raise anything
            log.info("table %s: the keys of new files could not be read: %s", ".".join(table.name()), error)

    @property
    def cache_bytes(self) -> dict[str, int]:
        """Bytes in the key cache, by table."""
        return {} if self._cache is None else self._cache.by_owner()

    def discard_later(self, table: TableId, cycle: UUID, paths: Iterable[str], io: FileIO) -> None:
        """Delete files of a commit one cycle after it: key files, and data files without live rows. By then a saved
        position above their entries is written, so no coordinator replays them.
        """
        before, due = self._to_discard.pop(table, (cycle, ()))
        if before == cycle:
            paths = (*due, *paths)
        else:
            delete_orphans(io, due)
        self._to_discard[table] = cycle, tuple(paths)
