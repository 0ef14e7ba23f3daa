"""Other writers and ``calving rollback``: what they have deleted, whatever their clocks say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from calving.iceberg.catalog import open_catalog
from calving.iceberg.lineage import new_snapshot
from calving.iceberg.manifests import key_of, read_entries, read_manifest_list
from calving.protocol.answers import AsItIs
from tests.iceberg.lake import Lake
from tests.iceberg.test_rollback_answers import RESTORE, answered, refusal, three_commits
from tests.iceberg.test_rollbacks import own


@pytest.fixture(params=["1", "2"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return Lake(open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)}), request.param, "main")


def rewrite(lake: Lake, snapshot_id: int, **entries: Any) -> None:
    """Another engine has committed this snapshot with other entries, such as the time of its clock."""
    path = Path(lake.table.metadata_location.removeprefix("file://"))
    metadata = json.loads(path.read_text())
    for each in metadata["snapshots"]:
        if each["snapshot-id"] == snapshot_id:
            each |= {name.replace("_", "-"): value for name, value in entries.items()}
    path.write_text(json.dumps(metadata))


def compact(lake: Lake) -> int:
    """Another engine puts all rows into one file, in one snapshot."""
    table = lake.table
    current = table.current_snapshot()
    assert current is not None
    manifests = read_manifest_list(table.io, current.manifest_list)
    files = [key_of(entry.data_file) for manifest in manifests for entry in read_entries(table.io, manifest)]
    snapshot = new_snapshot(table, {}, "main")
    snapshot.remove(files, [manifest.manifest_path for manifest in manifests], {})
    rows = lake.rows
    snapshot.replace([lake._file(range(rows[0], rows[-1] + 1))], current.sequence_number or None)
    lake.change(*snapshot.prepare()[0])
    return lake.head


def time_of(lake: Lake, snapshot_id: int) -> int:
    snapshot = lake.table.metadata.snapshot_by_id(snapshot_id)
    assert snapshot is not None
    return snapshot.timestamp_ms


# Deleted rows


@pytest.mark.parametrize("changes_rows", [False, True])
def test_the_branch_does_not_go_forward_past_a_deletion(lake: Lake, changes_rows: bool) -> None:
    heads = three_commits(lake)
    lake.table.delete("id = 150")
    deletion = lake.head
    lake.roll_back(heads[1])
    text = refusal(lake, AsItIs(), RESTORE, changes_rows=changes_rows)
    assert f"snapshot {deletion}, of another writer, has deleted or replaced 1 of these files" in text


def test_the_branch_goes_forward_past_a_compaction(lake: Lake) -> None:
    heads = three_commits(lake)
    compact(lake)
    lake.roll_back(heads[1])
    answered(lake, AsItIs(), RESTORE)
    assert (lake.head, lake.rows) == (heads[3], [-1, *own(0, 300)])


def test_the_branch_does_not_go_forward_past_a_deletion_from_compacted_files(lake: Lake) -> None:
    heads = three_commits(lake)
    compact(lake)
    lake.table.delete("id = 150")
    deletion = lake.head
    lake.roll_back(heads[1])
    assert f"snapshot {deletion}, of another writer, has deleted" in refusal(lake, AsItIs(), RESTORE)


def test_a_deletion_of_rows_that_the_branch_has_does_not_prevent_that_it_goes_forward(lake: Lake) -> None:
    heads = three_commits(lake)
    lake.table.delete("id = -1")
    lake.roll_back(heads[1])
    answered(lake, AsItIs(), RESTORE)
    assert lake.head == heads[3]


def test_deleted_rows_do_not_come_back_if_the_clock_of_their_deletion_is_behind(lake: Lake) -> None:
    heads = three_commits(lake)
    lake.append(-2)
    lake.table.delete("id = 150")
    deletion = lake.head
    rewrite(lake, deletion, timestamp_ms=time_of(lake, heads[0]) - 30_000)
    lake.roll_back(heads[1])
    lake.commit(300, 400)
    text = refusal(lake, AsItIs(), RESTORE)
    assert f"snapshot {deletion}, of another writer, has deleted or replaced 1 of these files" in text


def test_deleted_rows_do_not_come_back_if_the_snapshot_below_their_deletion_has_expired(lake: Lake) -> None:
    heads = three_commits(lake)
    lake.append(-2)
    lake.table.delete("id = 150")
    deletion = lake.head
    lake.roll_back(heads[1])
    lake.commit(300, 400)
    lake.expire(*heads, deletion)
    text = refusal(lake, AsItIs(), RESTORE)
    assert f"snapshot {deletion}, of another writer, has deleted or replaced 1 of these files" in text
