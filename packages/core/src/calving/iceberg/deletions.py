"""The deleted rows of one head of a table, and the delete files that change if further rows are deleted."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyroaring import BitMap64

from calving.iceberg.delete_files import Deleted, read_positions
from calving.iceberg.entries import FileKey, LiveFiles, key_of
from calving.mutations.candidates import Candidate

_MOST_KNOWN = 4_000


class KnownPositions:
    """Caches the positions in delete files, which never change."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[FileKey, str], BitMap64] = OrderedDict()

    def of(self, table: Table, delete: DataFile, path: str) -> BitMap64:
        """The positions of a data file that a delete file names."""
        known = key_of(delete), path
        positions = self._known.pop(known, None)
        self._keep(known, read_positions(table.io, delete, path) if positions is None else positions)
        return self._known[known]

    def know(self, deletes: Iterable[DataFile], deleted: Iterable[Deleted]) -> None:
        """Keep the positions that were written: those of each item of ``deleted`` are in the item of ``deletes`` with
        its index.
        """
        for file, each in zip(deletes, deleted, strict=True):
            self._keep((key_of(file), each.file.path), each.positions)

    def _keep(self, known: tuple[FileKey, str], positions: BitMap64) -> None:
        self._known[known] = positions
        while len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)


class Deletions:
    """The deleted rows of one head."""

    def __init__(self, table: Table, live: LiveFiles, known: KnownPositions) -> None:
        self._table, self._live, self._known = table, live, known
        self._before: dict[str, BitMap64] = {}
        self.new = 0
        """Rows that ``added`` has found to be newly deleted."""

    def before(self, path: str) -> BitMap64:
        """The rows of a file that the head's position deletes delete."""
        if path not in self._before:
            self._before[path] = self._read(path)
        return self._before[path]

    def _read(self, path: str) -> BitMap64:
        positions = BitMap64()
        data = self._live.data.get(path)
        if data is not None:
            for delete in (*self._live.scoped_of(data), *self._live.wide_of(data)):
                positions |= self._known.of(self._table, delete.file, path)
        return positions

    def added(
        self, files: Mapping[str, Candidate], hits: Mapping[str, BitMap64]
    ) -> tuple[list[Deleted], list[Candidate]]:
        """The files with newly deleted rows, and the files without any live row, if the rows in ``hits`` are
        deleted.
        """
        partly, wholly = [], []
        for path, rows in hits.items():
            file, before = files[path], self.before(path)
            new = rows - before
            if not new:
                continue
            self.new += len(new)
            after = before | new
            if len(after) == file.records:
                wholly.append(file)
            else:
                partly.append(Deleted(file, after))
        return partly, wholly

    def removed(
        self, deleted: Sequence[Deleted], gone: Sequence[Candidate]
    ) -> tuple[frozenset[FileKey], frozenset[str]]:
        """P1 and P6: the files to remove, and the manifests that name them. These are replaced delete files, data files
        without live rows, and delete files for removed data files.
        """
        removed: set[FileKey] = set()
        manifests: set[str] = set()
        dangling = self._live.scoped.keys() - self._live.data.keys()
        for path in (*(each.file.path for each in deleted), *(file.path for file in gone), *dangling):
            for delete in self._live.scoped.get(path, ()):
                removed.add(key_of(delete.file))
                manifests.add(delete.manifest)
        for file in gone:
            if file.step is None:
                removed.add((file.path, None))
                manifests.add(self._live.data[file.path].manifest)
        return frozenset(removed), frozenset(manifests)
