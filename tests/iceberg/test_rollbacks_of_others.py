"""Other writers and ``calving rollback``: what they have deleted, whatever their clocks say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.update import AddSchemaUpdate, RemoveSnapshotRefUpdate, SetCurrentSchemaUpdate
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

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
    snapshot.replace([lake.file(range(rows[0], rows[-1] + 1))], current.sequence_number or None)
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


@pytest.mark.parametrize("lake", ["2"], indirect=True)
def test_files_do_not_come_back_if_a_snapshot_that_came_after_them_has_expired(lake: Lake) -> None:
    """A tag keeps the sink's own snapshots. Nobody knows what the expired one has deleted."""
    heads = three_commits(lake)
    lake.table.delete("id = 150")
    lake.roll_back(heads[1])
    lake.commit(300, 400)
    lake.expire(*heads)
    assert f"1 snapshot has expired that came after snapshot {heads[2]}" in refusal(lake, AsItIs(), RESTORE)


# Replaced schemas


def begin_again(lake: Lake, schema: Schema) -> None:
    """As CREATE OR REPLACE TABLE does: columns of the same names have their ids again, whatever their types."""
    lake.change(
        RemoveSnapshotRefUpdate(ref_name="main"),
        AddSchemaUpdate.model_validate({"schema": schema}),
        SetCurrentSchemaUpdate(schema_id=1),
    )
    columns = schema.as_arrow()
    values = {field.name: pa.array([1], pa.int64()).cast(field.type) for field in columns}
    lake.table.append(pa.table(values, schema=columns))


ID, OTHER = NestedField(1, "id", LongType(), required=False), NestedField(2, "n", LongType(), required=False)


@pytest.mark.parametrize(
    ("schema", "column"),
    [
        (Schema(NestedField(1, "id", StringType(), required=False), schema_id=1), "id"),
        (Schema(NestedField(1, "id", IntegerType(), required=False), schema_id=1), "id"),
        (Schema(NestedField(1, "id", LongType(), required=True), schema_id=1), "id"),
        (Schema(ID, NestedField(2, "n", LongType(), required=True), schema_id=1), "n"),
    ],
    ids=["another type", "a narrower type", "required now", "another column that is required"],
)
def test_files_that_would_make_the_table_unreadable_do_not_come_back(lake: Lake, schema: Schema, column: str) -> None:
    heads = three_commits(lake)
    begin_again(lake, schema)
    text = refusal(lake, AsItIs(), RESTORE)
    assert f"snapshot {heads[1]} has files without column {column} as it is now" in text


def test_files_come_back_into_a_table_with_other_optional_columns(lake: Lake) -> None:
    three_commits(lake)
    begin_again(lake, Schema(ID, OTHER, schema_id=1))
    answered(lake, AsItIs(), RESTORE)
    assert lake.rows == sorted([1, *own(0, 300)])


def test_the_branch_does_not_go_forward_to_files_that_nobody_could_read(lake: Lake) -> None:
    heads = three_commits(lake)
    lake.roll_back(heads[1])
    narrow = Schema(NestedField(1, "id", IntegerType(), required=False), schema_id=1)
    lake.change(AddSchemaUpdate.model_validate({"schema": narrow}), SetCurrentSchemaUpdate(schema_id=1))
    assert "has files without column id as it is now" in refusal(lake, AsItIs(), RESTORE)


# Rows that the sink itself has changed


def test_files_do_not_come_back_alone_from_a_time_when_the_sink_changed_rows(lake: Lake) -> None:
    """Since then its settings are others: it appends."""
    heads = three_commits(lake)
    lake.roll_back(heads[1])
    summary = lake.table.metadata.snapshot_by_id(heads[3])
    assert summary is not None and summary.summary is not None
    entries = summary.summary.additional_properties
    rewrite(lake, heads[3], summary={**entries, "operation": "overwrite"})
    lake.commit(300, 400)
    assert f"snapshot {heads[3]} of this sink did not only append" in refusal(lake, AsItIs(), RESTORE)
