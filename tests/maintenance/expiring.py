"""Tables whose snapshots expire, and what names a file."""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table import Table

from calving.iceberg.catalog import table_id
from calving.iceberg.manifests import read_all_entries, read_manifest_list
from calving.maintenance.expirer import ExpiredSnapshots, Expirer, FileDeletion
from tests.iceberg.histories import KEY, MutationTable, create

GRACE_MS = 1_000
NOW = 2_000_000_000_000
"""Later than every snapshot of a test."""


def expiring(catalog: Catalog, version: int, most: int = 2, **more: Any) -> MutationTable:
    table = create(catalog, more.pop("layout", "flat"), version, **more)
    if version == 1:
        table.resolver = None  # type: ignore[assignment]
    set_properties(table, {"calving.expire.max-snapshots": str(most)})
    return table


def set_properties(table: MutationTable, properties: dict[str, str]) -> None:
    with table.table.transaction() as change:
        change.set_properties(properties)


def expirer_of(table: MutationTable, grace_ms: int = GRACE_MS) -> Expirer:
    return Expirer(table.catalog, table_id(table.name), KEY, grace_ms, sleep=lambda seconds: None)


def expire(table: MutationTable, now_ms: int = NOW) -> ExpiredSnapshots | None:
    return expirer_of(table).expire(now_ms)


def delete(table: MutationTable, now_ms: int = NOW + GRACE_MS, held: Collection[str] = ()) -> FileDeletion | None:
    return expirer_of(table).delete(now_ms, lambda metadata: held)


def named(table: Table) -> set[str]:
    """The files that a snapshot names: those that it has, and those that it removed."""
    files: set[str] = set()
    ids = {snapshot.snapshot_id for snapshot in table.metadata.snapshots}
    for snapshot in table.metadata.snapshots:
        files.add(snapshot.manifest_list)
        for manifest in read_manifest_list(table.io, snapshot.manifest_list):
            files.add(manifest.manifest_path)
            for entry in read_all_entries(table.io, manifest):
                if entry.status is not ManifestEntryStatus.DELETED or entry.snapshot_id in ids:
                    files.add(entry.data_file.file_path)
    return files


def stored(table: Table) -> set[str]:
    """The files of the table on the storage, without versions of the metadata, lists of expired files, and key files,
    which no snapshot ever names.
    """
    folder = Path(table.location().removeprefix("file://"))
    files = {f"file://{path}" for path in folder.rglob("*") if path.is_file()}
    return {file for file in files if not file.endswith((".metadata.json", ".json.z", "-keys.parquet"))}


def listed(table: Table) -> set[str]:
    """The files that lists of expired files name."""
    folder = Path(table.location().removeprefix("file://"))
    return {
        file
        for path in folder.rglob("calving-expired-*")
        for file in json.loads(zlib.decompress(path.read_bytes()))["files"]
    }


def check_files(table: Table) -> None:
    """No file is missing that a snapshot names.

    :raises AssertionError: one is.
    """
    assert named(table) <= stored(table)
