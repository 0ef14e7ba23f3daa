"""One snapshot of data and delete files, built on pyiceberg's internals (0.12; pinned).

What it adds to pyiceberg's append: files of any spec of the table, delete files beside data files in one snapshot, no
copy of the table's metadata per access (pyiceberg makes a dozen per commit), and three corrections without which Java
cannot read the table: field 135 is a list of int, summary values are strings, a snapshot is never older than the last.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

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
from pyiceberg.table.snapshots import Operation, SnapshotSummaryCollector, Summary, update_snapshot_summaries
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate, TableRequirement, TableUpdate
from pyiceberg.table.update.snapshot import _MergeAppendFiles
from pyiceberg.types import IntegerType, ListType, NestedField, StructType

from calving.model import files
from calving.writing.partitioning import partition_path, to_record

_DATA_FILE = 2
_EQUALITY_IDS = 135


class _PlainTransaction:
    """What a snapshot producer needs of a transaction."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self.table_metadata: TableMetadata = table.metadata


class _NullableSpec(PartitionSpec):
    """A partition value may always be null. pyiceberg takes it for required where its column is, but in a struct
    that is null a required field has none.
    """

    def partition_type(self, schema: Schema) -> StructType:
        fields = super().partition_type(schema).fields
        return StructType(*(NestedField(f.field_id, f.name, f.field_type, required=False) for f in fields))


class _DeleteManifestWriter(ManifestWriterV2):
    """pyiceberg only writes data manifests."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    def _with_partition(self, format_version: Any) -> Schema:
        return integer_equality_ids(super()._with_partition(format_version))

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class _SummaryCollector(SnapshotSummaryCollector):
    """Names partitions as their files' paths do: pyiceberg's own names end with Python's dates."""

    def update_partition_metrics(
        self, partition_spec: PartitionSpec, file: DataFile, is_add_file: bool, schema: Schema
    ) -> None:
        self.partition_metrics[partition_path(file.partition, partition_spec, schema)].add_file(file)


class SinkSnapshot(_MergeAppendFiles):
    """Collects files, then ``prepare``s the updates and requirements of one commit. Nothing is retried here."""

    def __init__(self, table: Table, summary: Mapping[str, str], branch: str) -> None:
        properties = {key: str(value) for key, value in summary.items()}
        super().__init__(Operation.APPEND, _PlainTransaction(table), table.io, branch, None, properties)  # type: ignore[arg-type]
        self._delete_files: list[DataFile] = []

    def add(self, found: Iterable[files.DataFile]) -> None:
        metadata = self._transaction.table_metadata
        specs, schema = metadata.specs(), metadata.schema()
        for file in found:
            converted = to_pyiceberg(file, specs[file.spec_id], schema, metadata.format_version)
            is_data = file.content is files.FileContent.DATA
            (self._added_data_files if is_data else self._delete_files).append(converted)

    def prepare(self) -> tuple[tuple[TableUpdate, ...], tuple[TableRequirement, ...]]:
        """Write the manifests and the manifest list."""
        updates, requirements = self._commit()
        updates = tuple(self._with_retention(update) for update in updates)
        added = updates[0]
        last = self._transaction.table_metadata.last_updated_ms
        if isinstance(added, AddSnapshotUpdate) and added.snapshot.timestamp_ms <= last:
            # Java refuses a table whose snapshot log goes back by more than a minute: a clock may.
            snapshot = added.snapshot.model_copy(update={"timestamp_ms": last + 1})
            updates = (added.model_copy(update={"snapshot": snapshot}), *updates[1:])
        return updates, requirements

    def _with_retention(self, update: TableUpdate) -> TableUpdate:
        """What somebody has said about how long a branch is kept: to move its head without it would unsay it."""
        if not isinstance(update, SetSnapshotRefUpdate):
            return update
        ref = self._transaction.table_metadata.refs.get(update.ref_name)
        kept = ("max_ref_age_ms", "max_snapshot_age_ms", "min_snapshots_to_keep") if ref is not None else ()
        return update.model_copy(update={name: getattr(ref, name) for name in kept})

    def discard(self) -> None:
        """Delete what ``prepare`` wrote. Only when it is certain that the commit has not landed."""
        self._clean_all_uncommitted()

    def spec(self, spec_id: int) -> PartitionSpec:
        """As manifests are written by it."""
        found = super().spec(spec_id)
        return _NullableSpec(*found.fields, spec_id=found.spec_id)

    def _manifests(self) -> list[ManifestFile]:
        data = self._write(self._added_data_files, self.new_manifest_writer)
        deletes = self._write(self._delete_files, self._new_delete_writer)
        found = self._process_manifests(data + deletes + self._existing_manifests())
        listed = {manifest.manifest_path for manifest in found}
        for path in [path for path in self._written_manifests if path not in listed]:  # merged at once
            self._written_manifests.remove(path)
            with contextlib.suppress(Exception):  # a file that stays is an orphan, no harm
                self._io.delete(path)
        return found

    def _new_delete_writer(self, spec: PartitionSpec) -> ManifestWriter:
        return _DeleteManifestWriter(
            spec, self.schema(), self.new_manifest_output(), self._snapshot_id, self._compression
        )

    def _write(
        self, found: list[DataFile], open_writer: Callable[[PartitionSpec], ManifestWriter]
    ) -> list[ManifestFile]:
        by_spec: dict[int, list[DataFile]] = defaultdict(list)
        for file in found:
            by_spec[file.spec_id].append(file)
        manifests = []
        for spec_id, members in by_spec.items():
            with open_writer(self.spec(spec_id)) as writer:
                for file in members:
                    writer.add_entry(
                        ManifestEntry.from_args(
                            status=ManifestEntryStatus.ADDED,
                            snapshot_id=self._snapshot_id,
                            sequence_number=None,
                            file_sequence_number=None,
                            data_file=file,
                        )
                    )
            manifests.append(writer.to_manifest_file())
        return manifests

    def _summary(self, snapshot_properties: dict[str, str] | None = None) -> Summary:
        metadata = self._transaction.table_metadata
        limit = metadata.properties.get(
            TableProperties.WRITE_PARTITION_SUMMARY_LIMIT, TableProperties.WRITE_PARTITION_SUMMARY_LIMIT_DEFAULT
        )
        collector = _SummaryCollector(partition_summary_limit=int(limit))
        specs, schema = metadata.specs(), metadata.schema()
        for file in self._added_data_files + self._delete_files:
            collector.add_file(data_file=file, partition_spec=specs[file.spec_id], schema=schema)
        parent = self._parent_snapshot_id
        previous = metadata.snapshot_by_id(parent) if parent is not None else None
        operation = Operation.OVERWRITE if self._delete_files else Operation.APPEND
        return update_snapshot_summaries(
            Summary(operation=operation, **{**(snapshot_properties or {}), **collector.build()}),
            previous.summary if previous is not None else None,
        )


def to_pyiceberg(file: files.DataFile, spec: PartitionSpec, schema: Schema, version: int) -> DataFile:
    """The file as a manifest entry of a table of this format version holds it."""
    converted = DataFile.from_args(
        # Before version 3 pyiceberg writes from the fields of version 2.
        3 if version >= 3 else 2,
        content=DataFileContent(int(file.content)),
        file_path=file.file_path,
        file_format=FileFormat(file.file_format.upper()),
        partition=to_record(file.partition, spec, schema),
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
    )
    converted.spec_id = file.spec_id
    return converted


def _plain(mapping: Mapping[int, Any] | None) -> dict[int, Any] | None:
    return dict(mapping) if mapping is not None else None


def integer_equality_ids(schema: Schema) -> Schema:
    """pyiceberg 0.12 declares ``equality_ids`` as list<long>; the spec, and Java, want list<int>."""
    data_file = schema.find_type(_DATA_FILE)
    if not isinstance(data_file, StructType):
        raise TypeError("a manifest entry without data_file")
    ids = ListType(_EQUALITY_IDS + 1, IntegerType(), element_required=True)
    fields = [
        NestedField(_EQUALITY_IDS, "equality_ids", ids, required=False) if f.field_id == _EQUALITY_IDS else f
        for f in data_file.fields
    ]
    return Schema(
        *(
            NestedField(_DATA_FILE, "data_file", StructType(*fields), required=True) if f.field_id == _DATA_FILE else f
            for f in schema.fields
        )
    )


def java_date_time(micros: int) -> str:
    """Java's ``OffsetDateTime.toString()`` in UTC: no seconds if zero, a fraction of 3 or 6 digits."""
    seconds, fraction = divmod(micros, 1_000_000)
    moment = datetime.fromtimestamp(seconds, UTC)
    text = moment.strftime("%Y-%m-%dT%H:%M")
    if moment.second or fraction:
        text += moment.strftime(":%S")
    if fraction:
        text += f".{fraction // 1000:03d}" if fraction % 1000 == 0 else f".{fraction:06d}"
    return text + "Z"
