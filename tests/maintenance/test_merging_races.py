"""Manifests are merged beside others that change the table: every file stays named once, and nothing else is left."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from calving.errors import CommitRefusedError
from calving.iceberg import maintenance
from calving.iceberg.catalog import open_catalog
from calving.iceberg.manifests import read_manifest_list
from harness.duckdb_extensions import duckdb_rows
from harness.structure import check
from tests.iceberg import racer
from tests.iceberg.histories import MutationTable, create, play, pyiceberg_rows
from tests.iceberg.killed_maintenance import kills
from tests.maintenance.compacting import append, appended, data_files, fail_at, recreate
from tests.maintenance.merging import entries_of, manifests_of, merge, merger_of


def beside(monkeypatch: pytest.MonkeyPatch, acts: list[Callable[[], object]]) -> None:
    """Do each of these between an attempt's preparation and its request to the catalog."""
    original = Table._do_commit

    def and_act(self: Table, *given: object) -> None:
        if acts:
            act = acts.pop(0)
            monkeypatch.setattr(Table, "_do_commit", original)
            act()
            monkeypatch.setattr(Table, "_do_commit", and_act)
        original(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(Table, "_do_commit", and_act)


def assert_no_orphans(table: Table) -> None:
    """Every manifest that is there is named by some snapshot."""
    folder = Path(table.location().removeprefix("file://")) / "metadata"
    listed = {
        Path(manifest.manifest_path).name
        for snapshot in table.metadata.snapshots
        for manifest in read_manifest_list(table.io, snapshot.manifest_list)
    }
    lists = {Path(snapshot.manifest_list).name for snapshot in table.metadata.snapshots}
    assert {path.name for path in folder.glob("*.avro")} == listed | lists


@pytest.mark.parametrize("version", [2, 3])
def test_commits_of_the_sink_in_between_are_kept_and_manifests_are_written_once(
    catalog: Catalog, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = appended(catalog, version, 4)
    beside(monkeypatch, [lambda: append(table, 4), lambda: append(table, 5)])
    (done,) = merge(table)
    assert done.change is not None
    assert len(manifests_of(table.table)) == 3 and pyiceberg_rows(table.table) == table.rows()
    assert_no_orphans(table.table)


@pytest.mark.parametrize("version", [2, 3])
def test_a_file_that_the_sink_removed_in_between_does_not_come_back(
    catalog: Catalog, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = appended(catalog, version, 4)
    whole = [{"id": key} for key in range(1000, 1010)]
    beside(monkeypatch, [lambda: table.commit(table.step([], whole))])
    (done,) = merge(table)
    assert done.change is not None and len(done.change.inputs) == 3
    assert len(data_files(table.table)) == 3
    assert pyiceberg_rows(table.table) == duckdb_rows(table.table) == table.rows()
    assert_no_orphans(table.table)


def test_who_comes_second_leaves_what_another_one_has_merged(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table = appended(catalog, 2, 4)
    beside(monkeypatch, [lambda: merge(table)])
    (done,) = merge(table)
    assert (done.change, done.failed) == (None, None)
    assert len(manifests_of(table.table)) == 1 and pyiceberg_rows(table.table) == table.rows()
    assert_no_orphans(table.table)


def test_a_rollback_in_between_stays(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table = appended(catalog, 2, 3)
    first, expected = table.table.current_snapshot(), pyiceberg_rows(table.table)
    assert first is not None
    append(table, 3)
    beside(monkeypatch, [lambda: table.table.manage_snapshots().rollback_to_snapshot(first.snapshot_id).commit()])
    merge(table)
    assert pyiceberg_rows(table.table) == expected
    assert_no_orphans(table.table)


def test_a_table_that_was_dropped_and_created_again_gets_no_old_files(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = appended(catalog, 2, 3)
    beside(monkeypatch, [lambda: recreate(table)])
    (done,) = merge(table)
    assert done.change is None and pyiceberg_rows(table.table) == table.rows()


def test_who_loses_every_race_says_so_and_leaves_nothing(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table = appended(catalog, 2, 3)
    monkeypatch.setattr(maintenance, "MAX_TRIES", 3)
    beside(monkeypatch, [lambda number=number: append(table, number, rows=1) for number in range(10, 13)])  # type: ignore[misc]
    with pytest.raises(CommitRefusedError):
        merge(table)
    monkeypatch.undo()
    assert pyiceberg_rows(table.table) == table.rows()
    assert_no_orphans(table.table)


@pytest.mark.parametrize("seed", range(4))
def test_lost_requests_lost_answers_and_false_conflicts_change_nothing(
    catalog: Catalog, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = appended(catalog, 2, 3, layout="moving")
    play(table, "moving", seed + 10, 4)
    before = entries_of(table.table)
    monkeypatch.setattr(Table, "_do_commit", Table._do_commit)
    racer.lie(random.Random(seed), 0.25)
    done = merge(table)
    monkeypatch.undo()
    assert all(each.change is not None for each in done)
    assert entries_of(table.table) == before and pyiceberg_rows(table.table) == table.rows()


@pytest.mark.parametrize("version", [2, 3])
def test_an_error_at_any_step_leaves_every_file_named_once(catalog: Catalog, version: int) -> None:
    for last in itertools.count():
        table = appended(catalog, version, 2)
        with pytest.MonkeyPatch.context() as patch:
            has_failed = fail_at(last, patch)
            (done,) = merge(table)
        check(table.table)
        assert pyiceberg_rows(table.table) == table.rows()
        if not has_failed():
            assert done.change is not None
            break
    assert last > 4


def test_who_is_killed_at_any_step_leaves_the_rows_and_the_next_one_goes_on(tmp_path: Path) -> None:
    table = appended(open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)}), 2, 3)
    table.commit(table.step([], [{"id": 0}, {"id": 1001}]))
    assert kills("tests.maintenance.killed_merging", tmp_path, table) > 3
    assert pyiceberg_rows(table.table) == table.rows()
    assert len(manifests_of(table.table)) == 2


def test_a_sink_commits_all_the_while_beside_two_that_merge(tmp_path: Path) -> None:
    keys = {"type": "embedded", "warehouse": str(tmp_path / "both")}
    table = create(open_catalog("iceberg", keys), "moving", 2)
    for number in range(3):
        append(table, number)
    ended, landed = threading.Event(), list[bool]()

    def maintain() -> None:
        own = MutationTable(open_catalog("iceberg", keys), table.name)
        while not ended.is_set():
            now = own.table
            for group in merger_of(own).plan(now):
                landed.append(merger_of(own).merge(now, group).change is not None)

    both = [threading.Thread(target=maintain) for _ in range(2)]
    for each in both:
        each.start()
    play(table, "moving", seed=5, commits=8)
    ended.set()
    for each in both:
        each.join()
    assert any(landed)
    check(table.table)
    assert pyiceberg_rows(table.table) == duckdb_rows(table.table) == table.rows()
