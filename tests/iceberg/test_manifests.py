"""What commits write into manifests: delete files in few of a bounded size, and row ids that never change."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestFile

from calving.iceberg import snapshot
from calving.iceberg.catalog import open_catalog
from calving.iceberg.manifests import FIRST_ROW_ID, at, read_entries, read_manifest_list
from harness.duckdb_extensions import duckdb_rows
from tests.iceberg.histories import MutationTable, create, play, pyiceberg_rows

FILES = 11
AT_ONCE = 3


@pytest.fixture
def flat(tmp_path: Path) -> MutationTable:
    """Of several data files with three rows each."""
    table = create(open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)}), "flat", 2)
    table.commit(*(table.step([row(10 * file + n, "a") for n in range(3)]) for file in range(FILES)))
    return table


@pytest.fixture
def catalog(rest_uri: str) -> Catalog:
    return open_catalog("iceberg", {"type": "rest", "uri": rest_uri})


def row(key: int, name: str) -> dict[str, object]:
    return {"id": key, "name": name, "g": 0}


def manifests(table: MutationTable, content: ManifestContent) -> list[ManifestFile]:
    head = table.table.current_snapshot()
    assert head is not None
    return [m for m in read_manifest_list(table.table.io, head.manifest_list) if m.content is content]


def live(manifest: ManifestFile) -> int:
    return (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)


def row_ids(table: MutationTable) -> dict[str, int]:
    """The first row id of each data file."""
    found = {}
    for manifest in manifests(table, ManifestContent.DATA):
        for entry in read_entries(table.table.io, manifest):
            assert entry.data_file.content is DataFileContent.DATA
            found[entry.data_file.file_path] = at(entry.data_file, FIRST_ROW_ID)
    return found


def test_delete_files_of_a_spec_are_in_one_manifest(flat: MutationTable) -> None:
    for file in range(FILES):
        flat.commit(flat.step([row(10 * file, "b")]))
    (only,) = manifests(flat, ManifestContent.DELETES)
    assert live(only) == FILES


@pytest.mark.parametrize("codec", ["gzip", "zstd", "snappy", "uncompressed"])
def test_a_table_with_any_codec_of_avro_takes_rows(flat: MutationTable, codec: str) -> None:
    """pyiceberg knows other names, and writes manifests with the codec of the data files."""
    with flat.table.transaction() as change:
        change.set_properties({"write.avro.compression-codec": codec})
    flat.commit(flat.step([row(0, "b"), row(500, "c")]))
    assert pyiceberg_rows(flat.table) == flat.rows()


def test_a_manifest_of_delete_files_has_no_more_entries_than_allowed(
    flat: MutationTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule P5."""
    monkeypatch.setattr(snapshot, "_DELETES_AT_ONCE", AT_ONCE)
    flat.commit(flat.step([row(10 * file, "b") for file in range(FILES)]))
    assert sorted(map(live, manifests(flat, ManifestContent.DELETES))) == [2, 3, 3, 3]
    assert pyiceberg_rows(flat.table) == duckdb_rows(flat.table) == flat.rows()


def test_a_full_manifest_of_delete_files_stays_until_one_of_its_files_is_replaced(
    flat: MutationTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "_DELETES_AT_ONCE", AT_ONCE)
    flat.commit(flat.step([row(10 * file, "b") for file in range(FILES)]))
    full = {m.manifest_path for m in manifests(flat, ManifestContent.DELETES) if live(m) == AT_ONCE}
    flat.commit(flat.step([row(1, "c")]))
    now = manifests(flat, ManifestContent.DELETES)
    assert len(full & {m.manifest_path for m in now}) == len(full) - 1
    assert max(map(live, now)) <= AT_ONCE
    assert sum(map(live, now)) == FILES
    assert pyiceberg_rows(flat.table) == duckdb_rows(flat.table) == flat.rows()


@pytest.mark.services
@pytest.mark.parametrize("layout", ["flat", "by key", "evolved"])
def test_a_data_file_keeps_its_row_ids(catalog: Catalog, layout: str) -> None:
    """Through commits that rewrite its manifest, because a data file without rows has left, or to merge manifests."""
    table = create(catalog, layout, 3)
    with table.table.transaction() as change:
        change.set_properties({"commit.manifest.min-count-to-merge": "3", "commit.manifest-merge.enabled": "true"})
    first: dict[str, int] = {}
    for seed in range(12):
        play(table, layout if seed == 0 else "flat", seed, 2)
        now = row_ids(table)
        assert all(now[path] == first[path] for path in now.keys() & first.keys())
        first |= now
    assert len(first) > len(row_ids(table)), "no data file has left"
    assert pyiceberg_rows(table.table) == table.rows()
