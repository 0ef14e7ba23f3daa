"""Mutation tables: keys become deleted positions of exactly the snapshot that is committed on."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table.update import UpgradeFormatVersionUpdate

from calving.errors import CommitRefusedError, ConfigError
from calving.iceberg.catalog import open_catalog, table_id
from calving.iceberg.delete_files import Deletions, KnownPositions
from calving.iceberg.live_files import Manifests
from calving.iceberg.resolution import RowChangeResolver
from calving.iceberg.rules import check_mutations
from calving.iceberg.summary import mutations_in
from calving.iceberg.target import IcebergTarget
from calving.model.mutation_counts import MutationCounts
from calving.model.tables import RowMutations
from calving.mutations.cache import KeyCache
from calving.protocol.commit import Admitted
from calving.protocol.ledger import NO_LEDGER
from harness.duckdb_extensions import duckdb_rows
from harness.forms import forms
from harness.structure import check
from tests.iceberg.foreign_deletes import delete_positions, places
from tests.iceberg.histories import (
    KEY,
    LAYOUTS,
    SUMMARY,
    MutationTable,
    create,
    live_counts,
    play,
    pyiceberg_rows,
)


@pytest.fixture(params=[2, pytest.param(3, marks=pytest.mark.services)])
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def catalog(version: int, request: pytest.FixtureRequest, tmp_path: Path) -> Catalog:
    if version == 2:
        return open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)})
    return open_catalog("iceberg", {"type": "rest", "uri": request.getfixturevalue("rest_uri")})


@pytest.fixture
def table(catalog: Catalog, version: int) -> MutationTable:
    return create(catalog, "flat", version)


def row(key: int, name: str) -> dict[str, object]:
    return {"id": key, "name": name, "g": 0}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_history_of_changes_leaves_what_a_dict_has(catalog: Catalog, version: int, layout: str) -> None:
    for seed in range(2):
        table = create(catalog, layout, version)
        play(table, layout, seed, 12)
        assert pyiceberg_rows(table.table) == table.rows(), seed
        assert duckdb_rows(table.table) == table.rows(), seed


def test_a_history_by_an_order_field_leaves_the_greatest_of_each_key(catalog: Catalog, version: int) -> None:
    for seed in range(2):
        table = create(catalog, "flat", version, order="g")
        play(table, "flat", seed, 12)
        assert pyiceberg_rows(table.table) == table.rows(), seed


@pytest.mark.parametrize("order", [None, "g"])
@pytest.mark.parametrize("layout", forms(LAYOUTS, ["moving", "evolved"]))
def test_keys_that_are_looked_for_a_few_at_a_time_delete_the_same_rows(
    tmp_path: Path, layout: str, order: str | None
) -> None:
    catalog = open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)})
    superseded = []
    for at_once in (5, 1_000_000):
        table = create(catalog, layout, 2, order=order)
        table.resolver = RowChangeResolver(order, KeyCache(1_000_000), at_once=at_once)
        superseded.append([made.counts.superseded for made in play(table, layout, 3, 6) if made.counts])
        assert pyiceberg_rows(table.table) == table.rows()
    assert superseded[0] == superseded[1]


def test_a_late_row_is_deleted_in_its_own_file_and_a_late_delete_deletes_nothing(
    catalog: Catalog, version: int
) -> None:
    table = create(catalog, "flat", version, order="g")
    newer, older = {"id": 1, "name": "new", "g": 7}, {"id": 1, "name": "old", "g": 3}
    table.commit(table.step([newer]))
    table.commit(table.step([older, {"id": 2, "name": "x", "g": 1}]))
    table.commit(table.step([], [older]))
    assert pyiceberg_rows(table.table) == [(1, "new", 7), (2, "x", 1)]
    table.commit(table.step([], [newer]), table.step([older]))  # what is deleted has no memory
    assert pyiceberg_rows(table.table) == [(1, "old", 3), (2, "x", 1)] == table.rows()


def test_the_later_step_of_a_commit_replaces_rows_of_the_earlier_one(table: MutationTable) -> None:
    table.commit(table.step([row(1, "a"), row(2, "a")]), table.step([row(1, "b")]), table.step([], [{"id": 2}]))
    assert pyiceberg_rows(table.table) == [(1, "b", 0)]


def test_a_data_file_without_rows_leaves_with_its_deletes(table: MutationTable) -> None:
    table.commit(table.step([row(1, "a"), row(2, "a"), row(3, "a")]))
    table.commit(table.step([row(1, "b")]))
    table.commit(table.step([], [{"id": 2}, {"id": 3}]))
    assert pyiceberg_rows(table.table) == [(1, "b", 0)]
    counts = live_counts(table.table)
    assert (counts["total-data-files"], counts["total-delete-files"], counts["total-records"]) == (1, 0, 1)
    assert counts["total-position-deletes"] == 0


def test_a_key_that_the_table_does_not_have_deletes_nothing(table: MutationTable) -> None:
    table.commit(table.step([row(1, "a")]))
    table.commit(table.step([], [{"id": 7}]))
    head = table.table.current_snapshot()
    assert head is not None and head.summary is not None
    assert head.summary.operation.value == "append"
    assert (head.summary["calving.mutations.keys"], head.summary["calving.mutations.superseded"]) == ("1", "0")


@pytest.mark.parametrize("order", [None, "g"])
def test_a_commit_counts_rows_it_deleted_and_deletes_that_met_none(
    catalog: Catalog, version: int, order: str | None
) -> None:
    table = create(catalog, "flat", version, order)
    table.commit(table.step([row(key, "a") for key in range(4)]))
    first = table.commit(table.step([row(1, "b")], [{"id": 2, "g": 0}])).counts
    assert first is not None
    assert (first.keys, first.located, first.superseded, first.positions, first.unmatched) == (2, 2, 2, 2, 0)
    # Two are new, one of them in the last step; one was deleted before, one never was, one comes and goes.
    steps = (
        table.step([row(7, "c"), row(9, "c")], [{"id": 2, "g": 0}, {"id": 8, "g": 0}]),
        table.step([row(11, "d")], [{"id": 9, "g": 0}]),
    )
    second = table.commit(*steps).counts
    assert second is not None
    assert (second.keys, second.located, second.superseded, second.unmatched) == (5, 0, 1, 2)
    assert pyiceberg_rows(table.table) == table.rows()


def test_rows_that_all_come_with_their_keys_are_not_looked_into_for_deletes_without_a_row(
    table: MutationTable,
) -> None:
    table.resolver = RowChangeResolver(None, KeyCache(1_000_000), appends=False)
    counts = table.commit(table.step([row(1, "a"), row(2, "a")])).counts
    assert counts == MutationCounts(keys=2)
    counts = table.commit(table.step([row(3, "a")], [{"id": 4}])).counts
    assert counts is not None and counts.unmatched == 1


def test_rows_are_counted_once_though_several_parts_of_the_keys_have_theirs(table: MutationTable) -> None:
    table.resolver = RowChangeResolver(None, KeyCache(1_000_000), at_once=2)
    table.commit(table.step([row(key, "a") for key in range(4)]))
    again = [table.step([row(key, name) for key in range(2)]) for name in "bc"]
    counts = table.commit(*again, table.step([], [{"id": 3}, {"id": 9}])).counts
    assert counts is not None
    assert (counts.located, counts.superseded, counts.unmatched) == (3, 5, 1)


def test_the_summary_says_what_status_shows(table: MutationTable) -> None:
    table.commit(table.step([row(1, "a")]))
    table.commit(table.step([row(1, "b")], [{"id": 5}]))
    head = table.table.current_snapshot()
    assert head is not None and head.summary is not None
    found = mutations_in(head.summary.additional_properties)
    assert {name: found[name] for name in ("keys", "superseded", "unmatched", "located")} == {
        "keys": 2,
        "superseded": 1,
        "unmatched": 1,
        "located": 1,
    }
    assert {"load-ms", "resolve-ms", "write-ms"} <= found.keys()


def test_the_key_cache_tells_what_it_holds_of_each_table(catalog: Catalog, version: int) -> None:
    cache = KeyCache(1_000_000)
    for rows in (1_000, 10):
        table = create(catalog, "flat", version)
        table.resolver = RowChangeResolver(None, cache)
        table.commit(table.step([row(key, "a") for key in range(rows)]))
        table.commit(table.step([row(1, "b")]))
    large, small = cache.by_owner().values()
    assert large > small > 0 and large + small == cache.bytes


def test_key_columns_are_read_once(table: MutationTable) -> None:
    table.resolver = RowChangeResolver(None, KeyCache(1_000_000), appends=False)
    table.commit(table.step([row(key, "a") for key in range(9)]))
    found = [table.commit(table.step([row(key, "b")])).counts for key in (0, 1, 2)]
    assert [(each.files, each.cached) for each in found if each] == [(1, 0), (1, 1), (1, 1)]


def test_rows_change_while_the_key_cache_cannot_be_written(
    table: MutationTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L4: a full disk, or a folder that somebody has deleted, makes commits slow and nothing else."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    folder = tmp_path / "cache"
    folder.mkdir()
    table.resolver = RowChangeResolver(None, KeyCache(1_000_000, folder))
    table.commit(table.step([row(key, "a") for key in range(9)]))
    table.commit(table.step([row(1, "b")]))
    with monkeypatch.context() as patch:
        patch.setattr("calving.mutations.cache.pa.ipc.new_stream", full)
        table.commit(table.step([row(2, "c")]))
    for left in folder.iterdir():
        shutil.rmtree(left)
    table.commit(table.step([row(1, "d")], [row(2, "")]))
    assert pyiceberg_rows(table.table) == table.rows()


@pytest.mark.parametrize("layout", ["flat", "by key"])
def test_few_keys_are_found_in_files_that_were_looked_into_before(tmp_path: Path, layout: str) -> None:
    table = create(open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)}), layout, 2)
    table.commit(table.step([row(key, "a") for key in range(400)]))
    for number in range(6):
        table.commit(table.step([row(number * 60, f"b{number}")], [{"id": number * 60 + 1}]))
    assert pyiceberg_rows(table.table) == table.rows()


def test_a_refused_attempt_leaves_no_delete_files(table: MutationTable) -> None:
    table.commit(table.step([row(1, "a"), row(2, "a")]))
    table.commit(table.step([row(1, "b")]), meanwhile=[table.step([], inserts=[row(3, "c")])])
    data = Path(table.table.location().removeprefix("file://")) / "data"
    assert len([path for path in data.iterdir() if "-deletes" in path.name]) == 1
    assert pyiceberg_rows(table.table) == table.rows()


def test_a_compaction_that_was_faster_leaves_no_position_of_a_file_that_is_gone(tmp_path: Path) -> None:
    table = create(open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)}), "flat", 2)
    table.commit(table.step([row(key, "a") for key in range(6)]))
    table.commit(table.step([row(1, "b")]))
    step = table.step([row(2, "c")], [{"id": 3}])
    admitted = Admitted(step.data_files, step.delete_files, NO_LEDGER, steps=(step,))
    target = IcebergTarget(table.catalog, table_id(table.name), "main", KEY, SUMMARY, resolver=table.resolver)
    state = target.load()
    table.table.overwrite(table.table.scan().to_arrow())
    with pytest.raises(CommitRefusedError):
        target.attempt(state, admitted)
    target.discard()
    target.attempt(target.load(), admitted)
    check(table.table)
    assert pyiceberg_rows(table.table) == table.rows()


def test_snapshots_that_took_files_away_are_left_to_whoever_maintains_the_table(table: MutationTable) -> None:
    with table.table.transaction() as change:
        change.set_properties({"calving.expire.max-snapshots": "2"})
    for number in range(12):
        table.commit(table.step([], inserts=[row(number, "a"), row(100 + number, "a")]))
    table.commit(table.step([], inserts=[row(200 + number, "a") for number in range(20)]))
    for number in range(12):
        table.commit(table.step([row(200 + number, "b")]))
    kept = [snapshot.summary for snapshot in table.table.metadata.snapshots if snapshot.summary is not None]
    assert len([each for each in kept if each.operation.value == "append"]) < 10
    assert len([each for each in kept if "removed-delete-files" in each.additional_properties]) == 11
    assert pyiceberg_rows(table.table) == table.rows()


def test_deletes_of_a_file_that_was_removed_and_added_again_are_over(table: MutationTable) -> None:
    """P4: they apply to older files only, also where they are about one path."""
    table.commit(table.step([row(key, "a") for key in range(9)]))
    table.commit(table.step([row(1, "b")]))
    head = table.table.current_snapshot()
    assert head is not None
    live = Manifests([1]).live(table.table.io, head.manifest_list)
    (path,) = live.scoped
    assert list(Deletions(table.table, live, KnownPositions()).before(path)) == [1]
    live.data[path] = replace(live.data[path], sequence=3)
    assert not Deletions(table.table, live, KnownPositions()).before(path)


def upgrade(table: MutationTable) -> None:
    table.catalog.commit_table(table.table, (), (UpgradeFormatVersionUpdate(format_version=3),))


def test_a_vector_absorbs_the_positions_of_a_table_that_was_upgraded(rest_uri: str) -> None:
    table = create(open_catalog("iceberg", {"type": "rest", "uri": rest_uri}), "flat", 2)
    table.commit(table.step([row(key, "a") for key in range(8)]), table.step([row(key, "a") for key in range(8, 16)]))
    table.commit(table.step([row(1, "b"), row(9, "b")]))
    upgrade(table)
    table.commit(table.step([row(2, "c")]))
    head = table.table.current_snapshot()
    assert head is not None
    live = Manifests([1]).live(table.table.io, head.manifest_list)
    kinds = sorted((d.file.file_format.value, d.file.record_count) for of in live.scoped.values() for d in of)
    assert kinds == [("PARQUET", 1), ("PUFFIN", 2)]
    table.commit(table.step([row(10, "d")], [row(3, "")]))
    assert pyiceberg_rows(table.table) == table.rows() == duckdb_rows(table.table)


def test_a_vector_absorbs_positions_of_a_delete_file_about_several_data_files_which_stays(rest_uri: str) -> None:
    """As Spark writes them with ``write.delete.granularity = partition``."""
    table = create(open_catalog("iceberg", {"type": "rest", "uri": rest_uri}), "flat", 2)
    table.commit(*(table.step([row(key, "a") for key in keys]) for keys in (range(8), range(8, 16))))
    delete_positions(table, places(table.table, (1, 3)))
    upgrade(table)
    table.commit(table.step([row(2, "b")], [{"id": 10}]))
    head = table.table.current_snapshot()
    assert head is not None
    live = Manifests([1]).live(table.table.io, head.manifest_list)
    assert [delete.file.record_count for delete in live.wide] == [4]
    assert sorted(d.file.record_count for of in live.scoped.values() for d in of) == [3, 3]
    assert pyiceberg_rows(table.table) == table.rows() == duckdb_rows(table.table)


def test_equality_deletes_are_refused_for_version_3(rest_uri: str) -> None:
    table = create(open_catalog("iceberg", {"type": "rest", "uri": rest_uri}), "flat", 3)
    with pytest.raises(ConfigError, match=f"table {table.name} has format version 3; row-deletes = equality is for"):
        equality = RowMutations(upsert=True, row_deletes="equality")
        check_mutations(table.name, 3, table.table.schema(), ["id"], equality)
