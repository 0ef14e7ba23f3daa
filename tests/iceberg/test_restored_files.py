"""A file that came back survives when the snapshots that had added it before expire.

Iceberg's incremental cleanup, the only one before 1.10, deletes what an expired snapshot has added if that snapshot is
no ancestor of the head, and no cherry-pick names it as its source: it does not look whether the head has the file.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import SetSnapshotRefUpdate

from calving.iceberg.catalog import open_catalog
from calving.iceberg.history import ancestors
from calving.protocol.answers import AsItIs
from tests.iceberg.lake import Lake
from tests.iceberg.test_rollback_answers import RESTORE, answered, one_part_forgotten, three_commits
from tests.iceberg.test_rollbacks import own


@pytest.fixture(params=[("1", "main"), ("2", "main"), ("2", "audit")], ids=" ".join)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    version, branch = request.param
    return Lake(open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)}), version, branch)


def in_danger(lake: Lake) -> set[str]:
    """The files of the head that Iceberg before 1.10 deletes when it expires all that no branch and no tag has."""
    table = lake.table
    kept = {each.snapshot_id for name in table.metadata.refs for each in ancestors(table.metadata, name)}
    added = set()
    for snapshot in table.metadata.snapshots:
        for manifest in snapshot.manifests(table.io) if snapshot.snapshot_id not in kept else ():
            if manifest.added_snapshot_id == snapshot.snapshot_id:
                entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
                added |= {entry.data_file.file_path for entry in entries if entry.snapshot_id == snapshot.snapshot_id}
    return added & {task.file.file_path for task in table.scan(snapshot_id=lake.head).plan_files()}


def rolled_back(lake: Lake) -> list[int]:
    """To the first one of three commits, and a later one above it."""
    heads = three_commits(lake)
    lake.roll_back(heads[1])
    lake.commit(300, 400)
    return heads


def test_files_that_came_back_outlive_the_snapshots_that_had_added_them(lake: Lake) -> None:
    rolled_back(lake)
    answered(lake, AsItIs(), RESTORE)
    assert (lake.rows, in_danger(lake)) == ([-1, *own(0, 400)], set())


def test_files_that_came_back_for_the_second_time_do_so_too(lake: Lake) -> None:
    rolled_back(lake)
    later = lake.head
    answered(lake, AsItIs(), RESTORE)
    lake.roll_back(later)
    lake.commit(400, 500)
    answered(lake, AsItIs(), RESTORE)
    assert (lake.rows, in_danger(lake)) == ([-1, *own(0, 500)], set())


def test_a_cherry_pick_that_was_rolled_back_is_no_danger_to_the_files_that_it_had_added(lake: Lake) -> None:
    heads = rolled_back(lake)
    later = lake.head
    lake.cherry_pick(heads[2])
    lake.roll_back(later)
    lake.commit(400, 500)
    answered(lake, AsItIs(), RESTORE)
    assert (lake.rows, in_danger(lake)) == ([-1, *own(0, 500)], set())


def test_what_a_tag_names_stays(lake: Lake) -> None:
    heads = three_commits(lake)
    ages = {"max_ref_age_ms": None, "max_snapshot_age_ms": None, "min_snapshots_to_keep": None}
    tag = {"ref_name": "before", "type": SnapshotRefType.TAG, "snapshot_id": heads[3]}
    lake.change(SetSnapshotRefUpdate.model_validate({**tag, **ages}))
    lake.roll_back(heads[1])
    lake.commit(300, 400)
    answered(lake, AsItIs(), RESTORE)
    assert {*heads} <= {each.snapshot_id for each in lake.table.metadata.snapshots}
    assert lake.table.metadata.refs["before"].snapshot_id == heads[3]


def test_what_was_forgotten_comes_back_after_what_came_back_before(lake: Lake) -> None:
    one_part_forgotten(lake)
    lake.commit(300, 400)
    answered(lake, AsItIs(), RESTORE)
    answered(lake, AsItIs(), RESTORE, again=True)
    assert (lake.rows, in_danger(lake)) == ([-1, *own(0, 400)], set())


@pytest.mark.parametrize("later_first", [False, True])
def test_each_of_two_sinks_restores_its_own_rows_in_either_order(lake: Lake, later_first: bool) -> None:
    mine, other = lake.key, replace(lake.key, group="connect-y")
    for number, key in enumerate((mine, other, mine, other, mine, other)):
        lake.key = key
        lake.commit(100 * number, 100 * number + 100)
        lake.snapshots.append(lake.head)
    lake.roll_back(lake.snapshots[1])
    lake.append(-1)
    for key in (other, mine) if later_first else (mine, other):
        lake.key = key
        answered(lake, AsItIs(), RESTORE)
    assert (lake.rows, in_danger(lake)) == ([-1, *own(0, 600)], set())
