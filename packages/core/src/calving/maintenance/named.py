"""Which files a table's snapshots name: those that snapshots to expire name, less those that any other one names."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntryStatus, ManifestFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from calving.iceberg.manifests import read_all_entries, read_manifest_list
from calving.model.files import one_name


class UnnamedFiles:
    """Files, less those that the snapshots of a table name. Manifests never change, so each is read only once.

    A snapshot names its manifest list, its manifests, the files that it has, and those that it removed: who reads the
    changes of a snapshot reads these, too.
    """

    def __init__(self, io: FileIO, files: Mapping[str, int], gone: Collection[int] = ()) -> None:
        """``files``: their sizes in bytes, by path. ``gone``: the ids of snapshots that do not count."""
        self._io, self._gone = io, frozenset(gone)
        self._left = {one_name(path): (path, size) for path, size in files.items()}
        self._read: set[str] = set()

    @property
    def left(self) -> dict[str, int]:
        """The sizes of the files that no snapshot seen so far names, by path."""
        return dict(self._left.values())

    def strike(self, metadata: TableMetadata) -> None:
        """Take out the files that a table's snapshots name.

        :raises FileNotFoundError: a snapshot has expired meanwhile, and its files were deleted: load the table again.
        """
        kept = {snapshot.snapshot_id for snapshot in metadata.snapshots} - self._gone
        for file in (*metadata.statistics, *metadata.partition_statistics):
            if file.snapshot_id not in self._gone:
                self._strike(file.statistics_path)
        for snapshot in metadata.snapshots:
            path = snapshot.manifest_list
            if snapshot.snapshot_id in kept and path not in self._read:
                self._strike(path)
                for manifest in read_manifest_list(self._io, path):
                    self._strike_files_of(manifest, kept)
                self._read.add(path)

    def strike_files(self, paths: Iterable[str]) -> None:
        """Take out these files."""
        for path in paths:
            self._strike(path)

    def _strike_files_of(self, manifest: ManifestFile, kept: Collection[int]) -> None:
        path = manifest.manifest_path
        if self._left and path not in self._read:
            self._strike(path)
            for name, _ in _files_of(self._io, manifest, kept):
                self._strike(name)
            self._read.add(path)

    def _strike(self, path: str) -> None:
        self._left.pop(one_name(path), None)


def files_of(io: FileIO, metadata: TableMetadata, gone: Sequence[Snapshot]) -> dict[str, int]:
    """The sizes of files that these snapshots name, by path, without those of manifests that other snapshots have, too.
    The size of a manifest list counts as 0.

    :raises FileNotFoundError: a snapshot has expired meanwhile, and its files were deleted: load the table again.
    """
    ids = {snapshot.snapshot_id for snapshot in gone}
    others = {
        manifest.manifest_path
        for snapshot in metadata.snapshots
        if snapshot.snapshot_id not in ids
        for manifest in read_manifest_list(io, snapshot.manifest_list)
    }
    files = {snapshot.manifest_list: 0 for snapshot in gone}
    for file in (*metadata.statistics, *metadata.partition_statistics):
        if file.snapshot_id in ids:
            files[file.statistics_path] = file.file_size_in_bytes
    manifests = {m.manifest_path: m for snapshot in gone for m in read_manifest_list(io, snapshot.manifest_list)}
    for path, manifest in manifests.items():
        if path not in others:
            files[path] = manifest.manifest_length
            files.update(_files_of(io, manifest, ids))
        elif manifest.added_snapshot_id in ids and manifest.deleted_files_count != 0:
            files.update(_files_of(io, manifest, ids, only_removed=True))
    return files


def _files_of(
    io: FileIO, manifest: ManifestFile, removers: Collection[int], *, only_removed: bool = False
) -> Iterator[tuple[str, int]]:
    """The files of a manifest that are live, or that one of the snapshots ``removers`` removed; with their sizes."""
    for entry in read_all_entries(io, manifest):
        is_removed = entry.status is ManifestEntryStatus.DELETED
        if entry.snapshot_id in removers if is_removed else not only_removed:
            yield entry.data_file.file_path, entry.data_file.file_size_in_bytes
