"""After a rollback another engine takes single commits of the sink back, by cherry-picks, which have no ledger."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.table.update import RemoveSnapshotsUpdate

from calving.errors import ConfigError
from calving.iceberg.catalog import open_catalog
from calving.iceberg.picks import mind_picks, unclear
from calving.protocol.answers import AsItIs
from tests.iceberg.lake import TP, Lake
from tests.iceberg.test_rollback_answers import RESTORE, answered, refusal
from tests.iceberg.test_rollbacks import gone, own


@pytest.fixture(params=["1", "2"])
def lake(tmp_path: Path, request: pytest.FixtureRequest) -> Lake:
    """Commits of the offsets from 0, 100, 200 and 300 on; rolled back to the first one."""
    lake = Lake(open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)}), str(request.param), "main")
    for start in range(0, 400, 100):
        lake.commit(start, start + 100)
        lake.snapshots.append(lake.head)
    lake.roll_back(lake.snapshots[0])
    return lake


def test_what_a_cherry_pick_brings_back_is_gone_no_longer(lake: Lake) -> None:
    lake.cherry_pick(lake.snapshots[2])
    assert lake.rows == [*own(0, 100), *own(200, 300)]
    assert lake.ledger.gone == gone((100, 200), (300, 400))
    assert (lake.ledger.source, lake.ledger.missing) == ({TP: 300}, gone((100, 200)))


def test_commits_after_a_cherry_pick_keep_what_it_has_brought_back(lake: Lake) -> None:
    lake.commit(400, 500)
    lake.cherry_pick(lake.snapshots[2])
    lake.cherry_pick(lake.snapshots[1])
    lake.append(-1)
    lake.commit(500, 600)
    lake.expire()
    assert lake.ledger.gone == gone((300, 400))
    assert lake.ledger.missing == gone((300, 400))


def test_a_recovery_reads_nothing_again_that_a_cherry_pick_has_brought_back(lake: Lake) -> None:
    lake.cherry_pick(lake.snapshots[1])
    assert lake.recover().start == 200


def test_a_cherry_pick_that_a_look_has_seen_counts_after_its_source_has_expired(lake: Lake) -> None:
    pick = lake.cherry_pick(lake.snapshots[1])
    lake.append(-1)
    lake.look()
    lake.expire(lake.snapshots[0], pick)
    assert (lake.ledger.source, lake.ledger.gone) == ({TP: 200}, gone((200, 400)))
    assert list(unclear(lake.table, lake.key)) == []


def test_a_rollback_to_a_cherry_pick_keeps_what_it_has_brought_back(lake: Lake) -> None:
    pick = lake.cherry_pick(lake.snapshots[1])
    lake.commit(400, 500)
    lake.roll_back(pick)
    lake.expire(lake.snapshots[0], pick)
    assert (lake.ledger.source, lake.ledger.gone) == ({TP: 200}, gone((200, 500)))


def test_a_rollback_to_before_a_cherry_pick_takes_it_away_again(lake: Lake) -> None:
    lake.cherry_pick(lake.snapshots[1])
    lake.look()
    lake.roll_back(lake.snapshots[0])
    assert (lake.ledger.source, lake.ledger.gone) == ({TP: 100}, gone((100, 400)))


def test_a_cherry_pick_whose_source_expired_before_anybody_looked_is_unclear(lake: Lake) -> None:
    pick = lake.cherry_pick(lake.snapshots[1])
    lake.expire(lake.snapshots[0], pick)
    assert lake.ledger.gone == gone((100, 400))
    assert list(unclear(lake.table, lake.key)) == [(pick, lake.snapshots[1])]
    with pytest.raises(ConfigError, match=f"snapshot {pick} is a cherry-pick of .* which has expired.* roll the table"):
        mind_picks("db.t", lake.table, lake.key)


def test_a_cherry_pick_of_another_writers_snapshot_brings_nothing_back(lake: Lake) -> None:
    head = lake.head
    other = lake.append(-1)
    lake.roll_back(head)
    pick = lake.cherry_pick(other)
    assert (lake.ledger.source, lake.ledger.gone) == ({TP: 100}, gone((100, 400)))
    lake.expire(lake.snapshots[0], pick)
    assert list(unclear(lake.table, lake.key)) == []


def test_a_commit_above_a_cherry_pick_brings_back_its_own_records_alone(lake: Lake) -> None:
    lake.cherry_pick(lake.snapshots[2])
    lake.commit(400, 500)
    above = lake.head
    lake.roll_back(lake.snapshots[0])
    lake.cherry_pick(above)
    assert lake.rows == [*own(0, 100), *own(400, 500)]
    assert lake.ledger.gone == gone((100, 400))


@pytest.mark.parametrize("picked", [1, 2, 3])
def test_what_a_cherry_pick_had_brought_back_is_restored_with_what_came_above_it(lake: Lake, picked: int) -> None:
    lake.cherry_pick(lake.snapshots[picked])
    lake.commit(400, 500)
    lake.roll_back(lake.snapshots[0])
    answered(lake, AsItIs(), RESTORE)
    assert (lake.rows, lake.ledger.gone) == (own(0, 500), {})


def test_nothing_is_restored_of_a_commit_above_a_cherry_pick_whose_source_has_expired(lake: Lake) -> None:
    lake.cherry_pick(lake.snapshots[2])
    lake.commit(400, 500)
    lake.roll_back(lake.snapshots[0])
    lake.change(RemoveSnapshotsUpdate(snapshot_ids=[lake.snapshots[2]]))
    assert "snapshots of this sink have expired" in refusal(lake, AsItIs(), RESTORE)
