"""Merges the position deletes of one head of a table into few files (K19). This changes no row.

Readers pay for three kinds of them: files about several data files, which are read for each of these; several files
about one data file; and in version 3 files of version 2, and Puffin files of which most vectors have been replaced.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from pyiceberg.table import Table
from pyroaring import BitMap64

from calving.iceberg.conversion import DeleteReplacement
from calving.iceberg.delete_files import DeleteFiles, Deletions, KnownPositions, divided, positions_in, within
from calving.iceberg.live_files import LiveDelete, LiveFiles, Manifests, may_apply, referenced
from calving.iceberg.manifests import CONTENT_SIZE, LINEAGE_VERSION, FileKey, at, is_vector, key_of
from calving.mutations.keys import KEYS_AT_ONCE

Place = tuple[int, tuple[Any, ...]]
"""A spec, and the values of a partition."""
SPARSE_FILES = 20
"""So many Puffin files of which less than half is live become one. Commits that delete rows leave such files."""
_VECTOR_BYTES = 170
"""About what the footer of a Puffin file says of a vector, without the path of its data file."""


class DeleteMerge:
    """The merge of the oldest position deletes of one branch, kept until its commit. It takes whole partitions, so
    that each file about several data files is read once, and no commit writes what a later one writes again.
    """

    def __init__(self, until: int, at_once: int = KEYS_AT_ONCE) -> None:
        """``until``: the sequence number of the newest deletes that make a partition due. ``at_once``: about how many
        positions one commit merges; but it merges at least one partition.
        """
        self._until, self._at_once = until, at_once
        self._manifests, self._known, self._deletes = Manifests(()), KnownPositions(), DeleteFiles()
        self._read: set[FileKey] = set()
        """The files about several data files that were read."""
        self._about: dict[str, int] = {}
        """The data files to which they may apply, and the sequence number of each."""
        self._found: defaultdict[str, BitMap64] = defaultdict(BitMap64)
        """The rows that they delete, by the path of the data file."""

    def of(self, table: Table, branch: str) -> DeleteReplacement | None:
        """The changes of the next commit on this head of the branch; None if it has no deletes to merge.

        :raises TableTroubleError: files of the table cannot be read.
        """
        head = table.metadata.snapshot_by_name(branch)
        live = self._manifests.live(table.io, head.manifest_list if head is not None else None)
        chosen = self._chosen(live, table.metadata.format_version)
        if not chosen:
            return None
        positions = self._of_wide(table, live, [delete for delete in chosen if referenced(delete.file) is None])
        about = positions.keys() | {path for delete in chosen if (path := referenced(delete.file)) is not None}
        files = {path: live.data[path].candidate for path in sorted(about & live.data.keys())}
        deletions = Deletions(table, replace(live, wide=[]), self._known)
        deleted, gone = divided(
            files, {path: deletions.before(path) | positions.get(path, BitMap64()) for path in files}
        )
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

    def _chosen(self, live: LiveFiles, format_version: int) -> list[LiveDelete]:
        """The deletes that are due in the next partitions. All files about several data files are due: a vector of
        version 3 has to say all that they say of its data file.
        """
        by_partition: defaultdict[Place, list[LiveDelete]] = defaultdict(list)
        for delete in due(live, format_version):
            by_partition[delete.partition].append(delete)
        chosen: list[LiveDelete] = []
        left = self._at_once
        for deletes in sorted(by_partition.values(), key=_oldest):
            if left <= 0 or _oldest(deletes) > self._until:
                break
            chosen += deletes
            left -= sum(delete.file.record_count for delete in deletes)
        return chosen

    def _of_wide(self, table: Table, live: LiveFiles, wide: Sequence[LiveDelete]) -> Mapping[str, BitMap64]:
        """The rows of live files that these files delete, by the paths of the live files. After a refused attempt only
        new files are read.
        """
        newest = max((delete.sequence for delete in wide), default=0)
        partitions = {delete.partition for delete in wide}
        about = {
            path: data.sequence
            for path, data in live.data.items()
            if (data.candidate.spec_id, data.candidate.partition) in partitions and data.sequence <= newest
        }
        keys = {key_of(delete.file): delete for delete in wide}
        if not self._read <= keys.keys() or not about.items() <= self._about.items():
            self._read, self._found = set(), defaultdict(BitMap64)
        self._about = about
        for key, delete in keys.items():
            if key not in self._read:
                self._take(delete, positions_in(table.io, delete.file), live)
                self._read.add(key)
        return {path: positions for path, positions in self._found.items() if path in about}

    def _take(self, delete: LiveDelete, positions: Mapping[str, BitMap64], live: LiveFiles) -> None:
        for path, of_file in positions.items():
            data = live.data.get(path)
            if data is not None and may_apply(delete, data):
                self._found[path] |= within(of_file, data.candidate.records)


def _oldest(deletes: Sequence[LiveDelete]) -> int:
    return min(delete.sequence for delete in deletes)


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
        file = vector.file
        live[file.file_path] += at(file, CONTENT_SIZE) + len((referenced(file) or "").encode()) + _VECTOR_BYTES
    sparse = [vector for vector in vectors if 2 * live[vector.file.file_path] < vector.file.file_size_in_bytes]
    return sparse if len({vector.file.file_path for vector in sparse}) >= SPARSE_FILES else []
