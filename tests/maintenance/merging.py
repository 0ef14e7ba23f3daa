"""Tables with many manifests, which are merged."""

from __future__ import annotations

from typing import Any

from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table

from calving.iceberg.catalog import table_id
from calving.iceberg.live_files import partition_of
from calving.iceberg.manifests import CONTENT_OFFSET, CONTENT_SIZE, FIRST_ROW_ID, REFERENCED, at, read_manifest_list
from calving.maintenance.manifests import ManifestMerger, MergedGroup
from harness.structure import check
from tests.iceberg.histories import KEY, MutationTable
from tests.maintenance.compacting import entries


def merger_of(table: MutationTable, least: int = 2) -> ManifestMerger:
    return ManifestMerger(
        table.catalog, table_id(table.name), KEY, {"engine-name": "calving"}, least, sleep=lambda seconds: None
    )


def merge(table: MutationTable, least: int = 2) -> list[MergedGroup]:
    """Everything that is due, each group in its own commit."""
    own = merger_of(table, least)
    now = table.table
    done = [own.merge(now, group) for group in own.plan(now)]
    check(table.table, table.equality)
    return done


def manifests_of(table: Table) -> list[ManifestFile]:
    head = table.current_snapshot()
    return read_manifest_list(table.io, head.manifest_list) if head is not None else []


def entries_of(table: Table) -> list[tuple[Any, ...]]:
    """All that the live entries say of themselves, in an order of their own."""
    return sorted(
        (
            (
                entry.data_file.file_path,
                at(entry.data_file, CONTENT_OFFSET),
                at(entry.data_file, CONTENT_SIZE),
                at(entry.data_file, REFERENCED),
                at(entry.data_file, FIRST_ROW_ID),
                entry.snapshot_id,
                entry.sequence_number,
                entry.file_sequence_number,
                int(entry.data_file.content),
                entry.data_file.spec_id,
                partition_of(entry.data_file),
                entry.data_file.record_count,
                entry.data_file.lower_bounds,
                entry.data_file.upper_bounds,
                entry.data_file.equality_ids,
            )
            for entry in entries(table)
        ),
        key=repr,
    )
