"""Snapshots of tables of format version 3, in which every row has an id."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pyiceberg.avro.codecs import AVRO_CODEC_KEY
from pyiceberg.manifest import ManifestContent, ManifestFile, ManifestWriter
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)
from pyiceberg.table.update.snapshot import _new_manifest_list_file_name

from calving.iceberg.history import ancestors, summary_of
from calving.iceberg.manifest_writers import LineageManifestWriter, number_manifests, write_manifest_list
from calving.iceberg.manifests import LINEAGE_VERSION, LIST_FIRST_ROW_ID, read_manifest_list
from calving.iceberg.snapshot import SinkSnapshot
from calving.protocol.batch_ledger import repeated


class LineageSnapshot(SinkSnapshot):
    """A ``SinkSnapshot`` for tables of format version 3, in which every row has an id.

    pyiceberg 0.12 cannot write their manifest lists. According to the specification (Row Lineage), a snapshot begins at
    the table's ``next-row-id``. From there, each new manifest of data files takes as many ids as it has rows. Manifests
    are not merged, because each entry of a merged manifest would need its own first row id.
    """

    def __init__(self, table: Table, summary: Mapping[str, str], branch: str) -> None:
        super().__init__(table, summary, branch)
        self._branch = branch

    def new_manifest_writer(self, spec: PartitionSpec) -> ManifestWriter:
        return LineageManifestWriter(ManifestContent.DATA, *self._about_manifest(spec))

    def _new_delete_writer(self, spec: PartitionSpec) -> ManifestWriter:
        return LineageManifestWriter(ManifestContent.DELETES, *self._about_manifest(spec))

    def _existing_manifests(self) -> list[ManifestFile]:
        parent = self._parent_snapshot_id
        snapshot = self._transaction.table_metadata.snapshot_by_id(parent) if parent is not None else None
        return read_manifest_list(self._io, snapshot.manifest_list) if snapshot is not None else []

    def _rewritten(self, manifest: ManifestFile) -> ManifestFile:
        made = super()._rewritten(manifest)
        # All entries have their own row ids, so the manifest takes no new ids.
        made._data[LIST_FIRST_ROW_ID] = manifest._data[LIST_FIRST_ROW_ID]
        return made

    def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        return manifests

    def _commit(self) -> tuple[tuple[TableUpdate, ...], tuple[TableRequirement, ...]]:
        metadata = self._transaction.table_metadata
        sequence_number = metadata.next_sequence_number()
        first_row_id = getattr(metadata, "next_row_id", None) or 0
        manifests = self._manifests()
        next_row_id = number_manifests(manifests, sequence_number, first_row_id)
        name = _new_manifest_list_file_name(self._snapshot_id, 0, self.commit_uuid)
        path = self._transaction._table.location_provider().new_metadata_location(name)
        self._written_manifest_lists.append(path)
        parent = self._parent_snapshot_id
        about = {
            "snapshot-id": str(self._snapshot_id),
            "parent-snapshot-id": str(parent) if parent is not None else "null",
            "sequence-number": str(sequence_number),
            "first-row-id": str(first_row_id),
            AVRO_CODEC_KEY: self._compression,
        }
        write_manifest_list(self._io.new_output(path), manifests, about)
        snapshot = Snapshot(
            snapshot_id=self._snapshot_id,
            parent_snapshot_id=parent,
            manifest_list=path,
            sequence_number=sequence_number,
            summary=self._summary(self.snapshot_properties),
            schema_id=metadata.current_schema_id,
            first_row_id=first_row_id,
            added_rows=next_row_id - first_row_id,
        )
        ref = metadata.refs.get(self._branch)
        head = SetSnapshotRefUpdate(
            snapshot_id=self._snapshot_id,
            ref_name=self._branch,
            type=SnapshotRefType.BRANCH,
            max_ref_age_ms=None,
            max_snapshot_age_ms=None,
            min_snapshots_to_keep=None,
        )
        same = AssertRefSnapshotId(snapshot_id=ref.snapshot_id if ref else None, ref=self._branch)
        return (AddSnapshotUpdate(snapshot=snapshot), head), (same,)


def new_snapshot(table: Table, summary: Mapping[str, str], branch: str, dropped: Collection[str] = ()) -> SinkSnapshot:
    """A new snapshot for the table's format version. Beside ``summary`` it repeats what the branch's head says of the
    queries of Spark, without the ``dropped`` entries: so that they are there when the head expires.
    """
    kind = LineageSnapshot if table.metadata.format_version >= LINEAGE_VERSION else SinkSnapshot
    head = next(ancestors(table.metadata, branch), None)
    queries = repeated(summary_of(head), dropped) if head is not None else {}
    return kind(table, {**queries, **summary}, branch)
