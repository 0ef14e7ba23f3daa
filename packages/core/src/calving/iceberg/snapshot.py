"""One snapshot of data and delete files, built on pyiceberg's internals (0.12; pinned).

Beyond pyiceberg's append it supports files of any spec of the table, delete files and data files in one snapshot, and
removed files. It does not copy the table's metadata on each access; pyiceberg does so a dozen times per commit. And it
makes three corrections without which Java cannot read the table: field 135 is a list of int, summary values are
strings, and a snapshot is never older than the previous one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from pyiceberg.manifest import (
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriter,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)
from pyiceberg.table.update.snapshot import _MergeAppendFiles

from calving.iceberg.locations import delete_orphans
from calving.iceberg.manifest_writers import (
    DeleteManifestWriter,
    WritableSpec,
    added_by,
)
from calving.iceberg.manifests import (
    FileKey,
    key_of,
    partition_sources,
    read_all_entries,
    read_entries,
    to_pyiceberg,
)
from calving.iceberg.summary import summary_of
from calving.model import files

_DELETES_AT_ONCE = 10_000
"""The most entries of one manifest of delete files."""


class _PlainTransaction:
    """The part of a transaction that a snapshot producer uses."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self.table_metadata: TableMetadata = table.metadata


class SinkSnapshot(_MergeAppendFiles):
    """Collects files, then ``prepare``s the updates and requirements of one commit. Nothing is retried here."""

    def __init__(self, table: Table, summary: Mapping[str, str], branch: str) -> None:
        properties = {key: str(value) for key, value in summary.items()}
        super().__init__(Operation.APPEND, _PlainTransaction(table), table.io, branch, None, properties)  # type: ignore[arg-type]
        # As in Java, write.avro.compression-codec is for data files; pyiceberg does not know all that these may have.
        self._compression = "deflate"
        self._delete_files: list[DataFile] = []
        self._written: list[str] = []
        self._to_remove: frozenset[FileKey] = frozenset()
        self._to_rewrite: frozenset[str] = frozenset()
        self._known: Mapping[str, Sequence[ManifestEntry]] = {}
        self._removed: list[DataFile] = []
        self._corrected: Mapping[FileKey, DataFile] = {}
        self._replaces = False
        self._merged: frozenset[str] = frozenset()
        self._in_their_place: Sequence[ManifestFile] = ()
        self._data_sequence: int | None = None
        self._sources = partition_sources(table.metadata)

    def add_deletes(self, found: Iterable[DataFile], written: Iterable[str]) -> None:
        """Add delete files; ``written`` are the paths of files that only this snapshot uses."""
        self._delete_files += found
        self._written += written

    def remove(
        self, found: Collection[FileKey], manifests: Collection[str], known: Mapping[str, Sequence[ManifestEntry]]
    ) -> None:
        """Remove files of the table; ``manifests`` name them. ``known``: live entries of manifests that were read."""
        self._to_remove, self._to_rewrite, self._known = frozenset(found), frozenset(manifests), known

    def correct(self, entries: Mapping[FileKey, DataFile], manifests: Collection[str]) -> None:
        """Replace the entries of these files; ``manifests`` name them. The files and their rows stay as they are."""
        self._corrected, self._to_rewrite = entries, frozenset(manifests)

    def replace(self, outputs: Iterable[files.DataFile], sequence: int | None) -> None:
        """Add data files with the rows of removed ones. ``sequence``: their data sequence number, so that equality
        deletes that came later still apply to these rows; None in format version 1, which has none.
        """
        self.add(outputs)
        self._replaces, self._data_sequence = True, sequence

    def rearrange(self, merged: Collection[str], manifests: Sequence[ManifestFile]) -> None:
        """Name other manifests with the same live entries, which the caller has written with ``existing_writer``, in
        place of the ``merged`` ones.
        """
        self._merged, self._in_their_place = frozenset(merged), manifests

    def existing_writer(self, content: ManifestContent, spec_id: int) -> ManifestWriter:
        """Writes one of the manifests of ``rearrange``."""
        spec = self.spec(spec_id)
        return self.new_manifest_writer(spec) if content == ManifestContent.DATA else self._new_delete_writer(spec)

    def add(self, found: Iterable[files.DataFile]) -> None:
        specs = self._transaction.table_metadata.specs()
        for file in found:
            converted = to_pyiceberg(file, specs[file.spec_id], self._sources)
            is_data = file.content is files.FileContent.DATA
            (self._added_data_files if is_data else self._delete_files).append(converted)

    def prepare(self) -> tuple[tuple[TableUpdate, ...], tuple[TableRequirement, ...]]:
        """Write the manifests and the manifest list."""
        updates, requirements = self._commit()
        updates = tuple(self._with_retention(update) for update in updates)
        added = updates[0]
        last = self._transaction.table_metadata.last_updated_ms
        if isinstance(added, AddSnapshotUpdate) and added.snapshot.timestamp_ms <= last:
            # Java refuses a table whose snapshot log goes back in time by more than a minute. A clock may go back that
            # far.
            snapshot = added.snapshot.model_copy(update={"timestamp_ms": last + 1})
            updates = (added.model_copy(update={"snapshot": snapshot}), *updates[1:])
        return updates, requirements

    def _with_retention(self, update: TableUpdate) -> TableUpdate:
        """The update, with the branch's retention settings. Without them, moving the head would remove the settings."""
        if not isinstance(update, SetSnapshotRefUpdate):
            return update
        ref = self._transaction.table_metadata.refs.get(update.ref_name)
        kept = ("max_ref_age_ms", "max_snapshot_age_ms", "min_snapshots_to_keep") if ref is not None else ()
        return update.model_copy(update={name: getattr(ref, name) for name in kept})

    def discard(self) -> None:
        """Delete the files that ``prepare`` wrote. Call it only if the commit has certainly not landed."""
        self._clean_all_uncommitted()
        delete_orphans(self._io, self._written)

    def spec(self, spec_id: int) -> PartitionSpec:
        """The spec for writing manifests."""
        return WritableSpec.of(super().spec(spec_id), self._sources)

    def _manifests(self) -> list[ManifestFile]:
        existing = [m for m in self._existing_manifests() if m.has_added_files() or m.has_existing_files()]
        if self._merged:
            kept = (manifest for manifest in existing if manifest.manifest_path not in self._merged)
            return [*(added_by(manifest, self._snapshot_id) for manifest in self._in_their_place), *kept]
        data = self._written_data()
        for manifest in existing:
            # Manifests of format version 1 have the plain number.
            if manifest.content == ManifestContent.DATA:
                data.append(self._rewritten(manifest) if manifest.manifest_path in self._to_rewrite else manifest)
        deletes = self._delete_manifests([m for m in existing if m.content == ManifestContent.DELETES])
        manifests = self._process_manifests(data + deletes)
        listed = {manifest.manifest_path for manifest in manifests}
        merged = [path for path in self._written_manifests if path not in listed]  # at once
        for path in merged:
            self._written_manifests.remove(path)
        delete_orphans(self._io, merged)
        return manifests

    def fetch_manifest_entry(self, manifest: ManifestFile, discard_deleted: bool = True) -> list[ManifestEntry]:
        """The entries of a manifest that is merged with others."""
        return read_all_entries(self._io, manifest)

    def _rewritten(self, manifest: ManifestFile) -> ManifestFile:
        """A copy of a manifest of data files in which the removed files are marked as deleted."""
        return self._manifest(
            self.new_manifest_writer(self.spec(manifest.partition_spec_id)), self._kept_or_deleted(manifest)
        )

    def _delete_manifests(self, existing: list[ManifestFile]) -> list[ManifestFile]:
        """P5: if delete files of a spec change, rewrite them into as few manifests as possible."""
        changed = {file.spec_id for file in self._delete_files}
        changed |= {m.partition_spec_id for m in existing if m.manifest_path in self._to_rewrite}
        kept = [m for m in existing if m.partition_spec_id not in changed or self._is_full(m)]
        by_spec: dict[int, list[ManifestEntry]] = {spec_id: [] for spec_id in changed}
        for manifest in existing:
            if manifest not in kept:
                by_spec[manifest.partition_spec_id] += self._kept_or_deleted(manifest)
        for file in self._delete_files:
            by_spec[file.spec_id].append(self._added(file))
        return kept + [
            self._manifest(self._new_delete_writer(self.spec(spec_id)), entries)
            for spec_id, entries_of_spec in by_spec.items()
            for entries in _cut(entries_of_spec)
        ]

    def _is_full(self, manifest: ManifestFile) -> bool:
        """Whether a manifest of delete files has reached its limit of entries, and loses no file."""
        live = (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)
        return manifest.manifest_path not in self._to_rewrite and live >= _DELETES_AT_ONCE

    def _manifest(self, writer: ManifestWriter, entries: Iterable[ManifestEntry]) -> ManifestFile:
        with writer:
            for entry in entries:
                writer.add_entry(entry)
        return writer.to_manifest_file()

    def _kept_or_deleted(self, manifest: ManifestFile) -> Iterator[ManifestEntry]:
        """The live entries of a manifest, as its rewritten manifest holds them."""
        for entry in self._known.get(manifest.manifest_path) or read_entries(self._io, manifest):
            is_gone = key_of(entry.data_file) in self._to_remove
            if is_gone:
                self._removed.append(entry.data_file)
            yield ManifestEntry.from_args(
                status=ManifestEntryStatus.DELETED if is_gone else ManifestEntryStatus.EXISTING,
                snapshot_id=self._snapshot_id if is_gone else entry.snapshot_id,
                sequence_number=entry.sequence_number,
                file_sequence_number=entry.file_sequence_number,
                data_file=self._corrected.get(key_of(entry.data_file), entry.data_file),
            )

    def _added(self, file: DataFile, sequence: int | None = None) -> ManifestEntry:
        return ManifestEntry.from_args(
            status=ManifestEntryStatus.ADDED,
            snapshot_id=self._snapshot_id,
            sequence_number=sequence,
            file_sequence_number=None,
            data_file=file,
        )

    def _new_delete_writer(self, spec: PartitionSpec) -> ManifestWriter:
        return DeleteManifestWriter(*self._about_manifest(spec))

    def _about_manifest(self, spec: PartitionSpec) -> tuple[Any, ...]:
        return spec, self.schema(), self.new_manifest_output(), self._snapshot_id, self._compression

    def _written_data(self) -> list[ManifestFile]:
        by_spec: dict[int, list[ManifestEntry]] = defaultdict(list)
        for file in self._added_data_files:
            by_spec[file.spec_id].append(self._added(file, self._data_sequence))
        return [
            self._manifest(self.new_manifest_writer(self.spec(spec_id)), members)
            for spec_id, members in by_spec.items()
        ]

    @property
    def _kind(self) -> Operation:
        """P7."""
        if self._corrected or self._replaces or self._merged:
            return Operation.REPLACE
        if not self._delete_files and not self._removed:
            return Operation.APPEND
        return Operation.OVERWRITE if self._added_data_files else Operation.DELETE

    def _summary(self, snapshot_properties: dict[str, str] | None = None) -> Summary:
        return summary_of(
            self._transaction.table_metadata,
            self._parent_snapshot_id,
            self._kind,
            snapshot_properties or {},
            added=self._added_data_files + self._delete_files,
            removed=self._removed,
            sources=self._sources,
        )


def _cut(entries: list[ManifestEntry]) -> Iterator[list[ManifestEntry]]:
    return (entries[start : start + _DELETES_AT_ONCE] for start in range(0, len(entries), _DELETES_AT_ONCE))
