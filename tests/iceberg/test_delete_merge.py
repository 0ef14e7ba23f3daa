"""Position deletes become few files beside sinks that commit: no row changes, and readers open fewer files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import UpgradeFormatVersionUpdate
from pyiceberg.typedef import Record

from calving.iceberg import delete_files, delete_merge
from calving.iceberg.delete_merge import SPARSE_FILES, DeleteMerge
from calving.iceberg.live_files import LiveFiles, Manifests, partition_of
from calving.iceberg.maintenance import Maintenance
from harness.duckdb_extensions import duckdb_rows
from harness.forms import forms
from tests.iceberg.foreign_deletes import commit_deletes, delete_positions, places
from tests.iceberg.histories import LAYOUTS, MutationTable, create, play, pyiceberg_rows
from tests.iceberg.lake import Lake
from tests.iceberg.reader import rows_of


def row(key: int, name: str) -> dict[str, object]:
    return {"id": key, "name": name, "g": key % 3}


def filled(catalog: Catalog, layout: str = "flat") -> MutationTable:
    """A table of version 2 with two files, or two for each partition."""
    table = create(catalog, layout, 2)
    table.commit(*(table.step([row(key, "a") for key in keys]) for keys in (range(12), range(12, 24))))
    return table


def upgrade(table: MutationTable) -> None:
    table.catalog.commit_table(table.table, (), (UpgradeFormatVersionUpdate(format_version=3),))


def live(table: MutationTable) -> LiveFiles:
    head = table.table.current_snapshot()
    assert head is not None
    return Manifests(()).live(table.table.io, head.manifest_list)


def kinds(table: MutationTable) -> list[tuple[str, int]]:
    """Format and positions of each delete that is about one data file."""
    deletes = [delete.file for of in live(table).scoped.values() for delete in of]
    return sorted((file.file_format.value, file.record_count) for file in deletes)


def stored(table: MutationTable) -> set[str]:
    location = Path(table.table.location().removeprefix("file://"))
    return {path.name for path in location.rglob("*deletes*")}


def assert_rows(table: MutationTable) -> None:
    assert rows_of(table.table) == pyiceberg_rows(table.table) == duckdb_rows(table.table) == table.rows()


@pytest.mark.parametrize("layout", ["flat", "by key"])
def test_a_file_about_several_data_files_becomes_one_for_each(catalog: Catalog, layout: str) -> None:
    table = filled(catalog, layout)
    delete_positions(table, places(table.table, (0,)))
    wide = len(live(table).wide)
    (done,) = table.merge()
    assert wide == done.files < len(done.deletes) and not live(table).wide
    assert kinds(table) == [("PARQUET", 1)] * len(done.deletes)
    assert_rows(table)


def test_a_file_about_several_data_files_is_merged_with_what_the_sink_has_deleted(catalog: Catalog) -> None:
    table = filled(catalog)
    table.commit(table.step([row(5, "b")]))
    delete_positions(table, [place for place in first_rows(table) if place[1] < 3][:2])
    table.merge()
    assert not live(table).wide
    assert_rows(table)


def test_files_of_version_2_become_vectors_of_one_file(catalog: Catalog) -> None:
    table = filled(catalog)
    table.commit(table.step([], [{"id": 2}, {"id": 20}]))
    delete_positions(table, places(table.table, (0, 1)))
    upgrade(table)
    (done,) = table.merge()
    assert done.files == 3 and len({file.file_path for file in done.deletes}) == 1
    assert not live(table).wide and kinds(table) == [("PUFFIN", 3), ("PUFFIN", 3)]
    assert_rows(table)


def sparse(catalog: Catalog, count: int) -> MutationTable:
    """A table of version 3 with so many Puffin files of which one vector of three is live; and as many others."""
    table = create(catalog, "flat", 3)
    keys = [[10 * (3 * number + file) for file in range(3)] for number in range(count)]
    table.commit(*(table.step([row(key + at, "a") for at in range(5)]) for of_three in keys for key in of_three))
    for first, second, third in keys:
        table.commit(table.step([], [{"id": key} for key in (first, second, third)]))
        table.commit(table.step([], [{"id": key + 1} for key in (first, second)]))
    return table


def puffins(table: MutationTable) -> int:
    return len({delete.file.file_path for of in live(table).scoped.values() for delete in of})


def test_many_puffin_files_of_which_less_than_half_is_live_become_one(catalog: Catalog) -> None:
    table = sparse(catalog, SPARSE_FILES)
    (done,) = table.merge()
    assert done.files == SPARSE_FILES and puffins(table) == SPARSE_FILES + 1
    assert_rows(table)
    assert table.merge() == []


def test_a_few_such_files_stay(catalog: Catalog) -> None:
    table = sparse(catalog, SPARSE_FILES - 1)
    assert table.merge() == [] and puffins(table) == 2 * (SPARSE_FILES - 1)


def test_puffin_files_with_one_live_vector_each_are_not_sparse(catalog: Catalog) -> None:
    table = create(catalog, "flat", 3)
    table.commit(*(table.step([row(10 * number + at, "a") for at in range(5)]) for number in range(SPARSE_FILES)))
    for number in range(SPARSE_FILES):
        table.commit(table.step([], [{"id": 10 * number}]))
    assert table.merge() == [] and puffins(table) == SPARSE_FILES


def test_what_the_sink_deletes_needs_no_merge(catalog: Catalog) -> None:
    table = filled(catalog)
    play(table, "flat", 7, 5)
    before = table.table.metadata_location
    assert table.merge() == [] and table.table.metadata_location == before


def test_several_files_about_one_data_file_become_one(catalog: Catalog) -> None:
    table = filled(catalog)
    (first, *_), at = places(table.table, (0,)), (3, 4)
    for position in at:
        delete_positions(table, [(first[0], position)])
    table.merge()
    assert kinds(table) == [("PARQUET", 2)] and not live(table).wide
    assert_rows(table)


def test_a_file_about_data_files_that_are_gone_is_removed(catalog: Catalog) -> None:
    table = filled(catalog)
    delete_positions(table, places(table.table, (0, 1)))
    table.commit(table.step([], [{"id": key} for key in range(24)]))
    (done,) = table.merge()
    assert done.deletes == () and not live(table).wide
    assert rows_of(table.table) == table.rows() == []


def test_a_delete_of_the_sink_that_comes_meanwhile_is_merged_too(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(catalog)
    delete_positions(table, places(table.table, (0, 1)))
    original, left = DeleteMerge.of, iter(range(2))

    def raced(self: DeleteMerge, loaded: Table, branch: str) -> Any:
        found = original(self, loaded, branch)
        if (number := next(left, None)) is not None:
            table.commit(table.step([row(5 + number, "meanwhile")], [{"id": 20 + number}]))
        return found

    monkeypatch.setattr(DeleteMerge, "of", raced)
    assert len(table.merge()) == 1 and not live(table).wide
    assert_rows(table)
    named = {Path(delete.file.file_path).name for of in live(table).scoped.values() for delete in of}
    assert named <= stored(table)


def test_the_files_of_refused_attempts_are_deleted(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table = filled(catalog)
    delete_positions(table, places(table.table, (0, 1)))
    original, written = DeleteMerge.of, list[str]()

    def raced(self: DeleteMerge, loaded: Table, branch: str) -> Any:
        found = original(self, loaded, branch)
        if not written:
            written.extend(Path(path).name for path in self._deletes.written)
            table.commit(table.step([], [{"id": 5}, {"id": 20}]))
        return found

    monkeypatch.setattr(DeleteMerge, "of", raced)
    table.merge()
    assert written and not stored(table) & set(written)


def test_the_head_of_the_sink_stays_described_and_others_see_the_deletes(catalog: Catalog) -> None:
    table = filled(catalog)
    delete_positions(table, places(table.table, (0, 1)))
    table.merge()
    head = table.table.current_snapshot()
    assert head is not None and head.summary is not None and head.summary.operation is Operation.DELETE
    assert "deleted-records" not in head.summary.additional_properties


def test_a_file_about_many_data_files_is_read_once(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table = filled(catalog)
    delete_positions(table, places(table.table, (0, 1)))
    original, read = delete_files.positions_in, list[str]()

    def counted(io: FileIO, file: DataFile) -> Any:
        read.append(file.file_path)
        return original(io, file)

    monkeypatch.setattr(delete_merge, "positions_in", counted)
    table.merge()
    assert len([path for path in read if "wide" in path]) == 1


def test_one_commit_takes_whole_partitions_the_oldest_first(catalog: Catalog) -> None:
    table = filled(catalog, "moving")
    for position in range(2):
        delete_positions(table, places(table.table, (position,)))

    change = DeleteMerge(until=100, at_once=1).of(table.table, "main")
    assert change is not None and change.files == 2
    whole = DeleteMerge(until=100).of(table.table, "main")
    assert whole is not None and whole.files == len(live(table).wide) == 6


def test_after_a_refused_attempt_of_version_2_only_what_changed_is_written(catalog: Catalog) -> None:
    table = filled(catalog)
    delete_positions(table, places(table.table, (0, 1)))
    merge = DeleteMerge(until=100)
    assert merge.of(table.table, "main") is not None and len(merge._deletes.written) == 2
    table.commit(table.step([], [{"id": 5}]))
    assert merge.of(table.table, "main") is not None and len(merge._deletes.written) == 3


def test_nothing_is_merged_in_a_table_that_was_rolled_back_until_somebody_answers(catalog: Catalog) -> None:
    lake = Lake(catalog, "2", "main")
    lake.commit(0, 10)
    commit_deletes(catalog, lake.table, places(lake.table, (0,)))
    before = lake.head
    lake.commit(10, 20)
    lake.roll_back(before)
    assert list(Maintenance(catalog, ("db", "t"), lake.key, {}).merge()) == []
    assert lake.head == before


def test_positions_beyond_the_end_of_a_file_remove_no_row(catalog: Catalog) -> None:
    table = filled(catalog)
    (path, _), *_ = places(table.table, (0,))
    delete_positions(table, [(path, at) for at in range(11)])
    commit_deletes(catalog, table.table, [(path, 99)])
    table.merge()
    assert_rows(table)


def test_files_of_the_partition_nan_are_in_one_partition() -> None:
    first, second = (DataFile.from_args(partition=Record(float("nan"), 1)) for _ in range(2))
    assert partition_of(first) == partition_of(second)


@pytest.mark.parametrize("seed", forms(range(3), [0]))
@pytest.mark.parametrize("layout", LAYOUTS)
def test_histories_with_deletes_of_others_keep_their_rows(catalog: Catalog, layout: str, seed: int) -> None:
    table = create(catalog, layout, 2)
    for number in range(4):
        play(table, layout if number == 0 else "flat", seed * 10 + number, 2)
        delete_positions(table, first_rows(table)[:5])
        if number == seed:
            upgrade(table)
        if number != 1:
            table.merge()
            assert not live(table).wide
        assert rows_of(table.table) == table.rows()
    assert_rows(table)


def first_rows(table: MutationTable) -> list[tuple[str, int]]:
    """The first row of each file that is not deleted."""
    found = live(table)
    deletions = delete_files.Deletions(table.table, found, delete_files.KnownPositions())
    living = {
        path: set(range(data.candidate.records)) - set(deletions.before(path)) for path, data in found.data.items()
    }
    return sorted((path, min(positions)) for path, positions in living.items() if positions)
