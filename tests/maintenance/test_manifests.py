"""Merged manifests name the same files, with the same numbers."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table.update import UpgradeFormatVersionUpdate

from calving.iceberg.catalog import open_catalog
from calving.iceberg.live_files import partition_of
from calving.iceberg.manifests import read_entries
from calving.maintenance.manifests import TARGET_BYTES, ManifestMerger
from harness.duckdb_extensions import duckdb_rows
from tests.iceberg.histories import MutationTable, play, pyiceberg_rows
from tests.iceberg.lake import Lake
from tests.maintenance.compacting import appended
from tests.maintenance.expiring import set_properties
from tests.maintenance.merging import entries_of, manifests_of, merge, merger_of


@pytest.mark.parametrize("version", [1, 2, 3])
def test_manifests_of_appends_become_one_and_no_entry_changes(catalog: Catalog, version: int) -> None:
    table = appended(catalog, version, 6)
    before = entries_of(table.table)
    (done,) = merge(table)
    assert done.change is not None and len(done.change.inputs) == 6
    assert len(manifests_of(table.table)) == 1 and entries_of(table.table) == before
    assert pyiceberg_rows(table.table) == table.rows()


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("layout", ["flat", "by key", "moving", "evolved"])
def test_nor_does_a_row_of_a_table_whose_rows_change(catalog: Catalog, layout: str, version: int) -> None:
    table = appended(catalog, version, 2, layout=layout)
    play(table, layout, seed=version, commits=8)
    before, many = entries_of(table.table), len(manifests_of(table.table))
    assert merge(table)
    assert entries_of(table.table) == before and len(manifests_of(table.table)) < many
    assert pyiceberg_rows(table.table) == duckdb_rows(table.table) == table.rows()
    play(table, "", seed=9, commits=3)
    assert pyiceberg_rows(table.table) == table.rows()


def test_deletion_vectors_of_one_puffin_file_keep_their_places(catalog: Catalog) -> None:
    table = appended(catalog, 3, 4)
    table.commit(table.step([], [{"id": key} for key in (0, 1001, 2002)]))
    before = entries_of(table.table)
    assert merge(table)
    assert entries_of(table.table) == before
    assert len({row[:2] for row in before if row[8] == 1}) == 3
    assert duckdb_rows(table.table) == table.rows()


def upgrade(table: MutationTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a server of a REST catalog does."""
    monkeypatch.setattr("pyiceberg.table.update.SUPPORTED_TABLE_FORMAT_VERSION", 3)
    table.catalog.commit_table(table.table, (), (UpgradeFormatVersionUpdate(format_version=3),))


def test_rows_of_before_the_upgrade_to_version_3_get_ids_and_keep_them(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = appended(catalog, 2, 4)
    upgrade(table, monkeypatch)
    assert merge(table)
    first = {row[0]: row[4] for row in entries_of(table.table)}
    assert sorted(first.values()) == [0, 10, 20, 30]
    table.commit(table.step([], inserts=[{"id": 99, "name": "a", "g": 0}]))
    assert merge(table)
    later = {row[0]: row[4] for row in entries_of(table.table)}
    assert first.items() < later.items() and sorted(later.values()) == [0, 10, 20, 30, 40]


def test_manifests_of_before_and_after_the_upgrade_are_merged(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = appended(catalog, 2, 3)
    upgrade(table, monkeypatch)
    table.commit(table.step([], [{"id": 1001}], inserts=[{"id": 99, "name": "a", "g": 0}]))
    before = entries_of(table.table)
    assert None not in {row[4] for row in before if row[8] == 0}
    assert merge(table)
    assert entries_of(table.table) == before
    assert pyiceberg_rows(table.table) == duckdb_rows(table.table) == table.rows()


def test_each_manifest_has_files_of_neighbouring_partitions(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calving.iceberg.manifest_writers._ENTRIES_OF_BLOCK", 4)
    table = appended(catalog, 2, 12, layout="moving")
    largest = max(manifest.manifest_length for manifest in manifests_of(table.table))
    set_properties(table, {TARGET_BYTES: str(largest * 4 // 3 + 1)})
    assert merge(table)
    ranges = sorted(
        (min(values), max(values))
        for manifest in manifests_of(table.table)
        if (values := [partition_of(entry.data_file) for entry in read_entries(table.table.io, manifest)])
    )
    assert len(ranges) > 1
    assert all(earlier[1] <= later[0] for earlier, later in pairwise(ranges))


def test_equality_deletes_keep_what_they_delete(catalog: Catalog) -> None:
    table = appended(catalog, 2, 2)
    table.equality = True
    for number in range(4):
        table.commit(table.step([{"id": 1000 + number, "name": "b", "g": 0}]))
    before = entries_of(table.table)
    merge(table)
    assert entries_of(table.table) == before and duckdb_rows(table.table) == table.rows()


def test_what_was_merged_is_not_due_again(catalog: Catalog) -> None:
    table = appended(catalog, 2, 6)
    merge(table)
    assert merger_of(table).plan(table.table) == ()


def test_the_snapshot_says_that_it_replaces_nothing_but_manifests(catalog: Catalog) -> None:
    table = appended(catalog, 2, 6)
    merge(table)
    head = table.table.current_snapshot()
    assert head is not None and head.summary is not None
    assert head.summary.operation.value == "replace"
    said = head.summary.additional_properties
    assert (said["total-data-files"], said["total-records"]) == ("6", "60")
    assert "deleted-data-files" not in said and "added-data-files" not in said


@pytest.fixture(params=["1", "2"], ids=["version 1", "version 2"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return Lake(open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)}), request.param, "work")


def test_the_ledger_of_a_branch_is_carried_on_and_entries_that_are_replayed_add_nothing(lake: Lake) -> None:
    published = []
    for number in range(4):
        published.append(lake.publish(10 * number, 10 * number + 10))
        lake.settle(published[-1])
    ledger, head = lake.ledger, lake.head
    merger = ManifestMerger(lake.catalog, ("db", "t"), lake.key, {}, 2)
    (group,) = merger.plan(lake.table)
    assert merger.merge(lake.table, group).change is not None
    assert lake.head != head and lake.ledger == ledger
    lake.settle(*published)
    lake.commit(40, 50)
    assert lake.rows == list(range(50))
