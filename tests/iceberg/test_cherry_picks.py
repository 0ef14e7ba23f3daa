"""After a rollback another engine takes single commits of the sink back, by cherry-picks, which have no ledger."""

from __future__ import annotations

from pathlib import Path

import pytest

from calving.errors import ConfigError
from calving.iceberg.catalog import open_catalog
from calving.iceberg.picks import mind_picks, unclear
from tests.iceberg.lake import TP, Lake
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
