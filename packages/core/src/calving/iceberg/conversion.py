"""Turns equality deletes of one head of a table into positions (E3).

This changes no row for a reader. The equality deletes may be converted in any order: a position delete names its rows,
and so applies to them regardless of other deletes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyroaring import BitMap64

from calving.iceberg.delete_files import DeleteFiles, Deletions, KnownPositions
from calving.iceberg.equality import EqualitySearch
from calving.iceberg.live_files import LiveDelete, LiveFiles, Manifests
from calving.iceberg.manifests import FileKey, key_of
from calving.iceberg.snapshot import SinkSnapshot
from calving.mutations.cache import KeyCache
from calving.mutations.keys import KEYS_AT_ONCE
from calving.mutations.lookup import Tasks


@dataclass(frozen=True, slots=True)
class DeleteReplacement:
    """The delete files that a snapshot adds, and the files that it removes."""

    deletes: tuple[DataFile, ...]
    removed: frozenset[FileKey]
    manifests: frozenset[str]
    """Manifests that name removed files."""
    files: int
    """How many delete files are replaced."""
    rows: int
    """How many rows the new delete files delete that were not deleted by position before."""
    keys: int = 0
    """How many keys the replaced files have, if they are equality deletes."""

    @property
    def added(self) -> frozenset[str]:
        """The paths of the delete files."""
        return frozenset(file.file_path for file in self.deletes)

    def put_into(self, snapshot: SinkSnapshot) -> None:
        """Make the changes part of a snapshot."""
        snapshot.add_deletes(self.deletes, ())
        snapshot.remove(self.removed, self.manifests, {})


class DeleteConversion:
    """The conversion of the oldest equality deletes of one branch, kept until its commit.

    After a refused attempt only new data files are searched, and only changed delete files are written again.
    """

    def __init__(
        self,
        cache: KeyCache | None = None,
        at_once: int = KEYS_AT_ONCE,
        tasks: Callable[[], Tasks | None] = lambda: None,
        until: int | None = None,
    ) -> None:
        """``at_once``: about how many keys are held in memory. It is also about how many keys one commit converts; but
        a commit converts at least one file. ``tasks``: the engine on which very large files are searched. ``until``:
        the sequence number of the newest deletes to convert.
        """
        self._until = until
        self._search, self._at_once, self._known = EqualitySearch(cache, at_once, tasks), at_once, KnownPositions()
        self._manifests: tuple[frozenset[int], Manifests] | None = None
        self._chosen: frozenset[FileKey] = frozenset()
        self._hits: dict[str, BitMap64] = {}
        self._deletes = DeleteFiles()

    def of(self, table: Table, branch: str) -> DeleteReplacement | None:
        """The changes of the next commit on this head of the branch; None if it has no equality deletes to convert.

        :raises TableTroubleError: files of the table cannot be read.
        """
        live = self._live(table, branch)
        chosen = self._still(live.equality)
        if not chosen:
            chosen = list(self._oldest(live.equality))
            self._chosen, self._hits = frozenset(key_of(delete.file) for delete in chosen), {}
        if not chosen:
            return None
        fresh = [data for path, data in live.data.items() if path not in self._hits]
        self._hits |= self._search.rows(table, live.data, chosen, fresh)
        files = {path: data.candidate for path, data in live.data.items()}
        deletions = Deletions(table, live, self._known)
        deleted, gone = deletions.added(files, {path: rows for path in files if (rows := self._hits[path])})
        removed, manifests = deletions.removed(deleted, gone)
        return DeleteReplacement(
            self._deletes.of(table, deleted),
            removed | self._chosen,
            manifests | {delete.manifest for delete in chosen},
            files=len(chosen),
            rows=deletions.new,
            keys=sum(delete.file.record_count for delete in chosen),
        )

    def unused(self, used: Collection[str]) -> list[str]:
        """The paths of the files that were written and are not among the ``used`` ones."""
        return [path for path in self._deletes.written if path not in used]

    def _live(self, table: Table, branch: str) -> LiveFiles:
        """The live files, with the bounds of the columns that the equality deletes compare."""
        head = table.metadata.snapshot_by_name(branch)
        place = head.manifest_list if head is not None else None
        if self._manifests is None:
            wanted = frozenset(table.schema().identifier_field_ids)
            self._manifests = wanted, Manifests(wanted)
        live = self._manifests[1].live(table.io, place)
        compared = frozenset(each for delete in live.equality for each in delete.file.equality_ids or ())
        if compared <= self._manifests[0]:
            return live
        self._manifests = compared, Manifests(compared)
        return self._manifests[1].live(table.io, place)

    def _still(self, deletes: Iterable[LiveDelete]) -> list[LiveDelete]:
        """The equality deletes that the previous attempt has chosen. Empty if one of them is gone, because the rows
        that it deleted may be back.
        """
        remaining = [delete for delete in deletes if key_of(delete.file) in self._chosen]
        return remaining if len(remaining) == len(self._chosen) else []

    def _oldest(self, deletes: Sequence[LiveDelete]) -> Iterator[LiveDelete]:
        """The equality deletes that the next commit converts."""
        left = self._at_once
        for delete in sorted(deletes, key=lambda each: (each.sequence, each.file.file_path)):
            if left <= 0 or (self._until is not None and delete.sequence > self._until):
                return
            yield delete
            left -= delete.file.record_count
