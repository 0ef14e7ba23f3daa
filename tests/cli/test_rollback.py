"""What ``calving rollback`` says, and does, where nothing of it needs a broker."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table.update import AddSnapshotUpdate, SetPropertiesUpdate, SetSnapshotRefUpdate

from calving.cli.rollback import rollback
from calving.errors import ConfigError
from calving.iceberg.batches import BatchCommitter, BatchFiles
from calving.iceberg.catalog import open_catalog
from calving.model.tables import RollbackAnswer
from calving.protocol.answers import ToSnapshot
from calving.protocol.batch_ledger import BatchEntry, OneWrite, StreamBatch
from tests.cli.test_compact import sink_of, table_with


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path / "warehouse")})


def test_a_table_leaves_a_snapshot_whose_time_is_in_microseconds(catalog: Catalog, tmp_path: Path) -> None:
    made = table_with(catalog, 2)
    head = made.table.current_snapshot()
    assert head is not None
    micros = 1_790_000_000_000_000
    theirs = head.model_copy(
        update={
            "snapshot_id": 77,
            "parent_snapshot_id": head.snapshot_id,
            "sequence_number": (head.sequence_number or 0) + 1,
            "timestamp_ms": micros,
        }
    )
    to_it = SetSnapshotRefUpdate.model_validate(
        {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 77}
    )
    ours = SetPropertiesUpdate(updates={"calving.control-log-id.control-iceberg.connect-x": "log-1"})
    made.table._do_commit((AddSnapshotUpdate(snapshot=theirs), to_it, ours), ())
    lines = list(
        rollback(sink_of(tmp_path, made.name), [made.name], ToSnapshot(head.snapshot_id), RollbackAnswer.FORGET)
    )
    assert f"went back from snapshot 77, whose time {micros} ms is none" in lines[0] and lines[-1] == "done"
    assert made.table.refresh().metadata.current_snapshot_id == head.snapshot_id


def test_it_says_which_batches_and_writes_of_spark_leave_with_the_records(catalog: Catalog, tmp_path: Path) -> None:
    made = table_with(catalog, 2)
    table, name = made.table, tuple(made.name.split("."))
    staying = None
    entries: list[BatchEntry] = [StreamBatch(made.name, "numbers", "q", batch) for batch in (6, 7, 8)]
    for entry in (*entries, OneWrite("daily")):
        BatchCommitter(catalog, name).commit(BatchFiles(str(table.metadata.table_uuid), [], entry.name), entry)
        staying = staying or table.refresh().metadata.current_snapshot_id
    assert staying is not None
    ours = {"calving.control-log-id.control-iceberg.connect-x": "log-1"}
    table.refresh()._do_commit((SetPropertiesUpdate(updates=ours),), ())
    sink, there = sink_of(tmp_path, made.name), ToSnapshot(staying)
    planned, done = (
        list(rollback(sink, [made.name], there, RollbackAnswer.FORGET, dry_run=dry_run)) for dry_run in (True, False)
    )
    for lines, loses in ((planned, "would lose"), (done, "lost")):
        text = "\n".join(lines)
        batches = f"sink numbers of Spark {loses} the batches after 6, up to batch 8 of query q; the answer is not for"
        assert f"table {made.name}: {batches}" in text
        assert f"table {made.name} {loses} 1 batch write of Spark: daily; a write that is repeated" in text
    with pytest.raises(ConfigError, match=r"was rolled back: it does not hold batch 8 of query q"):
        BatchCommitter(catalog, name).commit(
            BatchFiles(str(table.metadata.table_uuid), [], "batch 9"), StreamBatch(made.name, "numbers", "q", 9)
        )
