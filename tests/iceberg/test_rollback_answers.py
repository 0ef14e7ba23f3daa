"""``calving rollback`` moves the head of a branch, and answers for the records that the branch loses (R7 to R10)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import RemoveSnapshotsUpdate, SetSnapshotRefUpdate

from calving.errors import CommitUncertainError, ConfigError, UnavailableError
from calving.iceberg.catalog import open_catalog
from calving.iceberg.history import line_of
from calving.iceberg.lineage import new_snapshot
from calving.iceberg.manifests import read_entries
from calving.iceberg.rollback import RollbackPlan, TableRollback
from calving.model.files import DataFile
from calving.model.tables import RollbackAnswer
from calving.protocol.answers import AsItIs, BeforeTime, RollbackTarget, ToSnapshot, WithoutRecord
from tests.iceberg.lake import TP, Lake
from tests.iceberg.test_rollbacks import gone, own

FORGET, RESTORE, REREAD = RollbackAnswer.FORGET, RollbackAnswer.RESTORE, RollbackAnswer.REREAD


@pytest.fixture(params=[("1", "main"), ("2", "main"), ("2", "audit")], ids=" ".join)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    version, branch = request.param
    catalog = open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)})
    return Lake(catalog, version, branch)


@pytest.fixture
def plain(tmp_path: Path) -> Lake:
    """A table of format version 2, and its branch main."""
    return Lake(open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)}), "2", "main")


def rollback(
    lake: Lake, target: RollbackTarget, answer: RollbackAnswer, *, changes_rows: bool = False, again: bool = False
) -> TableRollback:
    return TableRollback(
        lake.catalog,
        ("db", "t"),
        lake.key,
        target,
        answer,
        changes_rows=changes_rows,
        again=again,
        sleep=lambda _: None,
    )


def answered(lake: Lake, target: RollbackTarget, answer: RollbackAnswer, **how: bool) -> RollbackPlan:
    return rollback(lake, target, answer, **how).commit()


def refusal(lake: Lake, target: RollbackTarget, answer: RollbackAnswer, **how: bool) -> str:
    before = lake.table.metadata_location
    with pytest.raises(ConfigError) as caught:
        answered(lake, target, answer, **how)
    assert lake.table.metadata_location == before
    return str(caught.value)


def three_commits(lake: Lake) -> list[int]:
    """Their snapshots. The first one is of another writer."""
    heads = [lake.append(-1)]
    for start in (0, 100, 200):
        lake.commit(start, start + 100)
        heads.append(lake.head)
    return heads


# Where it goes


def test_the_head_goes_back_to_a_snapshot(lake: Lake) -> None:
    heads = three_commits(lake)
    answered(lake, ToSnapshot(heads[1]), FORGET)
    assert (lake.head, lake.rows) == (heads[1], [-1, *own(0, 100)])


def test_the_head_goes_back_to_the_newest_snapshot_from_before_a_time(plain: Lake) -> None:
    heads = three_commits(plain)
    third = plain.table.metadata.snapshot_by_id(heads[2])
    assert third is not None
    answered(plain, BeforeTime(third.timestamp_ms), FORGET)
    assert plain.head == heads[1]


def test_the_head_goes_back_to_the_newest_snapshot_that_does_not_hold_a_record(lake: Lake) -> None:
    heads = three_commits(lake)
    lake.append(-2)
    answered(lake, WithoutRecord(TP, 150), FORGET)
    assert lake.head == heads[1]


def test_a_snapshot_that_holds_no_record_of_the_sink_lacks_the_first_one(lake: Lake) -> None:
    heads = three_commits(lake)
    answered(lake, WithoutRecord(TP, 0), FORGET)
    assert (lake.head, lake.rows) == (heads[0], [-1])


def test_a_record_that_every_snapshot_holds_cannot_be_the_target(plain: Lake) -> None:
    plain.commit(0, 100)
    first = plain.head
    text = refusal(plain, WithoutRecord(TP, 0), FORGET)
    assert text == (
        f"table db.t: branch main has no snapshot that surely lacks offset 0 of orders-0; the oldest one is {first}"
    )


def test_an_expired_snapshot_cannot_be_the_target(lake: Lake) -> None:
    heads = three_commits(lake)
    lake.expire()
    assert f"snapshot {heads[1]} of table db.t has expired" in refusal(lake, ToSnapshot(heads[1]), FORGET)


def test_an_abandoned_snapshot_cannot_be_the_target(lake: Lake) -> None:
    heads = three_commits(lake)
    lake.roll_back(heads[1])
    text = refusal(lake, ToSnapshot(heads[3]), FORGET)
    assert f"snapshot {heads[3]} of table db.t is no ancestor of branch" in text


def test_no_snapshot_is_from_before_the_first_one(plain: Lake) -> None:
    three_commits(plain)
    assert "has no snapshot from before that time" in refusal(plain, BeforeTime(1), FORGET)


def test_a_table_that_lacks_nothing_needs_no_answer(lake: Lake) -> None:
    three_commits(lake)
    for answer in RollbackAnswer:
        assert "there is nothing to answer" in refusal(lake, AsItIs(), answer)


def test_a_table_without_records_of_the_sink_is_left_alone(lake: Lake) -> None:
    lake.append(-1)
    assert "holds nothing of sink control.connect-x" in refusal(lake, AsItIs(), FORGET)


def test_the_retention_of_a_branch_stays(plain: Lake) -> None:
    heads = three_commits(plain)
    kept = {"max_ref_age_ms": None, "max_snapshot_age_ms": 7, "min_snapshots_to_keep": 3}
    head = {"ref_name": "main", "type": SnapshotRefType.BRANCH, "snapshot_id": plain.head}
    plain.change(SetSnapshotRefUpdate.model_validate({**head, **kept}))
    answered(plain, ToSnapshot(heads[1]), FORGET)
    ref = plain.table.metadata.refs["main"]
    assert (ref.snapshot_id, ref.max_snapshot_age_ms, ref.min_snapshots_to_keep) == (heads[1], 7, 3)


# Forget


def test_forgotten_records_stay_away_and_later_ones_come(lake: Lake) -> None:
    heads = three_commits(lake)
    answered(lake, ToSnapshot(heads[1]), FORGET)
    lake.commit(300, 400)
    assert lake.rows == [-1, *own(0, 100), *own(300, 400)]
    assert (lake.ledger.gone, lake.ledger.unanswered) == (gone((100, 300)), {})


def test_a_rollback_by_somebody_else_is_answered_without_moving_the_head(lake: Lake) -> None:
    heads = three_commits(lake)
    lake.roll_back(heads[2])
    assert lake.ledger.unanswered == gone((200, 300))
    answered(lake, AsItIs(), FORGET)
    assert (lake.head, lake.ledger.unanswered) == (heads[2], {})


def test_forgotten_records_can_still_be_recovered(lake: Lake) -> None:
    heads = three_commits(lake)
    answered(lake, ToSnapshot(heads[1]), FORGET)
    assert lake.recover() == range(100, 10**9)
    lake.commit(100, 300)
    assert lake.rows == [-1, *own(0, 300)]


@pytest.mark.parametrize("answer", [REREAD, RESTORE])
def test_forgotten_records_are_wanted_only_if_the_command_says_so(lake: Lake, answer: RollbackAnswer) -> None:
    heads = three_commits(lake)
    answered(lake, ToSnapshot(heads[1]), FORGET)
    lake.commit(300, 400)
    text = refusal(lake, AsItIs(), answer)
    assert "was forgotten (offsets 100 to 300 of orders-0), so there is nothing to answer" in text
    answered(lake, AsItIs(), answer, again=True)
    if answer is REREAD:
        assert (lake.ledger.unanswered, lake.recover()) == (gone((100, 300)), range(100, 300))
        lake.commit(100, 300)
    assert lake.rows == [-1, *own(0, 400)]


def one_part_forgotten(lake: Lake) -> list[int]:
    """Nobody has answered for the offsets from 100 to 200, and those from 200 to 300 are forgotten."""
    heads = three_commits(lake)
    answered(lake, ToSnapshot(heads[2]), FORGET)
    lake.roll_back(heads[1])
    assert lake.ledger.unanswered == gone((100, 200))
    return heads


@pytest.mark.parametrize("later", [False, True], ids=["the branch goes forward", "files are added"])
def test_forgotten_records_are_not_restored_with_others(lake: Lake, later: bool) -> None:
    one_part_forgotten(lake)
    if later:
        lake.commit(300, 400)
    answered(lake, AsItIs(), RESTORE)
    assert lake.rows == [-1, *own(0, 200), *(own(300, 400) if later else [])]
    assert (lake.ledger.gone, lake.ledger.unanswered) == (gone((200, 300)), {})
    assert "there is nothing to answer" in refusal(lake, AsItIs(), RESTORE)


def test_forgotten_records_are_not_read_again_with_others(lake: Lake) -> None:
    one_part_forgotten(lake)
    answered(lake, AsItIs(), REREAD)
    assert lake.recover(forgotten=False) == range(100, 200)
    assert (lake.ledger.gone, lake.ledger.unanswered) == (gone((200, 300)), {})
    lake.commit(100, 200)
    assert lake.rows == [-1, *own(0, 200)]
    assert lake.ledger.gone == gone((200, 300))


def test_forgotten_changes_are_not_restored_with_others(plain: Lake) -> None:
    heads = one_part_forgotten(plain)
    answered(plain, AsItIs(), RESTORE, changes_rows=True)
    assert (plain.head, plain.ledger.unanswered) == (heads[2], {})


def test_a_second_rollback_of_the_same_records_is_not_answered_by_the_first_answer(lake: Lake) -> None:
    heads = three_commits(lake)
    answered(lake, ToSnapshot(heads[1]), FORGET)
    lake.roll_back(heads[3])
    lake.commit(300, 400)
    lake.roll_back(heads[1])
    assert lake.ledger.unanswered == gone((100, 400))


def test_a_table_in_doubt_is_well_after_its_answer(plain: Lake) -> None:
    plain.append(-1)
    plain.commit(0, 100)
    plain.compact()
    plain.expire()
    plain.drop_history()
    assert plain.ledger.doubt is not None
    answered(plain, AsItIs(), FORGET)
    now = plain.ledger
    assert (now.doubt, now.unanswered) == (None, {})


# Restore


def test_the_files_of_abandoned_commits_come_back_after_later_commits(lake: Lake) -> None:
    heads = three_commits(lake)
    lake.roll_back(heads[1])
    lake.commit(300, 400)
    done = answered(lake, AsItIs(), RESTORE)
    assert done.restoration is not None
    assert len(done.restoration.files) == 2
    assert lake.rows == [-1, *own(0, 400)]
    assert (lake.ledger.gone, lake.ledger.missing, lake.ledger.source) == ({}, {}, {TP: 400})


def test_the_sink_commits_on_after_files_came_back(lake: Lake) -> None:
    heads = three_commits(lake)
    lake.roll_back(heads[1])
    lake.commit(300, 400)
    answered(lake, AsItIs(), RESTORE)
    lake.commit(400, 500)
    assert lake.rows == [-1, *own(0, 500)]


def test_a_branch_without_later_commits_goes_forward_again(lake: Lake) -> None:
    heads = three_commits(lake)
    lake.roll_back(heads[1])
    lake.look()
    answered(lake, AsItIs(), RESTORE)
    assert (lake.head, lake.rows) == (heads[3], [-1, *own(0, 300)])
    assert lake.ledger.gone == {}


def test_rows_of_another_writer_do_not_come_back_with_those_of_the_sink(lake: Lake) -> None:
    heads = three_commits(lake)
    lake.append(-2)
    lake.commit(300, 400)
    lake.roll_back(heads[1])
    answered(lake, AsItIs(), RESTORE)
    assert lake.rows == [-1, *own(0, 400)]


def test_what_came_back_can_be_rolled_back_and_come_back_again(lake: Lake) -> None:
    heads = three_commits(lake)
    lake.roll_back(heads[1])
    lake.commit(300, 400)
    fourth = lake.head
    answered(lake, AsItIs(), RESTORE)
    lake.roll_back(fourth)
    assert lake.ledger.unanswered == gone((100, 300))
    lake.append(-2)
    answered(lake, AsItIs(), RESTORE)
    assert lake.rows == [-2, -1, *own(0, 400)]


def test_nothing_comes_back_twice(lake: Lake) -> None:
    heads = three_commits(lake)
    lake.roll_back(heads[1])
    lake.commit(300, 400)
    answered(lake, AsItIs(), RESTORE)
    assert "there is nothing to answer" in refusal(lake, AsItIs(), RESTORE)


def test_what_was_read_again_meanwhile_does_not_come_back(lake: Lake) -> None:
    heads = three_commits(lake)
    lake.roll_back(heads[1])
    lake.recover()
    lake.commit(100, 200)
    lake.roll_back(heads[1])
    lake.append(-2)
    answered(lake, AsItIs(), RESTORE)
    assert lake.rows == [-2, -1, *own(0, 200)]


def test_what_was_read_again_in_one_commit_with_later_records_comes_back(lake: Lake) -> None:
    """The snapshots from before the first rollback have the records, too, but not the later ones."""
    heads = three_commits(lake)
    lake.roll_back(heads[1])
    lake.recover()
    lake.commit(100, 350)
    lake.commit(350, 400)
    lake.roll_back(heads[1])
    lake.append(-2)
    answered(lake, AsItIs(), RESTORE)
    assert lake.rows == [-2, -1, *own(0, 400)]


def test_what_was_read_again_comes_back_as_it_was_last(lake: Lake) -> None:
    """Not with the rows from before it was read again: transforms may have changed since."""
    heads = three_commits(lake)
    lake.roll_back(heads[1])
    lake.recover()
    lake.commit(100, 200)
    newer = lake.table.metadata.snapshot_by_id(lake.head)
    assert newer is not None
    files = {
        entry.data_file.file_path for m in newer.manifests(lake.table.io) for entry in read_entries(lake.table.io, m)
    }
    lake.roll_back(heads[1])
    lake.append(-2)
    done = answered(lake, AsItIs(), RESTORE)
    assert done.restoration is not None
    assert len(done.restoration.files) == 1 and {file.file_path for file in done.restoration.files} <= files


def test_only_what_one_of_several_rollbacks_removed_comes_back_once(lake: Lake) -> None:
    heads = three_commits(lake)
    lake.roll_back(heads[2])
    lake.commit(300, 400)
    lake.roll_back(heads[1])
    lake.commit(400, 500)
    answered(lake, AsItIs(), RESTORE)
    assert lake.rows == [-1, *own(0, 500)]


def test_nothing_comes_back_if_a_commit_of_the_sink_has_expired(lake: Lake) -> None:
    heads = three_commits(lake)
    lake.roll_back(heads[1])
    lake.commit(300, 400)
    lake.expire(heads[0], heads[1], heads[2])
    text = refusal(lake, AsItIs(), RESTORE)
    assert "snapshots of this sink have expired, so nobody knows the files of offsets 200 to 300 of orders-0" in text


def test_nothing_comes_back_if_a_file_is_gone(plain: Lake) -> None:
    heads = three_commits(plain)
    file = next(iter(plain.table.inspect.files().column("file_path").to_pylist()))
    newest = [
        entry["file_path"]
        for entry in plain.table.inspect.files().to_pylist()
        if entry["record_count"] == 100 and entry["file_path"] != file
    ]
    plain.roll_back(heads[0])
    plain.commit(300, 400)
    Path(newest[0].removeprefix("file://")).unlink()
    text = refusal(plain, AsItIs(), RESTORE)
    assert f"1 of 3 files are gone from storage, such as {newest[0]}" in text


def test_rows_that_another_writer_has_deleted_do_not_come_back(plain: Lake) -> None:
    heads = three_commits(plain)
    plain.table.delete("id = 150")
    deletion = plain.head
    plain.roll_back(heads[1])
    plain.commit(300, 400)
    text = refusal(plain, AsItIs(), RESTORE)
    assert f"snapshot {deletion}, of another writer, has deleted or replaced 1 of these files" in text


def test_a_file_that_somebody_has_added_again_does_not_come_twice(plain: Lake) -> None:
    heads = three_commits(plain)
    paths = [e["file_path"] for e in plain.table.inspect.files().to_pylist() if e["record_count"] == 100]
    plain.roll_back(heads[0])
    plain.table.add_files([paths[0]])
    text = refusal(plain, AsItIs(), RESTORE)
    assert f"1 of these files already, such as {paths[0]}" in text


def forged(lake: Lake, copied: int, path: str) -> None:
    """Somebody adds a snapshot that no branch has, with the ledger of another one, and a file of his choice."""
    table = lake.table
    source = table.metadata.snapshot_by_id(copied)
    assert source is not None and source.summary is not None
    made = new_snapshot(table, source.summary.additional_properties, "main")
    made.add([DataFile(path, "PARQUET", 1, 1)])
    lake.change(*(update for update in made.prepare()[0] if not isinstance(update, SetSnapshotRefUpdate)))


@pytest.mark.parametrize("later", [False, True], ids=["the branch goes forward", "files are added"])
def test_a_file_of_another_table_does_not_come_back_whatever_a_snapshot_names(plain: Lake, later: bool) -> None:
    heads = three_commits(plain)
    plain.roll_back(heads[1])
    plain.change(RemoveSnapshotsUpdate(snapshot_ids=heads[2:3]))
    forged(plain, heads[3], "file:///elsewhere/db/secret/data/1.parquet")
    plain.change(RemoveSnapshotsUpdate(snapshot_ids=heads[3:]))
    if later:
        plain.commit(300, 400)
    text = refusal(plain, AsItIs(), RESTORE)
    assert "1 file outside the table's location" in text and "file:///elsewhere/db/secret/data/1.parquet" in text


def damaged(lake: Lake, snapshot_id: int, parent: int) -> None:
    """The metadata call a snapshot the child of this one."""
    path = Path(lake.table.metadata_location.removeprefix("file://"))
    metadata = json.loads(path.read_text())
    for each in metadata["snapshots"]:
        if each["snapshot-id"] == snapshot_id:
            each["parent-snapshot-id"] = parent
    path.write_text(json.dumps(metadata))


def test_a_branch_whose_snapshot_is_its_own_ancestor_ends_there(plain: Lake) -> None:
    plain.commit(0, 100)
    other = plain.begin_again(-1)
    damaged(plain, other, other)
    assert [each.place.id for each in line_of(plain.table, "main").snapshots] == [other]
    plain.commit(100, 200)
    assert plain.rows == [-1, *own(100, 200)]


def test_an_abandoned_snapshot_that_is_its_own_ancestor_is_not_restored(plain: Lake) -> None:
    heads = three_commits(plain)
    plain.roll_back(heads[1])
    damaged(plain, heads[2], heads[3])
    assert "nobody knows the files of offsets 100 to 200" in refusal(plain, AsItIs(), RESTORE)


def test_changes_go_forward_only_while_nothing_came_after_them(plain: Lake) -> None:
    heads = three_commits(plain)
    plain.roll_back(heads[1])
    answered(plain, AsItIs(), RESTORE, changes_rows=True)
    assert plain.head == heads[3]
    plain.roll_back(heads[1])
    plain.commit(300, 400)
    assert "cannot be put beneath later ones" in refusal(plain, AsItIs(), RESTORE, changes_rows=True)


def test_changes_that_are_being_read_again_do_not_come_back_as_well(plain: Lake) -> None:
    heads = three_commits(plain)
    plain.roll_back(heads[2])
    assert plain.recover() == range(200, 10**9)
    plain.roll_back(heads[1])
    answered(plain, AsItIs(), RESTORE, changes_rows=True)
    assert plain.head == heads[2]
    plain.commit(200, 300)
    assert plain.rows == [-1, *range(300)]


# Reread


def test_a_table_whose_records_are_read_again_waits_for_them(lake: Lake) -> None:
    heads = three_commits(lake)
    answered(lake, ToSnapshot(heads[1]), REREAD)
    assert (lake.head, lake.ledger.unanswered) == (heads[1], gone((100, 300)))
    assert lake.recover() == range(100, 10**9)


def test_changes_that_have_later_changes_above_them_are_not_read_again(plain: Lake) -> None:
    heads = three_commits(plain)
    plain.roll_back(heads[1])
    plain.commit(300, 400)
    assert "older changes cannot be put beneath them" in refusal(plain, AsItIs(), REREAD, changes_rows=True)


# Again, beside others, and interrupted


@pytest.mark.parametrize("answer", [FORGET, REREAD])
def test_the_command_may_run_a_second_time(plain: Lake, answer: RollbackAnswer) -> None:
    heads = three_commits(plain)
    answered(plain, ToSnapshot(heads[1]), answer)
    answered(plain, ToSnapshot(heads[1]), answer)
    assert (plain.head, plain.ledger.gone) == (heads[1], gone((100, 300)))


def test_a_second_run_does_not_remove_what_the_sink_has_committed_since(lake: Lake) -> None:
    heads = three_commits(lake)
    answered(lake, ToSnapshot(heads[1]), FORGET)
    lake.commit(300, 400)
    text = refusal(lake, ToSnapshot(heads[1]), FORGET)
    assert f"went back to snapshot {heads[1]} before, and has 1 newer snapshot now, up to {lake.head}" in text
    answered(lake, ToSnapshot(heads[1]), FORGET, again=True)
    assert lake.rows == [-1, *own(0, 100)]


def test_a_commit_of_the_sink_meanwhile_makes_a_new_plan(plain: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    heads = three_commits(plain)
    real, calls = Table._do_commit, []

    def commit(table: Table, *arguments: Any) -> None:
        calls.append(table)
        if len(calls) == 1:
            plain.commit(300, 400)
        real(table, *arguments)

    monkeypatch.setattr(Table, "_do_commit", commit)
    done = answered(plain, ToSnapshot(heads[1]), FORGET)
    assert len(done.leaving) == 3
    assert plain.rows == [-1, *own(0, 100)]
    assert plain.ledger.forgotten == gone((100, 400))


@pytest.mark.parametrize("answer", RollbackAnswer)
def test_a_lost_answer_of_the_catalog_is_no_failure(
    plain: Lake, answer: RollbackAnswer, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads = three_commits(plain)
    plain.roll_back(heads[1])
    plain.append(-2)
    real = Table._do_commit

    def commit(table: Table, *arguments: Any) -> None:
        real(table, *arguments)
        raise TimeoutError("no answer")

    monkeypatch.setattr(Table, "_do_commit", commit)
    answered(plain, AsItIs(), answer)
    monkeypatch.undo()
    assert plain.rows == [-2, -1, *own(0, 300 if answer is RESTORE else 100)]


def test_a_commit_that_does_not_land_changes_nothing(plain: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    heads = three_commits(plain)

    def commit(table: Table, *arguments: Any) -> None:
        raise TimeoutError("no answer")

    monkeypatch.setattr(Table, "_do_commit", commit)
    with pytest.raises(CommitUncertainError, match=r"table db\.t: .*no answer"):
        answered(plain, ToSnapshot(heads[1]), FORGET)
    monkeypatch.undo()
    assert plain.head == heads[3]


def test_a_refused_restoration_leaves_no_files_behind(plain: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    heads = three_commits(plain)
    plain.roll_back(heads[1])
    plain.append(-2)
    folder = Path(plain.table.location().removeprefix("file://")) / "metadata"
    before = {path.name for path in folder.iterdir() if path.suffix == ".avro"}

    def commit(table: Table, *arguments: Any) -> None:
        raise CommitFailedException("someone else")

    monkeypatch.setattr(Table, "_do_commit", commit)
    with pytest.raises(Exception, match="someone else"):
        answered(plain, AsItIs(), RESTORE)
    assert {path.name for path in folder.iterdir() if path.suffix == ".avro"} == before


def test_a_file_of_the_table_that_is_gone_is_named(lake: Lake) -> None:
    three_commits(lake)
    lists = [each.manifest_list for each in lake.table.metadata.snapshots]
    lake.roll_back(lake.table.metadata.snapshots[1].snapshot_id)
    for path in lists:
        Path(path.removeprefix("file://")).unlink()
    with pytest.raises(UnavailableError, match=r"table db\.t cannot be read: its file .* does not exist"):
        answered(lake, AsItIs(), RollbackAnswer.RESTORE)
