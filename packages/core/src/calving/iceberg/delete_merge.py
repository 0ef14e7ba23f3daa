"""Merges the position deletes of one head of a table into few files (K19). This changes no row.

Readers pay for three kinds of them: files about several data files, which are read for each of these; several files
about one data file; and in version 3 files of version 2, and Puffin files of which most vectors have been replaced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import chain

from pyiceberg.table import Table

from calving.iceberg.conversion import DeleteReplacement
from calving.iceberg.delete_files import DeleteFiles, Deletions, KnownPositions
from calving.iceberg.live_files import LiveDelete, LiveFiles, Manifests, referenced
from calving.iceberg.manifests import CONTENT_SIZE, LINEAGE_VERSION, at, is_vector, key_of
from calving.mutations.keys import KEYS_AT_ONCE

SPARSE_FILES = 20
"""So many Puffin files of which less than half is live become one. Each commit that deletes rows leaves one."""


class DeleteMerge:
    """The merge of the oldest position deletes of one branch, kept until its commit."""

    def __init__(self, until: int, at_once: int = KEYS_AT_ONCE) -> None:
        """``until``: the sequence number of the newest deletes to merge. ``at_once``: about how many positions one
        commit merges; but it merges at least one file.
        """
        self._until, self._at_once = until, at_once
        self._manifests, self._known, self._deletes = Manifests(()), KnownPositions(), DeleteFiles()

    def of(self, table: Table, branch: str) -> DeleteReplacement | None:
        """The changes of the next commit on this head of the branch; None if it has no deletes to merge.

        :raises TableTroubleError: files of the table cannot be read.
        """
        head = table.metadata.snapshot_by_name(branch)
        live = self._manifests.live(table.io, head.manifest_list if head is not None else None)
        chosen = list(self._oldest(due(live, table.metadata.format_version)))
        if not chosen:
            return None
        about = {path for delete in chosen for path in self._about(table, delete) if path in live.data}
        deletions = Deletions(table, live, self._known)
        deleted, gone = deletions.of({path: live.data[path].candidate for path in sorted(about)})
        removed, manifests = deletions.removed(deleted, gone)
        removed |= {key_of(delete.file) for delete in chosen}
        return DeleteReplacement(
            self._deletes.of(table, deleted),
            removed,
            manifests | {delete.manifest for delete in chosen},
            files=len({path for path, _ in removed} - live.data.keys()),
            rows=0,
        )

    def unused(self, used: Collection[str]) -> list[str]:
        """The paths of the files that were written and are not among the ``used`` ones."""
        return [path for path in self._deletes.written if path not in used]

    def _about(self, table: Table, delete: LiveDelete) -> Collection[str]:
        path = referenced(delete.file)
        return (path,) if path is not None else self._known.by_file(table, delete.file)

    def _oldest(self, deletes: Sequence[LiveDelete]) -> Iterator[LiveDelete]:
        left = self._at_once
        for delete in sorted(deletes, key=lambda each: (each.sequence, each.file.file_path)):
            if left <= 0 or delete.sequence > self._until:
                return
            yield delete
            left -= delete.file.record_count


def due(live: LiveFiles, format_version: int) -> list[LiveDelete]:
    """The position deletes that are to be merged."""
    scoped = live.scoped.values()
    if format_version < LINEAGE_VERSION:
        return [*live.wide, *chain.from_iterable(deletes for deletes in scoped if len(deletes) > 1)]
    of_version_2 = [delete for delete in chain.from_iterable(scoped) if not is_vector(delete.file)]
    vectors = [delete for delete in chain.from_iterable(scoped) if is_vector(delete.file)]
    return [*live.wide, *of_version_2, *_sparse(vectors)]


def _sparse(vectors: Sequence[LiveDelete]) -> list[LiveDelete]:
    """The vectors in Puffin files of which less than half is live, if there are many of these."""
    live: Counter[str] = Counter()
    for vector in vectors:
        live[vector.file.file_path] += at(vector.file, CONTENT_SIZE)
    sparse = [vector for vector in vectors if 2 * live[vector.file.file_path] < vector.file.file_size_in_bytes]
    return sparse if len({vector.file.file_path for vector in sparse}) >= SPARSE_FILES else []
