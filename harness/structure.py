"""Invariants of every snapshot of a table whose rows are changed, or whose files are rewritten."""

from __future__ import annotations

from collections import Counter
from typing import Any, cast

import fastavro
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.puffin import PuffinFile

from calving.iceberg.delete_files import read_positions
from calving.iceberg.live_files import referenced
from calving.iceberg.manifests import (
    CONTENT_OFFSET,
    CONTENT_SIZE,
    FIRST_ROW_ID,
    at,
    is_vector,
    read_entries,
    read_manifest_list,
)

POSITION_OF_ROW = 2147483645
"""The metadata column ``_pos``, which Java names in the vectors that it writes."""


def check(table: Table, equality: bool = False) -> None:
    """The head of the main branch.

    :raises AssertionError: something is not so.
    """
    head = table.current_snapshot()
    assert head is not None
    manifests = read_manifest_list(table.io, head.manifest_list)
    entries = [entry for manifest in manifests for entry in _checked(table.io, manifest)]
    data = {e.data_file.file_path: e for e in entries if e.data_file.content == DataFileContent.DATA}
    deletes = [e for e in entries if e.data_file.content != DataFileContent.DATA]
    assert len(data) + len(deletes) == len(entries), "a data file is named twice"
    positions = [e for e in deletes if e.data_file.content == DataFileContent.POSITION_DELETES]
    assert equality or len(positions) == len(deletes), "there are equality deletes"
    scoped = [(e, path) for e in positions if (path := referenced(e.data_file)) is not None]
    about = Counter(path for _, path in scoped)
    assert all(path in data for path in about), "a delete file is about no live data file"
    ours = {path for e, path in scoped if e.snapshot_id == head.snapshot_id or is_vector(e.data_file)}
    assert all(about[path] == 1 for path in ours), "a data file has several delete files"
    for entry, path in scoped:
        _check_scoped(table, entry, data[path])
        is_ours = entry.snapshot_id == head.snapshot_id
        assert not is_ours or is_vector(entry.data_file) == (table.metadata.format_version >= 3)
        all_of = data[path].data_file.record_count
        assert not is_ours or entry.data_file.record_count < all_of, "a data file without rows is still there"
    vectors = {e.data_file.file_path for e, _ in scoped if e.snapshot_id == head.snapshot_id and is_vector(e.data_file)}
    assert len(vectors) <= 1, "a commit has written several Puffin files"
    for manifest in manifests:
        live = (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)
        assert live or manifest.added_snapshot_id == head.snapshot_id, "a manifest without live entries was carried on"
    if table.metadata.format_version >= 3:
        _check_row_ids([entry.data_file for entry in data.values()], getattr(table.metadata, "next_row_id", None) or 0)


def _checked(io: FileIO, manifest: ManifestFile) -> list[ManifestEntry]:
    live = read_entries(io, manifest)
    with io.new_input(manifest.manifest_path).open() as stream:
        for entry in fastavro.reader(cast(Any, stream)):
            _check_kept_or_dropped(cast(dict[str, Any], entry), manifest)
    rows = sum(entry.data_file.record_count for entry in live)
    assert len(live) == (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)
    assert rows == (manifest.added_rows_count or 0) + (manifest.existing_rows_count or 0)
    assert all(entry.sequence_number is not None and entry.snapshot_id is not None for entry in live)
    assert min((e.sequence_number or 0 for e in live), default=0) >= (manifest.min_sequence_number if live else 0)
    return live


def _check_kept_or_dropped(entry: dict[str, Any], manifest: ManifestFile) -> None:
    if entry["status"] == ManifestEntryStatus.DELETED.value:
        assert entry["snapshot_id"] == manifest.added_snapshot_id, "an entry is deleted by another snapshot"
    if entry["status"] != ManifestEntryStatus.ADDED.value:
        inherited = ("snapshot_id", "sequence_number", "file_sequence_number")
        own = [entry[name] for name in inherited if name in entry]  # version 1 has no sequence numbers
        assert None not in own, "an entry that is not new inherits its snapshot or sequence number"


def _check_scoped(table: Table, entry: ManifestEntry, data: ManifestEntry) -> None:
    file, about = entry.data_file, data.data_file
    assert (entry.sequence_number or 0) >= (data.sequence_number or 0), "a delete does not apply to its data file"
    assert (file.spec_id, file.partition) == (about.spec_id, about.partition)
    assert file.sort_order_id is None
    positions = read_positions(table.io, file, about.file_path)
    assert len(positions) == file.record_count
    assert positions and max(positions) < about.record_count
    if is_vector(file):
        _check_footer(table.io, file, about.file_path)


def _check_footer(io: FileIO, file: DataFile, about: str) -> None:
    with io.new_input(file.file_path).open() as stream:
        content = stream.read()
    assert len(content) == file.file_size_in_bytes
    (blob,) = [b for b in PuffinFile(content).footer.blobs if b.properties["referenced-data-file"] == about]
    assert (blob.type, blob.snapshot_id, blob.sequence_number) == ("deletion-vector-v1", -1, -1)
    assert (blob.offset, blob.length) == (at(file, CONTENT_OFFSET), at(file, CONTENT_SIZE))
    assert blob.properties["cardinality"] == str(file.record_count)
    assert blob.compression_codec is None
    assert blob.fields == [POSITION_OF_ROW]


def _check_row_ids(data: list[DataFile], next_row_id: int) -> None:
    end = 0
    for first, count in sorted((at(file, FIRST_ROW_ID), file.record_count) for file in data):
        assert first >= end, "a row id is given twice"
        end = first + count
    assert end <= next_row_id
