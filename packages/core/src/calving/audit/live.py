"""The rows of a snapshot as a reader of the specification sees them: without those that are deleted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyroaring import BitMap64

from calving.audit.deletes import position_columns, vector_positions
from calving.audit.entries import DATA, EQUALITY_DELETES, AuditedEntry, read_entries, read_list
from calving.audit.manifests import place_of
from calving.audit.metadata import SnapshotState, TableMetadataFile
from calving.audit.rows import PlainRow, PlainRows, key_of
from calving.audit.storage import AuditedStore
from calving.audit.values import field_ids

Positions = tuple[int, Any]
"""The sequence number of a delete, and the positions that it deletes."""


@dataclass
class LiveRows:
    """The rows of one snapshot. Errors of its methods are as of ``PlainRows.of_file``."""

    store: AuditedStore
    metadata: TableMetadataFile
    snapshot: SnapshotState
    _data: list[AuditedEntry] = field(default_factory=list)
    _vectors: dict[str, Positions] = field(default_factory=dict)
    _positions: dict[str, list[Positions]] = field(default_factory=dict)
    _keys: dict[tuple[tuple[int, ...], int | None], dict[bytes, int]] = field(default_factory=dict)
    """By the columns and the place of equality deletes, None for all places: the last sequence number of each key."""

    def open(self) -> None:
        """Read the manifests and delete files."""
        if self.snapshot.manifest_list is None:
            return
        for manifest in read_list(self.store, self.snapshot.manifest_list).manifests:
            for entry in read_entries(self.store, manifest):
                if not entry.is_live:
                    continue
                if entry.content == DATA:
                    self._data.append(entry)
                else:
                    self._delete(entry)

    @property
    def has_deletes(self) -> bool:
        """Whether rows may be deleted by delete files."""
        return bool(self._vectors or self._positions or self._keys)

    def rows(self) -> Iterator[PlainRow]:
        """Each row, once this is open."""
        current = {*field_ids(self.metadata.schema)}
        needed = {number for ids, _ in self._keys for wanted in ids for number in self._path(wanted)}
        reader = PlainRows(self.metadata.columns, current | needed)
        for entry in self._data:
            gone = self._gone(entry)
            keys = [*self._of_keys(entry)]
            for position, row in enumerate(reader.of_file(self.store, entry)):
                if position not in gone and not any(self._is_deleted(row, entry, *each) for each in keys):
                    yield tuple(each for each in row if each[0] in current) if needed else row

    def _path(self, number: int) -> Sequence[int]:
        return self.metadata.paths.get(number, (number,))

    def _delete(self, entry: AuditedEntry) -> None:
        if entry.content == EQUALITY_DELETES:
            self._delete_keys(entry)
        elif entry.file_format == "PUFFIN":
            with self.store.open(entry.path) as stream:
                stream.seek(entry.offset or 0)
                positions = vector_positions(bytes(stream.read(entry.blob_size or 0)))
            self._vectors[entry.referenced or ""] = entry.sequence, positions
        else:
            found: dict[str, Any] = {}
            with self.store.open(entry.path) as stream:
                for paths, positions in position_columns(entry.file_format, stream):
                    for path, position in zip(paths, positions, strict=True):
                        found.setdefault(path, BitMap64()).add(position)
            for path, each in found.items():
                self._positions.setdefault(path, []).append((entry.sequence, each))

    def _delete_keys(self, entry: AuditedEntry) -> None:
        paths = [self._path(number) for number in entry.equality_ids]
        reader = PlainRows(self.metadata.columns, {number for path in paths for number in path})
        fields = self.metadata.specs.get(entry.spec_id, ())
        is_global = all(each.transform == "void" for each in fields)
        keys = self._keys.setdefault((entry.equality_ids, None if is_global else place_of(entry, fields)), {})
        for row in reader.of_file(self.store, entry):
            key = key_of(row, paths)
            keys[key] = max(entry.sequence, keys.get(key, 0))

    def _gone(self, entry: AuditedEntry) -> Any:
        """The positions that are deleted. A vector has also those of earlier delete files."""
        sequence, positions = self._vectors.get(entry.path, (-1, None))
        if positions is not None and sequence >= entry.sequence:
            return positions
        apply = [each for of, each in self._positions.get(entry.path, ()) if of >= entry.sequence]
        return BitMap64.union(*apply) if apply else BitMap64()

    def _of_keys(self, entry: AuditedEntry) -> Iterator[tuple[Sequence[Sequence[int]], Mapping[bytes, int]]]:
        place = place_of(entry, self.metadata.specs.get(entry.spec_id, ()))
        for (ids, of), keys in self._keys.items():
            if of in (None, place):
                yield [self._path(number) for number in ids], keys

    def _is_deleted(
        self, row: PlainRow, entry: AuditedEntry, paths: Sequence[Sequence[int]], keys: Mapping[bytes, int]
    ) -> bool:
        return keys.get(key_of(row, paths), -1) > entry.sequence
