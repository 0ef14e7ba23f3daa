"""The live files of a snapshot: data files, and the delete files that apply to them."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
)

from calving.iceberg.manifests import FILE_PATH_ID, FIRST_ROW_ID, REFERENCED, at, read_entries, read_manifest_list
from calving.mutations.candidates import Candidate

_MOST_KNOWN = 200_000
_NAN = float("nan")
"""One object, because NaN is equal to nothing but itself, and files of the partition NaN are in one partition."""


@dataclass(frozen=True, slots=True)
class LiveData:
    """A live data file, its data sequence number, and the path of the manifest that names it. Deletes with a greater
    sequence number apply to the file, and position deletes with the same one.

    ``added_by``: the id of the snapshot that added it. ``first_row_id``: the id of its first row, in format version 3.
    """

    candidate: Candidate
    sequence: int
    manifest: str
    added_by: int | None = None
    first_row_id: int | None = None


@dataclass(frozen=True, slots=True)
class LiveDelete:
    """A live delete file, and the path of the manifest that names it."""

    entry: ManifestEntry
    manifest: str

    @property
    def file(self) -> DataFile:
        """The delete file itself."""
        return self.entry.data_file

    @property
    def sequence(self) -> int:
        """The data sequence number of the deletes."""
        return self.entry.sequence_number or 0

    @property
    def partition(self) -> tuple[int, tuple[Any, ...]]:
        """Its spec, and the values of its partition."""
        return self.file.spec_id, partition_of(self.file)


@dataclass(slots=True)
class LiveFiles:
    """The live files of one snapshot."""

    data: dict[str, LiveData] = field(default_factory=dict)
    scoped: dict[str, list[LiveDelete]] = field(default_factory=dict)
    """Position-delete files that refer to one data file, by its path."""
    wide: list[LiveDelete] = field(default_factory=list)
    """Position-delete files that refer to several data files of a partition."""
    equality: list[LiveDelete] = field(default_factory=list)

    def delete_entries(self) -> Mapping[str, Sequence[ManifestEntry]]:
        """The entries of each manifest of delete files, by its path."""
        by_manifest: defaultdict[str, list[ManifestEntry]] = defaultdict(list)
        for delete in chain(chain.from_iterable(self.scoped.values()), self.wide, self.equality):
            by_manifest[delete.manifest].append(delete.entry)
        return by_manifest

    def scoped_of(self, data: LiveData) -> Iterator[LiveDelete]:
        """The ``scoped`` delete files that apply to a data file. A file that was removed and added again keeps its
        rows (P4).
        """
        for delete in self.scoped.get(data.candidate.path, ()):
            if delete.sequence >= data.sequence:
                yield delete

    def wide_of(self, data: LiveData) -> Iterator[LiveDelete]:
        """The ``wide`` delete files that may refer to a data file."""
        for delete in self.wide:
            if may_apply(delete, data):
                yield delete


def may_apply(delete: LiveDelete, data: LiveData) -> bool:
    """Whether a ``wide`` delete file may refer to a data file."""
    about = data.candidate
    return delete.partition == (about.spec_id, about.partition) and delete.sequence >= data.sequence


class Manifests:
    """Reads live files. Manifests never change, so each manifest is read once. ``ids``: columns whose bounds are
    kept.
    """

    def __init__(self, ids: Collection[int]) -> None:
        self._ids = frozenset(ids)
        self._known: OrderedDict[str, Sequence[LiveData | LiveDelete]] = OrderedDict()
        self._count = 0

    def live(self, io: FileIO, manifest_list: str | None) -> LiveFiles:
        """The live files of a manifest list; None stands for an empty table."""
        files = LiveFiles()
        for manifest in _live_manifests(io, manifest_list):
            for entry in self._entries(io, manifest):
                _sort_in(files, entry)
        return files

    def _entries(self, io: FileIO, manifest: ManifestFile) -> Sequence[LiveData | LiveDelete]:
        path = manifest.manifest_path
        entries = self._known.pop(path, None)
        if entries is None:
            lean = not self._ids and manifest.content == ManifestContent.DATA
            entries = [_kept(entry, path, self._ids) for entry in read_entries(io, manifest, lean=lean)]
            self._count += len(entries)
        self._known[path] = entries
        while self._count > _MOST_KNOWN and len(self._known) > 1:
            self._count -= len(self._known.popitem(last=False)[1])
        return entries


def deletes_of(io: FileIO, manifest_list: str | None) -> LiveFiles:
    """The live delete files of a manifest list, and no data file."""
    files = LiveFiles()
    for manifest in _live_manifests(io, manifest_list):
        if manifest.content == ManifestContent.DELETES:
            for entry in read_entries(io, manifest):
                _sort_in(files, _kept(entry, manifest.manifest_path, ()))
    return files


def data_of(io: FileIO, manifest_list: str | None) -> Iterator[LiveData]:
    """The live data files of a manifest list, without bounds. One manifest at a time is in memory."""
    for manifest in _live_manifests(io, manifest_list):
        if manifest.content == ManifestContent.DATA:
            for entry in read_entries(io, manifest, lean=True):
                if isinstance(kept := _kept(entry, manifest.manifest_path, ()), LiveData):
                    yield kept


def _live_manifests(io: FileIO, manifest_list: str | None) -> Iterator[ManifestFile]:
    for manifest in read_manifest_list(io, manifest_list) if manifest_list is not None else ():
        if manifest.has_added_files() or manifest.has_existing_files():
            yield manifest


def _kept(entry: ManifestEntry, manifest: str, ids: Collection[int]) -> LiveData | LiveDelete:
    file = entry.data_file
    if file.content != DataFileContent.DATA:
        return LiveDelete(entry, manifest)
    lower, upper = file.lower_bounds or {}, file.upper_bounds or {}
    candidate = Candidate(
        path=file.file_path,
        file_format=file.file_format.value,
        records=file.record_count,
        size=file.file_size_in_bytes,
        spec_id=file.spec_id,
        partition=partition_of(file),
        lower={each: lower[each] for each in ids if each in lower},
        upper={each: upper[each] for each in ids if each in upper},
    )
    return LiveData(candidate, entry.sequence_number or 0, manifest, entry.snapshot_id, at(file, FIRST_ROW_ID))


def partition_of(file: DataFile) -> tuple[Any, ...]:
    """The values of the file's partition."""
    values = (file.partition[i] for i in range(len(file.partition)))
    return tuple(value if value == value else _NAN for value in values)


def _sort_in(live: LiveFiles, entry: LiveData | LiveDelete) -> None:
    if isinstance(entry, LiveData):
        live.data[entry.candidate.path] = entry
    elif entry.file.content == DataFileContent.EQUALITY_DELETES:
        live.equality.append(entry)
    elif (about := referenced(entry.file)) is not None:
        live.scoped.setdefault(about, []).append(entry)
    else:
        live.wide.append(entry)


def referenced(file: DataFile) -> str | None:
    """The data file that a delete file refers to; None if it may refer to several."""
    named = at(file, REFERENCED)
    if named is not None:
        return str(named)
    low, high = (file.lower_bounds or {}).get(FILE_PATH_ID), (file.upper_bounds or {}).get(FILE_PATH_ID)
    return low.decode() if low is not None and low == high else None
