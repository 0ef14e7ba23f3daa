"""Other engines roll tables back, compact and expire, and the sink finds out what its tables still hold (R1 to R4)."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table
from pyiceberg.table.update import RemovePropertiesUpdate, RemoveSnapshotRefUpdate, RemoveSnapshotsUpdate

from calving.iceberg.catalog import open_catalog
from calving.iceberg.history import line_of
from calving.iceberg.maintenance import Maintenance
from calving.iceberg.snapshot import SinkSnapshot
from calving.model.offsets import Span, TopicPartition, merged
from calving.protocol.ledger import Ledger
from tests.iceberg.lake import KEY, TP, Lake


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
    assert "`calving rollback FILE --table db.t --as-is --then restore`" in caplog.text
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


def test_a_head_that_moves_forward_over_an_expired_commit_holds_what_that_has_committed(lake: Lake) -> None:
    backfill = lake.append(-1)
    lake.commit(0, 100)
    commit = lake.head
    compacted = lake.compact()
    lake.roll_back(backfill)
    lake.look()
    lake.change(RemoveSnapshotsUpdate(snapshot_ids=[commit]))
    lake.roll_back(compacted)
    assert lake.rows == [-1, *own(0, 100)]
    assert (lake.ledger.source, lake.ledger.gone) == ({TP: 100}, {})


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


# Maintained


class NoRows:
    """A change of no row, as `calving maintain` makes."""

    added: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self._left = 1

    def of(self, table: Table, branch: str) -> NoRows | None:
        self._left -= 1
        return self if self._left >= 0 else None

    def put_into(self, snapshot: SinkSnapshot) -> None:
        pass

    def unused(self, used: object) -> list[str]:
        return []


@pytest.mark.parametrize("own_target", [True, False], ids=["to an own snapshot", "to another's"])
def test_maintenance_of_a_table_that_was_rolled_back_hides_nothing(lake: Lake, own_target: bool) -> None:
    backfill = lake.append(-1)
    lake.commit(0, 100)
    first = lake.head
    lake.commit(100, 200)
    last = lake.head
    lake.roll_back(first if own_target else backfill)
    rows, lost = lake.rows, gone((100, 200) if own_target else (0, 200))
    Maintenance(lake.catalog, ("db", "t"), lake.key, {}).commit(NoRows())
    assert (lake.rows, lake.ledger.gone) == (rows, lost)
    lake.commit(200, 300)
    assert lake.ledger.gone == lost
    lake.roll_back(last)
    assert lake.rows == [-1, *own(0, 200)]
    assert lake.ledger.gone == gone((200, 300))
