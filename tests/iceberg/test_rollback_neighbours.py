"""Answers to a rollback beside another sink, expiry, recoveries, a failing catalog and thousands of snapshots."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table
from pyiceberg.table.update import SetPropertiesUpdate

from calving.errors import CommitUncertainError
from calving.iceberg.catalog import open_catalog
from calving.iceberg.summary import engine
from calving.iceberg.target import IcebergTarget
from calving.protocol.answers import AsItIs, ToSnapshot, WithoutRecord
from tests.iceberg.lake import KEY, TP, Lake
from tests.iceberg.test_rollback_answers import FORGET, REREAD, RESTORE, answered, refusal, three_commits
from tests.iceberg.test_rollbacks import gone, own


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)}), "2", "main")


def test_commits_expire_nothing_that_a_restoration_needs(lake: Lake) -> None:
    heads = three_commits(lake)
    lake.roll_back(heads[1])
    lake.change(SetPropertiesUpdate(updates={"calving.expire.max-snapshots": "2"}))
    for offset in range(300, 315):
        lake.commit(offset, offset + 1)
    answered(lake, AsItIs(), RESTORE)
    assert lake.rows == [-1, *own(0, 315)]


def test_snapshots_expire_again_after_the_answer(lake: Lake) -> None:
    heads = three_commits(lake)
    lake.roll_back(heads[1])
    lake.change(SetPropertiesUpdate(updates={"calving.expire.max-snapshots": "2"}))
    answered(lake, AsItIs(), FORGET)
    for offset in range(300, 315):
        lake.commit(offset, offset + 1)
    assert heads[1] not in {each.snapshot_id for each in lake.table.metadata.snapshots}


def test_removed_commits_of_another_sink_do_not_prevent_a_restoration(lake: Lake) -> None:
    heads = three_commits(lake)
    mine, lake.key = lake.key, replace(KEY, group="connect-y", log_id="log-2")
    lake.commit(1000, 1100)
    lake.key = mine
    lake.roll_back(heads[1])
    lake.commit(300, 400)
    answered(lake, AsItIs(), RESTORE)
    assert lake.rows == [-1, *own(0, 400)]


def test_changes_that_cannot_be_restored_can_be_read_again_unless_later_ones_came(lake: Lake) -> None:
    heads = three_commits(lake)
    lake.roll_back(heads[1])
    lake.append(-2)
    assert "what is left is `reread` or `forget`" in refusal(lake, AsItIs(), RESTORE, changes_rows=True)
    lake.commit(300, 400)
    assert refusal(lake, AsItIs(), RESTORE, changes_rows=True).endswith("what is left is `forget`")


def test_an_earlier_run_of_the_command_is_not_taken_for_a_commit_that_failed(
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


def recovery_begins(lake: Lake) -> None:
    IcebergTarget(lake.catalog, ("db", "t"), "main", lake.key, engine()).supersede(lambda _: {"x": "y"})


def test_a_second_run_keeps_the_snapshot_of_the_recovery_that_the_first_one_began(lake: Lake) -> None:
    heads = three_commits(lake)
    answered(lake, ToSnapshot(heads[1]), REREAD)
    recovery_begins(lake)
    head = lake.head
    answered(lake, ToSnapshot(heads[1]), REREAD)
    assert (lake.head, lake.ledger.unanswered) == (head, gone((100, 300)))


def changed_metadata(lake: Lake, removed: int, count: int, summaries: Mapping[str, str] | None) -> list[int]:
    """Copies of a snapshot, each the child of the one before. ``summaries``: theirs; None if each one is a commit of
    the sink of one more offset.
    """
    path = Path(lake.table.metadata_location.removeprefix("file://"))
    metadata = json.loads(path.read_text())
    last = next(each for each in metadata["snapshots"] if each["snapshot-id"] == removed)
    ids = [*range(10**9, 10**9 + count)]
    for place, snapshot_id in enumerate(ids):
        offsets = {"calving.source-offsets": json.dumps({"orders@id1": [301 + place]})}
        metadata["last-sequence-number"] += 1
        last = {
            **last,
            "snapshot-id": snapshot_id,
            "parent-snapshot-id": last["snapshot-id"],
            "sequence-number": metadata["last-sequence-number"],
            "summary": {**last["summary"], **offsets} if summaries is None else summaries,
        }
        metadata["snapshots"].append(last)
    path.write_text(json.dumps(metadata))
    return ids


def test_a_restoration_of_a_thousand_commits_is_planned_in_a_moment(lake: Lake) -> None:
    heads = three_commits(lake)
    lake.roll_back(heads[1])
    changed_metadata(lake, heads[3], 1000, None)
    away = {"orders@id1": {"0": [[100, 1300]]}}
    lake.change(SetPropertiesUpdate(updates={lake.key.of_table("calving.gone-offsets"): json.dumps(away)}))
    lake.append(-2)
    began = time.monotonic()
    done = answered(lake, AsItIs(), RESTORE)
    assert time.monotonic() - began < 8
    assert done.restoration is not None and len(done.restoration.commits.snapshots) == 1002


def test_the_newest_snapshot_without_a_record_is_found_below_a_thousand_of_others(lake: Lake) -> None:
    heads = three_commits(lake)
    lake.roll_back(changed_metadata(lake, heads[3], 1000, {"operation": "append"})[-1])
    began = time.monotonic()
    answered(lake, WithoutRecord(TP, 250), FORGET)
    assert time.monotonic() - began < 8
    assert lake.head == heads[2]
