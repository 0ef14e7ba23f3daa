"""Other engines roll tables back, compact and expire, and the sink finds out what its tables still hold (R1 to R4)."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import (
    AssertTableUUID,
    RemovePropertiesUpdate,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
)
from pyiceberg.types import LongType, NestedField

from calving.iceberg.ancestry import line_of
from calving.iceberg.catalog import open_catalog
from calving.iceberg.lineage import new_snapshot
from calving.iceberg.rollbacks import look
from calving.iceberg.target import IcebergTarget
from calving.model.coverage import merged
from calving.model.events import DataWritten, Envelope, TableReference
from calving.model.files import DataFile
from calving.model.offsets import Span, TopicPartition
from calving.protocol.commit import CommitLoop, Settled
from calving.protocol.ledger import Ledger, LedgerKey, SourceProgress
from calving.protocol.recovery import recovery

KEY = LedgerKey("control", "connect-x", "log-1")
TP = TopicPartition("orders", 0, "id1")
SCHEMA = Schema(NestedField(1, "id", LongType(), required=False))


class Lake:
    """One table, which a sink writes to, and other engines change."""

    def __init__(self, catalog: Catalog, version: str, branch: str, *, in_order: bool = False) -> None:
        self.catalog, self._branch, self._in_order = catalog, branch, in_order
        self.key = replace(KEY, branch=branch)
        self._at = 0
        catalog.create_namespace("db")
        made = catalog.create_table("db.t", SCHEMA, properties={"format-version": version})
        self._folder = Path(made.location().removeprefix("file://")) / "data"
        self._folder.mkdir(parents=True, exist_ok=True)

    @property
    def table(self) -> Table:
        return self.catalog.load_table("db.t")

    @property
    def head(self) -> int:
        return self.table.metadata.refs[self._branch].snapshot_id

    @property
    def rows(self) -> list[int]:
        return sorted(self.table.scan(snapshot_id=self.head).to_arrow()["id"].to_pylist())

    @property
    def ledger(self) -> Ledger:
        table = self.table
        return self.key.read(line_of(table, self._branch), table.properties)

    def _file(self, rows: range) -> DataFile:
        path = self._folder / f"{uuid4()}.parquet"
        pq.write_table(pa.table([pa.array(rows, pa.int64())], schema=self.table.schema().as_arrow()), path)
        return DataFile(f"file://{path}", "PARQUET", len(rows), path.stat().st_size)

    def publish(self, start: int, end: int) -> Envelope:
        """A publication of these offsets; each record's row is its offset."""
        reference = TableReference("c", ("db",), "t", self.table.metadata.table_uuid)
        self._at += 2
        event = DataWritten(uuid4(), reference, (self._file(range(start, end)),))
        return Envelope(0, self._at - 2, event, {TP: (Span(start, end),)})

    def commit(self, start: int, end: int) -> Settled:
        """The sink commits the records of these offsets."""
        entry = self.publish(start, end)
        target = IcebergTarget(self.catalog, ("db", "t"), self._branch, self.key, {"kafka.connect.commit-id": "c"})
        progress = SourceProgress({TP: (Span(0, end),)}, {TP: (Span(0, start),)})
        return CommitLoop(target, self.key, 5, in_order=self._in_order).settle([entry], {0: self._at}, progress)

    def look(self) -> Ledger | None:
        return look(self.catalog, ("db", "t"), self.key)

    # Other engines

    def change(self, *updates: TableUpdate) -> None:
        table = self.table
        table._do_commit(updates, (AssertTableUUID(uuid=table.metadata.table_uuid),))

    def append(self, *rows: int) -> int:
        """Another writer's snapshot."""
        table = self.table
        snapshot = new_snapshot(table, {}, self._branch)
        snapshot.add([self._file(range(row, row + 1)) for row in rows])
        self.change(*snapshot.prepare()[0])
        return self.head

    def compact(self) -> int:
        """All rows in new files."""
        rows = pa.table({"id": self.rows})
        self.table.overwrite(rows, branch=self._branch)
        return self.head

    def begin_again(self, *rows: int) -> int:
        """As CREATE OR REPLACE TABLE AS does: a snapshot without a parent."""
        self.change(RemoveSnapshotRefUpdate(ref_name=self._branch))
        return self.append(*rows)

    def roll_back(self, snapshot_id: int) -> None:
        ages = {"max_ref_age_ms": None, "max_snapshot_age_ms": None, "min_snapshots_to_keep": None}
        to = {"ref_name": self._branch, "type": SnapshotRefType.BRANCH, "snapshot_id": snapshot_id}
        self.change(SetSnapshotRefUpdate.model_validate({**to, **ages}))

    def expire(self, *but: int) -> None:
        """Expire all snapshots except the head and these."""
        kept = {*but, *(ref.snapshot_id for ref in self.table.metadata.refs.values())}
        ids = [s.snapshot_id for s in self.table.metadata.snapshots if s.snapshot_id not in kept]
        self.change(RemoveSnapshotsUpdate(snapshot_ids=ids))

    def drop_history(self) -> None:
        """Delete the earlier versions of the metadata, as the catalog does in time."""
        for entry in self.table.metadata.metadata_log:
            Path(entry.metadata_file.removeprefix("file://")).unlink(missing_ok=True)

    # The operator

    def recover(self) -> range:
        """As `calving recover --table` does; the offsets that are read again."""
        found = recovery({"db.t": self.ledger}, ["db.t"], complete=True)
        position, held = found.positions.get(TP, 0), found.held["db.t"]
        head = line_of(self.table, self._branch).head
        with self.table.transaction() as change:
            change.set_properties(self.key.brought_back(self.ledger, head.place if head else None))
        return range(position, held[TP][0].start if TP in held else 10**9)


@pytest.fixture(params=["1", "2"])
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def lake(tmp_path: Path, version: str) -> Lake:
    catalog = open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)})
    return Lake(catalog, version, "main")


def own(start: int, end: int) -> list[int]:
    return list(range(start, end))


def gone(*spans: tuple[int, int]) -> dict[TopicPartition, tuple[Span, ...]]:
    return {TP: tuple(Span(*span) for span in spans)}


# Noticed


def test_a_rollback_to_another_writers_snapshot_from_before_the_first_commit_is_noticed(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    backfill = lake.append(-1)
    lake.commit(0, 100)
    lake.commit(100, 200)
    lake.roll_back(backfill)
    done = lake.commit(200, 300)
    assert "table db.t was rolled back: it no longer holds 200 offsets" in caplog.text
    assert "`calving recover FILE --table db.t`" in caplog.text
    assert lake.rows == [-1, *own(200, 300)]
    assert lake.ledger.gone == gone((0, 200))
    assert (lake.ledger.source, lake.ledger.missing) == ({TP: 300}, gone((0, 200)))
    assert done.admitted.ledger.settled == {TP: 0}


def test_a_rollback_to_another_writers_compaction_is_noticed_and_the_table_keeps_what_that_holds(lake: Lake) -> None:
    lake.commit(0, 100)
    compaction = lake.compact()
    lake.expire()
    lake.commit(100, 200)
    lake.commit(200, 300)
    lake.roll_back(compaction)
    lake.commit(300, 400)
    assert lake.ledger.gone == gone((100, 300))
    assert lake.rows == [*own(0, 100), *own(300, 400)]


def test_a_table_that_begins_again_is_noticed(lake: Lake) -> None:
    lake.commit(0, 100)
    lake.commit(100, 200)
    lake.begin_again(-1)
    lake.commit(200, 300)
    assert lake.ledger.gone == gone((0, 200))
    assert lake.rows == [-1, *own(200, 300)]


def test_a_table_that_begins_again_is_noticed_after_everything_else_has_expired(lake: Lake) -> None:
    lake.commit(0, 100)
    lake.begin_again(-1)
    lake.expire()
    lake.commit(100, 200)
    assert lake.ledger.gone == gone((0, 100))


def test_a_table_without_a_head_holds_nothing(lake: Lake) -> None:
    lake.commit(0, 100)
    lake.change(RemoveSnapshotRefUpdate(ref_name="main"))
    assert lake.look() == Ledger({0: 2}, gone=gone((0, 100)))


def test_the_log_tells_of_a_rollback_once(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    backfill = lake.append(-1)
    lake.commit(0, 100)
    lake.roll_back(backfill)
    lake.look()
    lake.look()
    lake.commit(100, 200)
    lake.commit(200, 300)
    assert caplog.text.count("was rolled back") == 1


# Rolled back, and then the snapshots that show it expire


def test_a_look_at_a_quiet_table_notes_a_rollback_before_its_snapshots_expire(lake: Lake) -> None:
    lake.commit(0, 100)
    first = lake.head
    lake.commit(100, 200)
    lake.roll_back(first)
    lake.look()
    lake.append(-1)
    lake.expire()
    lake.drop_history()
    assert (lake.ledger.source, lake.ledger.gone) == ({TP: 100}, gone((100, 200)))
    lake.commit(200, 300)
    assert lake.ledger.gone == gone((100, 200))
    assert lake.rows == [-1, *own(0, 100), *own(200, 300)]


def test_earlier_versions_of_the_metadata_tell_of_a_rollback_whose_snapshots_have_expired(lake: Lake) -> None:
    lake.commit(0, 100)
    first = lake.head
    lake.commit(100, 200)
    lake.roll_back(first)
    lake.append(-1)
    lake.expire()
    lake.commit(200, 300)
    assert lake.ledger.gone == gone((100, 200))
    assert lake.rows == [-1, *own(0, 100), *own(200, 300)]


def test_without_a_look_such_a_rollback_is_in_doubt(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    lake.commit(0, 100)
    first = lake.head
    lake.commit(100, 200)
    last = lake.head
    lake.roll_back(first)
    lake.append(-1)
    lake.expire()
    lake.drop_history()
    lake.commit(200, 300)
    assert "table db.t may have been rolled back" in caplog.text
    doubt = lake.ledger.doubt
    assert doubt is not None and doubt.id == last
    lake.commit(300, 400)
    assert lake.ledger.doubt == doubt
    assert caplog.text.count("may have been rolled back") == 1


def test_expiry_alone_leaves_no_doubt(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    lake.commit(0, 100)
    lake.commit(100, 200)
    lake.append(-1)
    lake.expire()
    assert lake.ledger == Ledger({0: 4}, {TP: 200}, {TP: 100})
    lake.commit(200, 300)
    assert lake.ledger.gone == {}
    assert not caplog.text


def test_a_compaction_that_a_look_has_seen_leaves_no_doubt_when_the_rest_expires(lake: Lake) -> None:
    lake.commit(0, 100)
    lake.append(-1)
    lake.compact()
    lake.look()
    lake.expire()
    lake.append(-2)
    lake.drop_history()
    assert (lake.ledger.source, lake.ledger.gone, lake.ledger.doubt) == ({TP: 100}, {}, None)


def test_a_compaction_is_in_doubt_if_nobody_has_seen_it_before_the_rest_expired_with_its_history(lake: Lake) -> None:
    lake.commit(0, 100)
    lake.append(-1)
    lake.compact()
    lake.expire()
    assert (lake.ledger.source, lake.ledger.doubt) == ({TP: 100}, None)
    lake.drop_history()
    assert lake.ledger.doubt is not None
    assert lake.ledger.source == {TP: 100}


def test_a_look_changes_nothing_where_there_is_nothing_to_note(lake: Lake) -> None:
    lake.append(-1)
    assert lake.look() == Ledger({})
    lake.commit(0, 100)
    before = lake.table.metadata_location
    lake.look()
    assert lake.table.metadata_location == before
    lake.append(-2)
    lake.look()
    before = lake.table.metadata_location
    lake.look()
    assert lake.table.metadata_location == before


def test_a_look_writes_nothing_onto_a_head_that_has_moved(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    backfill = lake.append(-1)
    lake.commit(0, 100)
    last = lake.head
    lake.roll_back(backfill)
    original = Table._do_commit

    def late(self: Table, *args: Any) -> None:
        monkeypatch.setattr(Table, "_do_commit", original)
        lake.roll_back(last)
        original(self, *args)

    monkeypatch.setattr(Table, "_do_commit", late)
    lake.look()
    assert (lake.ledger.source, lake.ledger.gone) == ({TP: 100}, {})


# Answered


@pytest.mark.parametrize("looked", [False, True])
def test_after_a_rollback_to_before_the_first_commit_all_records_are_read_again(lake: Lake, looked: bool) -> None:
    backfill = lake.append(-1)
    lake.commit(0, 100)
    lake.commit(100, 200)
    lake.roll_back(backfill)
    if looked:
        lake.look()
    else:
        lake.commit(200, 300)
    again = lake.recover()
    assert again.start == 0
    assert lake.ledger.gone == {}


def test_after_a_rollback_to_a_compaction_the_records_since_then_are_read_again(lake: Lake) -> None:
    lake.commit(0, 100)
    compaction = lake.compact()
    lake.expire()
    lake.commit(100, 200)
    lake.commit(200, 300)
    lake.roll_back(compaction)
    lake.drop_history()
    assert lake.recover().start == 100
    lake.append(-1)
    lake.expire()
    lake.drop_history()
    assert (lake.ledger.source, lake.ledger.gone, lake.ledger.doubt) == ({TP: 100}, {}, None)


def test_a_rollback_is_over_when_the_head_is_moved_forward_again(lake: Lake) -> None:
    backfill = lake.append(-1)
    lake.commit(0, 100)
    last = lake.head
    lake.roll_back(backfill)
    lake.look()
    lake.roll_back(last)
    assert (lake.ledger.source, lake.ledger.gone) == ({TP: 100}, {})
    lake.look()
    lake.roll_back(backfill)
    assert lake.ledger.gone == gone((0, 100))


def test_a_head_that_moves_forward_over_later_commits_takes_these_away(lake: Lake) -> None:
    backfill = lake.append(-1)
    lake.commit(0, 100)
    abandoned = lake.head
    lake.roll_back(backfill)
    lake.commit(100, 200)
    lake.roll_back(abandoned)
    assert (lake.ledger.source, lake.ledger.gone) == ({TP: 100}, gone((100, 200)))


def test_doubt_ends_when_the_head_is_moved_to_the_commit(lake: Lake) -> None:
    lake.commit(0, 100)
    first = lake.head
    lake.commit(100, 200)
    last = lake.head
    lake.roll_back(first)
    lake.append(-1)
    lake.expire(last)
    lake.drop_history()
    looked = lake.look()
    assert looked is not None and looked.doubt is not None
    lake.roll_back(last)
    assert lake.ledger == replace(lake.ledger, source={TP: 200}, gone={}, doubt=None)


# Upgrades


def as_before(lake: Lake) -> None:
    """The table as an earlier version left it."""
    names = [name for name in lake.table.properties if name.startswith(("calving.ledger-snapshot", "calving.ledgers-"))]
    lake.change(RemovePropertiesUpdate(removals=names))


def test_the_first_commit_after_an_upgrade_is_no_rollback(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    lake.commit(0, 100)
    lake.commit(100, 200)
    as_before(lake)
    lake.append(-1)
    lake.commit(200, 300)
    assert lake.ledger.gone == {}
    assert not caplog.text
    assert lake.key.last_commit(lake.table.properties) == line_of(lake.table, "main").head.place  # type: ignore[union-attr]


def test_after_an_upgrade_the_snapshot_log_tells_of_a_rollback(lake: Lake) -> None:
    backfill = lake.append(-1)
    lake.commit(0, 100)
    as_before(lake)
    lake.roll_back(backfill)
    lake.commit(100, 200)
    assert lake.ledger.gone == gone((0, 100))


def test_after_an_upgrade_a_table_whose_commits_have_all_expired_is_as_its_properties_say(lake: Lake) -> None:
    lake.commit(0, 100)
    as_before(lake)
    lake.append(-1)
    lake.expire()
    assert (lake.ledger.source, lake.ledger.gone, lake.ledger.doubt) == ({TP: 100}, {}, None)


# Branches and mutation tables


@pytest.mark.parametrize("version", ["2"], indirect=True)
def test_a_branch_that_is_replaced_is_noticed_and_main_is_not(tmp_path: Path, version: str) -> None:
    catalog = open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)})
    lake = Lake(catalog, version, "audit")
    main = replace(KEY, branch="main")
    lake.commit(0, 100)
    lake.commit(100, 200)
    current = lake.table.metadata.current_snapshot_id
    assert current is not None
    lake.roll_back(current)
    lake.commit(200, 300)
    assert lake.ledger.gone == gone((0, 200))
    assert main.read(line_of(lake.table, "main"), lake.table.properties) == Ledger({})


def test_a_rollback_of_a_mutation_table_is_noticed_and_later_changes_do_not_wait_for_it(
    tmp_path: Path, version: str
) -> None:
    catalog = open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)})
    lake = Lake(catalog, version, "main", in_order=True)
    backfill = lake.append(-1)
    lake.commit(0, 100)
    lake.commit(100, 200)
    lake.roll_back(backfill)
    done = lake.commit(200, 300)
    assert done.admitted.held_back == ()
    assert lake.ledger.gone == gone((0, 200))


def test_what_is_settled_in_the_end_covers_what_was_read(lake: Lake) -> None:
    """The spans of ``publish`` are those of a worker."""
    lake.commit(0, 100)
    assert merged((Span(0, 100),)) == lake.ledger.held(TP)


@pytest.fixture(autouse=True)
def _errors_only(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "calving")
