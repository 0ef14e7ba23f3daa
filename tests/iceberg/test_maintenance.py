"""Equality deletes become positions beside sinks that commit: no row changes, and no commit is lost."""

from __future__ import annotations

import random
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.types import LongType, NestedField, StringType

from calving.errors import CommitRefusedError
from calving.iceberg import maintenance
from calving.iceberg.catalog import open_catalog, table_id
from calving.iceberg.conversion import DeleteConversion
from calving.iceberg.lookups import Lookups
from calving.iceberg.maintenance import Maintenance
from calving.iceberg.target import IcebergTarget
from calving.model.files import DELETES, KEYS, sink_name
from calving.protocol.commit import Admitted
from calving.protocol.ledger import NO_LEDGER
from calving.protocol.ledger_key import COMMIT_ID, LedgerKey
from harness.duckdb_extensions import duckdb_rows
from harness.forms import forms
from tests.iceberg import racer
from tests.iceberg.histories import KEY, LAYOUTS, MutationTable, create, play, pyiceberg_rows
from tests.iceberg.killed_maintenance import kills
from tests.iceberg.reader import rows_of
from tests.iceberg.test_lookups import Here
from tests.maintenance.compacting import appended


def made(catalog: Catalog, layout: str, **more: Any) -> MutationTable:
    table = create(catalog, layout, 2, **more)
    table.equality = True
    return table


def row(key: int, name: str) -> dict[str, object]:
    return {"id": key, "name": name, "g": 0}


def changed(table: MutationTable, count: int = 3) -> None:
    """Commits that leave equality deletes."""
    for number in range(count):
        table.commit(table.step([row(key, f"{number}") for key in range(number, 12)], [{"id": 30 + number}]))


def is_key_file(name: str) -> bool:
    """Whether a sink has written the file beside data: it deletes those that it does not need one cycle later."""
    return (found := sink_name(name)) is not None and found.kind in (KEYS, DELETES)


def files_of(table: MutationTable, kind: str = "data") -> set[str]:
    folder = Path(table.table.location().removeprefix("file://")) / kind
    return {path.name for path in folder.rglob("*") if path.is_file() and not is_key_file(path.name)}


def assert_no_orphans(table: MutationTable) -> None:
    named = {Path(file["file_path"]).name for file in table.table.inspect.all_files().to_pylist()}
    assert files_of(table) == {name for name in named if not is_key_file(name)}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_maintenance_between_commits_changes_no_row(catalog: Catalog, layout: str) -> None:
    table = made(catalog, layout)
    for seed, at_once in enumerate((1_000_000, 10)):
        play(table, layout if seed == 0 else "flat", seed, 3, 3)
        before = rows_of(table.table)
        assert sum(done.files for done in table.maintain(at_once=at_once))
        assert rows_of(table.table) == before == table.rows()
        assert pyiceberg_rows(table.table) == duckdb_rows(table.table) == table.rows()


def test_a_table_without_equality_deletes_gets_no_commit(catalog: Catalog) -> None:
    table = made(catalog, "flat")
    assert table.maintain_only() == []
    table.commit(table.step([], inserts=[row(1, "a")]))
    before = table.table.metadata_location
    assert table.maintain_only() == []
    assert table.table.metadata_location == before


def test_each_commit_takes_so_many_keys_and_the_oldest_first(catalog: Catalog) -> None:
    table = made(catalog, "flat")
    changed(table, 5)
    assert [done.files for done in table.maintain(at_once=15)] == [2, 2]


def test_deletes_that_come_meanwhile_are_left_for_the_next_run(catalog: Catalog) -> None:
    table = made(catalog, "flat")
    changed(table, 5)
    conversion = Maintenance(catalog, table_id(table.name), KEY, {}, at_once=15).convert()
    done = [next(conversion).files]
    changed(table, 5)
    done += (each.files for each in conversion)
    assert done == [2, 2]
    assert table.maintain() and pyiceberg_rows(table.table) == table.rows()


def test_rows_that_came_with_or_after_a_delete_stay(catalog: Catalog) -> None:
    table = made(catalog, "flat")
    table.commit(table.step([row(1, "a")]), table.step([row(1, "b")]))
    (done,) = table.maintain()
    assert done.rows == 1
    assert pyiceberg_rows(table.table) == [(1, "b", 0)]


def test_the_ledger_stays_and_the_commit_id_does_not(catalog: Catalog) -> None:
    table = made(catalog, "flat")
    changed(table)
    before = table.table.current_snapshot()
    table.maintain()
    after = table.table.current_snapshot()
    assert before is not None and before.summary is not None and after is not None and after.summary is not None
    was, is_now = before.summary.additional_properties, after.summary.additional_properties
    ledger = KEY.summary(NO_LEDGER)
    assert ledger.items() <= was.items() and ledger.items() <= is_now.items()
    assert COMMIT_ID in was and COMMIT_ID not in is_now


def test_compactions_of_others_see_that_rows_were_deleted(catalog: Catalog) -> None:
    """Iceberg looks for new deletes of the files that it replaces, but not in snapshots that say "replace": it would
    bring rows back whose equality delete came after it had begun.
    """
    table = made(catalog, "flat")
    changed(table)
    table.maintain()
    head = table.table.current_snapshot()
    assert head is not None and head.summary is not None
    assert head.summary.operation in (Operation.DELETE, Operation.OVERWRITE)


def test_only_the_branch_of_the_sink_is_maintained(catalog: Catalog) -> None:
    table = made(catalog, "flat")
    changed(table)
    head = table.table.current_snapshot()
    assert head is not None
    table.table.manage_snapshots().create_branch(head.snapshot_id, "audit").commit()
    audit = LedgerKey(KEY.control_topic, KEY.group, KEY.log_id, "audit")
    assert len(list(Maintenance(catalog, table_id(table.name), audit, {}).convert())) == 1
    after = table.table
    assert after.current_snapshot() == head
    named = after.snapshot_by_name("audit")
    assert named is not None and len(after.scan(snapshot_id=named.snapshot_id).to_arrow()) == len(table.rows())


@pytest.mark.parametrize("layout", forms(LAYOUTS, ["by key", "evolved"]))
@pytest.mark.parametrize("at_once", [5, 1_000_000])
def test_tasks_find_what_this_process_finds(
    catalog: Catalog, layout: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, tasks = made(catalog, layout), Here()
    play(table, layout, 4, 4, 3)
    before = rows_of(table.table)
    monkeypatch.setattr(Lookups, "rows_here", 0)
    assert sum(done.rows for done in table.maintain(at_once=at_once, tasks=lambda: tasks))
    assert tasks.ran and pyiceberg_rows(table.table) == before


def test_two_at_once_end_with_the_same_rows(catalog_keys: dict[str, str]) -> None:
    table = made(open_catalog("iceberg", catalog_keys), "by key")
    changed(table, 6)
    before, done = rows_of(table.table), list[Any]()

    def maintain() -> None:
        own = MutationTable(open_catalog("iceberg", catalog_keys), table.name)
        done.extend(own.maintain_only(at_once=12))

    both = [threading.Thread(target=maintain) for _ in range(2)]
    for each in both:
        each.start()
    for each in both:
        each.join()
    assert table.maintain() == [] and sum(each.files for each in done) >= 6
    assert pyiceberg_rows(table.table) == before
    assert_no_orphans(table)


def test_null_is_a_value_and_a_key_may_have_several(catalog: Catalog) -> None:
    """As other writers may have it."""
    schema = Schema(
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "name", StringType(), required=False),
        NestedField(3, "g", LongType(), required=False),
    )
    table = made(catalog, "flat", schema=schema)
    rows = [{"id": key, "name": name, "g": 1} for key in (1, 2, None) for name in ("a", None)]
    table.ids = ()
    table.commit(table.step([], inserts=rows))
    for ids, keys in ((("id", "name"), [(None, None), (1, "a"), (2, None), (7, None)]), (("id",), [(None, None)])):
        table.ids = ids
        table.commit(table.step([], [{"id": key, "name": name, "g": 0} for key, name in keys]))
    table.commit(table.step([], inserts=[{"id": None, "name": "new", "g": 2}]))
    before = rows_of(table.table)
    assert len(before) == 3
    table.maintain()
    assert pyiceberg_rows(table.table) == duckdb_rows(table.table) == before


def test_a_delete_by_a_column_that_was_dropped_still_counts(catalog: Catalog) -> None:
    table = made(catalog, "flat")
    table.ids = ("g",)
    table.commit(table.step([], inserts=[{"id": 1, "name": "a", "g": 1}, {"id": 2, "name": "b", "g": 2}]))
    table.commit(table.step([], [{"id": 0, "name": "", "g": 2}]))
    with table.table.update_schema() as change:
        change.delete_column("g")
    table.maintain()
    assert pyiceberg_rows(table.table) == [(1, "a")]


def test_commits_in_between_are_kept_and_nothing_is_written_twice(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(catalog, "by key")
    changed(table)
    written: list[int] = []
    original, left = DeleteConversion.of, iter(range(3))

    def raced(self: DeleteConversion, loaded: Table, branch: str) -> Any:
        found = original(self, loaded, branch)
        written.append(len(self._deletes.written))
        if (number := next(left, None)) is not None:
            table.commit(table.step([row(number, "meanwhile")], [{"id": 5 + number}]))
        return found

    monkeypatch.setattr(DeleteConversion, "of", raced)
    assert len(table.maintain_only()) == len(table.maintain()) == 1
    assert written[0] == written[3] > 0  # the first commit took four attempts
    assert pyiceberg_rows(table.table) == table.rows()
    assert_no_orphans(table)


def test_a_compaction_in_between_is_kept(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(catalog, "flat")
    changed(table)
    original, left = DeleteConversion.of, iter(range(1))

    def raced(self: DeleteConversion, loaded: Table, branch: str) -> Any:
        found = original(self, loaded, branch)
        if next(left, None) is not None:
            assert len(table.maintain_only()) == 1  # somebody else does the same
            table.commit(table.step([row(1, "later")]))
        return found

    monkeypatch.setattr(DeleteConversion, "of", raced)
    assert table.maintain_only() == []
    assert len(table.maintain()) == 1
    assert pyiceberg_rows(table.table) == table.rows()
    assert_no_orphans(table)


def test_a_rollback_in_between_brings_no_delete_of_what_was_undone(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(catalog, "flat")
    changed(table, 2)
    head, expected = table.table.current_snapshot(), table.rows()
    assert head is not None
    table.commit(table.step([], [{"id": key} for key in range(12)]))
    original, left = DeleteConversion.of, iter(range(1))

    def raced(self: DeleteConversion, loaded: Table, branch: str) -> Any:
        found = original(self, loaded, branch)
        if next(left, None) is not None:
            table.table.manage_snapshots().rollback_to_snapshot(head.snapshot_id).commit()
        return found

    monkeypatch.setattr(DeleteConversion, "of", raced)
    table.maintain()
    assert pyiceberg_rows(table.table) == expected


def test_who_loses_every_race_says_so_and_leaves_nothing(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(catalog, "flat")
    changed(table)
    original = DeleteConversion.of

    def raced(self: DeleteConversion, loaded: Table, branch: str) -> Any:
        found = original(self, loaded, branch)
        table.commit(table.step([], inserts=[row(100 + len(table.expected), "new")]))
        return found

    monkeypatch.setattr(DeleteConversion, "of", raced)
    monkeypatch.setattr(maintenance, "MAX_TRIES", 3)
    with pytest.raises(CommitRefusedError):
        table.maintain_only(sleep=lambda _: None)
    assert_no_orphans(table)


@pytest.mark.parametrize("seed", range(3))
def test_lost_requests_lost_answers_and_false_conflicts_change_no_row(
    catalog: Catalog, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(catalog, "by key")
    changed(table, 6)
    monkeypatch.setattr(Table, "_do_commit", Table._do_commit)
    racer.lie(random.Random(seed), 0.2)
    assert sum(done.files for done in table.maintain_only(at_once=12, sleep=lambda _: None)) >= 6
    monkeypatch.undo()
    assert pyiceberg_rows(table.table) == table.rows()


def test_a_sink_commits_all_the_while(catalog_keys: dict[str, str]) -> None:
    catalog = open_catalog("iceberg", catalog_keys)
    table = made(catalog, "by key")
    changed(table)
    ended, converted = threading.Event(), Counter[str]()

    def maintain() -> None:
        own = MutationTable(open_catalog("iceberg", catalog_keys), table.name)
        while not ended.is_set():
            converted["files"] += sum(done.files for done in own.maintain_only())

    beside = threading.Thread(target=maintain)
    beside.start()
    chance = random.Random(1)
    for number in range(8):
        keys = chance.sample(range(40), 12)
        table.commit(table.step([row(key, f"s{number}") for key in keys[:9]], [{"id": key} for key in keys[9:]]))
    ended.set()
    beside.join()
    table.maintain()
    assert converted["files"]
    assert pyiceberg_rows(table.table) == duckdb_rows(table.table) == table.rows()


def test_a_sink_that_loses_a_race_against_maintenance_commits_on_the_new_head(catalog: Catalog) -> None:
    table = made(catalog, "flat")
    changed(table)
    step = table.step([row(1, "last")], [{"id": 2}])
    target = IcebergTarget(catalog, table_id(table.name), "main", KEY, {COMMIT_ID: "c"}, equality=True)
    admitted = Admitted(step.data_files, step.delete_files, NO_LEDGER, steps=(step,))
    state = target.load()
    table.maintain()
    with pytest.raises(CommitRefusedError):
        target.attempt(state, admitted)
    target.discard()
    target.attempt(target.load(), admitted)
    assert duckdb_rows(table.table) == rows_of(table.table) == table.rows()


def test_who_is_killed_at_any_step_leaves_the_rows_and_the_next_one_goes_on(tmp_path: Path) -> None:
    keys = {"type": "embedded", "warehouse": str(tmp_path)}
    table = made(open_catalog("iceberg", keys), "flat")
    changed(table)
    assert kills("tests.iceberg.killed_maintenance", tmp_path, table) > 5
    assert pyiceberg_rows(table.table) == table.rows()


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("file_format", ["orc", "avro"])  # the other tests here have Parquet files
def test_rows_in_other_formats_are_found_by_their_keys(catalog: Catalog, file_format: str, version: int) -> None:
    table = appended(catalog, version, 3, file_format=file_format)
    table.equality = True
    table.commit(table.step([row(1001, "new")], [{"id": 0}, {"id": 2009}]))
    assert [done.files for done in table.maintain()] == [1]
    assert not table.maintain_only()
    assert rows_of(table.table) == table.rows()
