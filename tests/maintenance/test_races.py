"""A compaction beside others that change the table: it lands with the right rows, or not at all, and leaves nothing."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from calving.errors import CommitRefusedError
from calving.iceberg import maintenance
from calving.iceberg.catalog import open_catalog
from harness.duckdb_extensions import duckdb_rows
from harness.structure import check
from tests.iceberg import racer
from tests.iceberg.histories import MutationTable, pyiceberg_rows
from tests.maintenance.compacting import append, appended, beside, compact, compactor_of, data_files, planned, recreate


def folder_of(table: MutationTable) -> Path:
    return Path(table.table.location().removeprefix("file://")) / "data"


def assert_no_orphans(table: MutationTable) -> None:
    """Every data file that is there was named by some snapshot."""
    named = {Path(file["file_path"]).name for file in table.table.inspect.all_files().to_pylist()}
    assert {path.name for path in folder_of(table).rglob("*.parquet") if "-keys" not in path.name} <= named


def test_a_commit_of_the_sink_in_between_is_kept_and_files_are_rewritten_once(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = appended(catalog, 2, 3)
    original, left = Table._do_commit, iter(range(2))

    def raced(self: Table, *given: object) -> None:
        number = next(left, None)
        if number is not None:
            monkeypatch.setattr(Table, "_do_commit", original)
            table.commit(table.step([{"id": number, "name": "meanwhile", "g": 1}], [{"id": 1000 + number}]))
            monkeypatch.setattr(Table, "_do_commit", raced)
        original(self, *given)  # type: ignore[arg-type]

    (group,) = planned(table).groups
    monkeypatch.setattr(Table, "_do_commit", raced)
    done = compactor_of(table).compact(group)
    assert done.replacement is not None and done.replacement.translated == 4
    check(table.table)
    assert pyiceberg_rows(table.table) == duckdb_rows(table.table) == table.rows()
    assert_no_orphans(table)


def test_another_compaction_in_between_drops_the_group_and_its_files(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = appended(catalog, 2, 3)
    beside(monkeypatch, lambda: compact(table))
    (done,) = compact(table)
    assert done.dropped == "3 were removed by someone else"
    assert pyiceberg_rows(table.table) == table.rows() and len(data_files(table.table)) == 1
    assert_no_orphans(table)


def test_rows_that_someone_else_overwrote_are_not_brought_back(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = appended(catalog, 2, 3)
    beside(monkeypatch, lambda: table.table.delete("id < 1000"))
    (done,) = compact(table)
    assert done.dropped == "1 was removed by someone else"
    assert len(pyiceberg_rows(table.table)) == 20
    assert_no_orphans(table)


def test_a_rollback_in_between_drops_the_group(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table = appended(catalog, 2, 3)
    first, expected = table.table.current_snapshot(), pyiceberg_rows(table.table)
    assert first is not None
    append(table, 3)
    beside(monkeypatch, lambda: table.table.manage_snapshots().rollback_to_snapshot(first.snapshot_id).commit())
    (done,) = compact(table)
    assert done.dropped == "the table was rolled back"
    assert pyiceberg_rows(table.table) == expected
    assert_no_orphans(table)


def test_a_rollback_that_brings_deleted_rows_back_drops_the_group_though_its_snapshots_have_expired(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = appended(catalog, 2, 3)
    first, expected = table.table.current_snapshot(), pyiceberg_rows(table.table)
    assert first is not None
    table.commit(table.step([], [{"id": 5}]))
    deleted = table.table.current_snapshot()
    assert deleted is not None

    def act() -> None:
        table.table.manage_snapshots().rollback_to_snapshot(first.snapshot_id).commit()
        table.table.maintenance.expire_snapshots().by_id(deleted.snapshot_id).commit()

    beside(monkeypatch, act)
    (done,) = compact(table)
    assert done.dropped == "rows that had been deleted are back"
    assert pyiceberg_rows(table.table) == expected


def test_a_table_that_was_dropped_in_between_is_named_and_no_file_stays(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = appended(catalog, 2, 3)
    (group,), before = planned(table).groups, len(list(folder_of(table).iterdir()))
    folder = folder_of(table)
    beside(monkeypatch, lambda: catalog.drop_table(table.name))
    done = compactor_of(table).compact(group)
    assert done.failed == f"table {table.name} does not exist"
    assert len(list(folder.iterdir())) == before


def test_a_table_that_was_dropped_and_created_again_gets_no_old_rows(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = appended(catalog, 2, 3)
    beside(monkeypatch, lambda: recreate(table))
    (group,) = planned(table).groups
    assert compactor_of(table).compact(group).dropped == "the table was dropped and created again"
    assert pyiceberg_rows(table.table) == table.rows()


def test_files_that_have_gone_before_they_were_read_are_nothing_to_compact(catalog: Catalog) -> None:
    table = appended(catalog, 2, 3)
    (group,) = planned(table).groups
    compact(table)
    done = compactor_of(table).compact(group)
    assert (done.replacement, done.dropped, done.failed) == (None, None, None)


def test_who_loses_every_race_says_so_and_leaves_nothing(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table = appended(catalog, 2, 3)
    (group,) = planned(table).groups
    original = Table._do_commit

    def raced(self: Table, *given: object) -> None:
        monkeypatch.setattr(Table, "_do_commit", original)
        append(table, 10 + len(table.expected), rows=1)
        monkeypatch.setattr(Table, "_do_commit", raced)
        original(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(maintenance, "MAX_TRIES", 3)
    monkeypatch.setattr(Table, "_do_commit", raced)
    with pytest.raises(CommitRefusedError):
        compactor_of(table).compact(group)
    monkeypatch.undo()
    assert pyiceberg_rows(table.table) == table.rows()
    assert_no_orphans(table)


@pytest.mark.parametrize("seed", range(4))
def test_lost_requests_lost_answers_and_false_conflicts_change_no_row(
    catalog: Catalog, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = appended(catalog, 2, 6, layout="moving")
    table.commit(table.step([], [{"id": key} for key in (0, 1001, 2002)]))
    groups = planned(table).groups
    monkeypatch.setattr(Table, "_do_commit", Table._do_commit)
    racer.lie(random.Random(seed), 0.25)
    done = [compactor_of(table).compact(group) for group in groups]
    monkeypatch.undo()
    assert all(each.replacement is not None for each in done) and len(done) == 3
    check(table.table)
    assert pyiceberg_rows(table.table) == table.rows() and len(data_files(table.table)) == 3


def test_a_sink_commits_all_the_while_beside_two_compactions(tmp_path: Path) -> None:
    keys = {"type": "embedded", "warehouse": str(tmp_path / "both")}
    table = appended(open_catalog("iceberg", keys), 2, 4)
    ended, landed = threading.Event(), list[bool]()

    def maintain() -> None:
        own = MutationTable(open_catalog("iceberg", keys), table.name)
        while not ended.is_set():
            for group in planned(own).groups:
                landed.append(compactor_of(own).compact(group).replacement is not None)

    both = [threading.Thread(target=maintain) for _ in range(2)]
    for each in both:
        each.start()
    chance = random.Random(1)
    for number in range(6):
        ids = chance.sample(sorted(row["id"] for row in table.expected.values()), 8)
        table.commit(
            table.step([{"id": key, "name": f"s{number}", "g": 0} for key in ids[:5]], [{"id": key} for key in ids[5:]])
        )
    ended.set()
    for each in both:
        each.join()
    assert any(landed)
    check(table.table)
    assert pyiceberg_rows(table.table) == duckdb_rows(table.table) == table.rows()
