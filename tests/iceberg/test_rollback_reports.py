"""``calving rollback`` where others have gone wrong: clocks, doubt, forgotten records, two sinks, answers that are lost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table
from pyiceberg.table.update import RemoveSnapshotRefUpdate

from calving.errors import CommitUncertainError
from calving.iceberg.catalog import open_catalog
from calving.model.offsets import Span
from calving.model.tables import RollbackAnswer
from calving.protocol.answers import AsItIs, BeforeTime, ToSnapshot, WithoutRecord
from tests.iceberg.lake import TP, Lake
from tests.iceberg.test_rollback_answers import FORGET, REREAD, RESTORE, answered, refusal, three_commits
from tests.iceberg.test_rollbacks import gone, own
from tests.iceberg.test_rollbacks_of_others import rewrite, time_of


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)}), "2", "main")


@pytest.mark.parametrize("changes_rows", [False, True])
def test_what_was_forgotten_does_not_come_back_with_what_a_later_rollback_removed(
    lake: Lake, changes_rows: bool
) -> None:
    heads = three_commits(lake)
    answered(lake, ToSnapshot(heads[1]), FORGET)
    lake.roll_back(heads[0])
    assert lake.ledger.unanswered == gone((0, 100))
    answered(lake, AsItIs(), RESTORE, changes_rows=changes_rows)
    assert (lake.head, lake.rows) == (heads[1], [-1, *own(0, 100)])
    assert lake.ledger.forgotten == gone((100, 300))


def in_doubt(lake: Lake) -> None:
    lake.append(-1)
    lake.commit(0, 100)
    lake.compact()
    lake.expire()
    lake.drop_history()
    assert lake.ledger.doubt is not None


@pytest.mark.parametrize("answer", [FORGET, REREAD])
def test_a_table_stays_in_doubt_until_a_recovery_has_answered(lake: Lake, answer: RollbackAnswer) -> None:
    in_doubt(lake)
    answered(lake, AsItIs(), answer)
    assert (lake.ledger.doubt is None) is (answer is FORGET)


def test_no_snapshot_from_after_the_time_stays_if_a_clock_was_behind(lake: Lake) -> None:
    heads = three_commits(lake)
    last = lake.append(-2)
    cut = time_of(lake, heads[2])
    rewrite(lake, last, timestamp_ms=time_of(lake, heads[0]))
    answered(lake, BeforeTime(cut), FORGET)
    assert (lake.head, lake.rows) == (heads[1], [-1, *own(0, 100)])


def test_a_commit_that_did_not_land_is_not_taken_for_the_same_one_before(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads = three_commits(lake)
    answered(lake, ToSnapshot(heads[1]), FORGET)
    lake.roll_back(heads[3])

    def commit(table: Table, *arguments: Any) -> None:
        raise TimeoutError("no answer")

    monkeypatch.setattr(Table, "_do_commit", commit)
    with pytest.raises(CommitUncertainError):
        answered(lake, ToSnapshot(heads[1]), FORGET)


def test_each_of_two_sinks_restores_its_own_rows(lake: Lake) -> None:
    mine, other = lake.key, replace(lake.key, group="connect-y")
    lake.key = other
    lake.commit(900, 1000)
    lake.key = mine
    heads = three_commits(lake)
    lake.key = other
    lake.commit(1000, 1100)
    lake.key = mine
    lake.commit(300, 400)
    lake.roll_back(heads[1])
    answered(lake, AsItIs(), RESTORE)
    assert lake.rows == [-1, *own(0, 400), *own(900, 1000)]
    lake.key = other
    answered(lake, AsItIs(), RESTORE)
    assert lake.rows == [-1, *own(0, 400), *own(900, 1100)]
    lake.key = mine
    assert lake.ledger.gone == {}


def test_files_that_the_sink_has_committed_under_a_former_name_do_not_count_as_restored(lake: Lake) -> None:
    """The first ledger under the new name takes over the offsets of the former one."""
    heads = three_commits(lake)
    lake.key = replace(lake.key, group="connect-new")
    lake.commit(300, 400)
    assert lake.ledger.held(TP) == (Span(0, 400),)
    lake.roll_back(heads[1])
    lake.append(-2)
    assert "nobody knows the files of offsets 0 to 300 of orders-0" in refusal(lake, AsItIs(), RESTORE)


def test_files_of_the_java_sink_are_not_restored_for_nobody_knows_their_records(lake: Lake) -> None:
    heads = three_commits(lake)
    snapshot = lake.table.current_snapshot()
    assert snapshot is not None and snapshot.summary is not None
    entries = {n: v for n, v in snapshot.summary.additional_properties.items() if not n.startswith("calving.")}
    rewrite(lake, heads[3], summary={"operation": "append", **entries})
    lake.roll_back(heads[1])
    lake.append(-2)
    text = refusal(lake, AsItIs(), RESTORE)
    assert text.startswith(f"table db.t: snapshot {heads[3]} was committed by a sink that tells no source offsets")


def test_nothing_is_restored_into_a_branch_that_was_dropped(tmp_path: Path) -> None:
    """It would lack what main has: the sink makes its branch from main."""
    lake = Lake(open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)}), "2", "audit")
    lake.commit(0, 100)
    last = lake.head
    lake.change(RemoveSnapshotRefUpdate(ref_name="audit"))
    text = refusal(lake, AsItIs(), RESTORE)
    assert f"has no branch audit: to have all that was in it, create it again at snapshot {last}; " in text


def test_a_target_that_is_the_head_is_named(lake: Lake) -> None:
    three_commits(lake)
    text = refusal(lake, WithoutRecord(TP, 300), FORGET)
    assert f"branch main stays at its head, snapshot {lake.head}, and holds all that this sink has committed" in text
