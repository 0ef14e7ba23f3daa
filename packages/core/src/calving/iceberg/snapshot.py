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

from pydantic import PrivateAttr
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriter,
    ManifestWriterV2,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Summary, update_snapshot_summaries
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate, TableRequirement, TableUpdate
from pyiceberg.table.update.snapshot import _MergeAppendFiles
from pyiceberg.types import IntegerType, ListType, NestedField, StringType, StructType

from calving.iceberg.entries import FileKey, key_of, read_all_entries, read_entries
from calving.iceberg.orphans import delete_orphans
from calving.iceberg.schemas import partition_sources
from calving.iceberg.summary import SummaryCollector
from calving.model import files
from calving.writing.partitioning import to_record

_DATA_FILE = 2
_EQUALITY_IDS = 135
_REFERENCED = NestedField(143, "referenced_data_file", StringType(), required=False)
_DELETES_AT_ONCE = 10_000
"""The most entries of one manifest of delete files."""


class _PlainTransaction:
    """The part of a transaction that a snapshot producer uses."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self.table_metadata: TableMetadata = table.metadata


class _WritableSpec(PartitionSpec):
    """A spec as manifests of the table are written. pyiceberg does not know the type of a column that has been dropped,
    and makes the partition value of a required column required. But a required column within a null struct has no
    value.
    """

    _sources: Schema = PrivateAttr()

    @staticmethod
    def of(spec: PartitionSpec, sources: Schema) -> _WritableSpec:
        made = _WritableSpec(*spec.fields, spec_id=spec.spec_id)
        made._sources = sources
        return made

    def partition_type(self, schema: Schema) -> StructType:
        fields = super().partition_type(self._sources).fields
        return StructType(*(NestedField(f.field_id, f.name, f.field_type, required=False) for f in fields))


class _DeleteManifestWriter(ManifestWriterV2):
    """Writes manifests of delete files, which pyiceberg cannot write."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    def _with_partition(self, format_version: Any) -> Schema:
        return integer_equality_ids(super()._with_partition(format_version))

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}

    def new_writer(self) -> AvroOutputFile[ManifestEntry]:
        """Entries have the fields of version 3. Version 2 allows only one of these fields, the referenced data file."""
        return AvroOutputFile[ManifestEntry](
            output_file=self._output_file,
            file_schema=_with_field(self._with_partition(2), _REFERENCED),
            record_schema=self._with_partition(3),
            schema_name="manifest_entry",
            metadata=self._meta,
        )


class SinkSnapshot(_MergeAppendFiles):
    """Collects files, then ``prepare``s the updates and requirements of one commit. Nothing is retried here."""

    def __init__(self, table: Table, summary: Mapping[str, str], branch: str) -> None:
        properties = {key: str(value) for key, value in summary.items()}
        super().__init__(Operation.APPEND, _PlainTransaction(table), table.io, branch, None, properties)  # type: ignore[arg-type]
        self._delete_files: list[DataFile] = []
        self._written: list[str] = []
        self._to_remove: frozenset[FileKey] = frozenset()
        self._to_rewrite: frozenset[str] = frozenset()
        self._known: Mapping[str, Sequence[ManifestEntry]] = {}
        self._removed: list[DataFile] = []
        self._corrected: Mapping[FileKey, DataFile] = {}
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
        return _WritableSpec.of(super().spec(spec_id), self._sources)

    def _manifests(self) -> list[ManifestFile]:
        existing = [m for m in self._existing_manifests() if m.has_added_files() or m.has_existing_files()]
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
        """Whether a manifest of delete files stays as it is."""
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

    def _added(self, file: DataFile) -> ManifestEntry:
        return ManifestEntry.from_args(
            status=ManifestEntryStatus.ADDED,
            snapshot_id=self._snapshot_id,
            sequence_number=None,
            file_sequence_number=None,
            data_file=file,
        )

    def _new_delete_writer(self, spec: PartitionSpec) -> ManifestWriter:
        return _DeleteManifestWriter(
            spec, self.schema(), self.new_manifest_output(), self._snapshot_id, self._compression
        )

    def _written_data(self) -> list[ManifestFile]:
        by_spec: dict[int, list[DataFile]] = defaultdict(list)
        for file in self._added_data_files:
            by_spec[file.spec_id].append(file)
        return [
            self._manifest(self.new_manifest_writer(self.spec(spec_id)), map(self._added, members))
            for spec_id, members in by_spec.items()
        ]

    @property
    def _kind(self) -> Operation:
        """P7."""
        if self._corrected:
            return Operation.REPLACE
        if not self._delete_files and not self._removed:
            return Operation.APPEND
        return Operation.OVERWRITE if self._added_data_files else Operation.DELETE

    def _summary(self, snapshot_properties: dict[str, str] | None = None) -> Summary:
        metadata = self._transaction.table_metadata
        limit = metadata.properties.get(
            TableProperties.WRITE_PARTITION_SUMMARY_LIMIT, TableProperties.WRITE_PARTITION_SUMMARY_LIMIT_DEFAULT
        )
        collector = SummaryCollector(partition_summary_limit=int(limit))
        specs = metadata.specs()
        for file in self._added_data_files + self._delete_files:
            collector.add_file(data_file=file, partition_spec=specs[file.spec_id], schema=self._sources)
        for file in self._removed:
            collector.remove_file(data_file=file, partition_spec=specs[file.spec_id], schema=self._sources)
        parent = self._parent_snapshot_id
        previous = metadata.snapshot_by_id(parent) if parent is not None else None
        # pyiceberg counts what a snapshot changes, but refuses one that says it replaces.
        counted = Operation.OVERWRITE if self._kind is Operation.REPLACE else self._kind
        return update_snapshot_summaries(
            Summary(operation=counted, **{**(snapshot_properties or {}), **collector.build()}),
            previous.summary if previous is not None else None,
        ).model_copy(update={"operation": self._kind})


def to_pyiceberg(file: files.DataFile, spec: PartitionSpec, sources: Schema) -> DataFile:
    """The file as pyiceberg's ``DataFile`` for a manifest entry. Older format versions omit the last fields.

    ``sources``: has the source columns of the spec.
    """
    converted = DataFile.from_args(
        3,
        content=DataFileContent(int(file.content)),
        file_path=file.file_path,
        file_format=FileFormat(file.file_format.upper()),
        partition=to_record(file.partition, spec, sources),
        record_count=file.record_count,
        file_size_in_bytes=file.file_size_in_bytes,
        column_sizes=_plain(file.column_sizes),
        value_counts=_plain(file.value_counts),
        null_value_counts=_plain(file.null_value_counts),
        nan_value_counts=_plain(file.nan_value_counts),
        lower_bounds=_plain(file.lower_bounds),
        upper_bounds=_plain(file.upper_bounds),
        key_metadata=file.key_metadata,
        split_offsets=list(file.split_offsets) if file.split_offsets else None,
        equality_ids=list(file.equality_ids) if file.equality_ids else None,
        sort_order_id=file.sort_order_id,
        first_row_id=file.first_row_id,
        referenced_data_file=file.referenced_data_file,
        content_offset=file.content_offset,
        content_size_in_bytes=file.content_size_in_bytes,
    )
    converted.spec_id = file.spec_id
    return converted


def _plain(mapping: Mapping[int, Any] | None) -> dict[int, Any] | None:
    return dict(mapping) if mapping is not None else None


def _cut(entries: list[ManifestEntry]) -> Iterator[list[ManifestEntry]]:
    return (entries[start : start + _DELETES_AT_ONCE] for start in range(0, len(entries), _DELETES_AT_ONCE))


def integer_equality_ids(schema: Schema) -> Schema:
    """pyiceberg 0.12 declares ``equality_ids`` as list<long>; the spec, and Java, want list<int>."""
    ids = ListType(_EQUALITY_IDS + 1, IntegerType(), element_required=True)
    return _with_field(schema, NestedField(_EQUALITY_IDS, "equality_ids", ids, required=False))


def _with_field(schema: Schema, wanted: NestedField) -> Schema:
    """The schema of manifest entries, in which ``wanted`` replaces the field of ``data_file`` with the same id."""
    data_file = schema.find_type(_DATA_FILE)
    if not isinstance(data_file, StructType):
        raise TypeError("a manifest entry without data_file")
    fields = {field.field_id: field for field in data_file.fields} | {wanted.field_id: wanted}
    whole = NestedField(_DATA_FILE, "data_file", StructType(*fields.values()), required=True)
    return Schema(*(whole if field.field_id == _DATA_FILE else field for field in schema.fields))
