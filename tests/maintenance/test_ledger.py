"""The sink's bookkeeping after a compaction: what is replayed adds nothing, and a rollback shows what it took."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from calving.iceberg.catalog import open_catalog
from calving.maintenance.compactor import CompactedGroup, Compactor
from calving.maintenance.expirer import Expirer
from calving.model.events import Envelope
from tests.iceberg.lake import TP, Lake
from tests.maintenance.compacting import EAGER
from tests.maintenance.expiring import NOW


@pytest.fixture(params=["1", "2"], ids=["version 1", "version 2"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return Lake(open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)}), request.param, "main")


def compactor_of(lake: Lake) -> Compactor:
    return Compactor(lake.catalog, ("db", "t"), lake.key, {}, EAGER, sleep=lambda seconds: None)


def compact(lake: Lake) -> list[CompactedGroup]:
    own = compactor_of(lake)
    return [own.compact(group) for group in own.plan(lake.table, 0).groups]


def committed(lake: Lake, count: int = 4) -> list[Envelope]:
    entries = []
    for number in range(count):
        entries.append(lake.publish(10 * number, 10 * number + 10))
        lake.settle(entries[-1])
    return entries


def test_entries_that_are_replayed_after_a_compaction_add_nothing(lake: Lake) -> None:
    entries = committed(lake)
    (done,) = compact(lake)
    assert done.replacement is not None
    lake.settle(*entries)
    assert lake.rows == list(range(40))


def test_nor_once_all_other_snapshots_have_expired(lake: Lake) -> None:
    entries, ledger = committed(lake), lake.ledger
    compact(lake)
    lake.expire()
    lake.drop_history()
    assert lake.ledger == ledger and len(lake.table.metadata.snapshots) == 1
    lake.settle(*entries)
    lake.commit(40, 50)
    assert lake.rows == list(range(50))


def test_the_ledger_alone_tells_where_to_read_on(lake: Lake) -> None:
    """As after the loss of the control log."""
    committed(lake)
    compact(lake)
    lake.expire()
    assert lake.ledger.source == {TP: 40}


def test_a_compaction_is_undone_by_a_rollback_to_the_snapshot_before_it(lake: Lake) -> None:
    entries = committed(lake)
    before = lake.head
    compact(lake)
    lake.roll_back(before)
    assert not lake.ledger.gone and lake.ledger.doubt is None
    lake.settle(*entries)
    lake.commit(40, 50)
    assert lake.rows == list(range(50))


def test_a_rollback_past_a_compaction_shows_what_it_took(lake: Lake) -> None:
    committed(lake, 2)
    before = lake.head
    lake.commit(20, 30)
    compact(lake)
    lake.commit(30, 40)
    lake.roll_back(before)
    assert [(span.start, span.end) for span in lake.ledger.gone[TP]] == [(20, 40)]


def test_a_rollback_that_nobody_has_answered_stops_the_compaction(lake: Lake) -> None:
    committed(lake, 3)
    before = lake.head
    assert compactor_of(lake).refusal(lake.table) is None
    lake.commit(30, 40)
    lake.roll_back(before)
    why = compactor_of(lake).refusal(lake.table)
    assert why is not None and why.startswith("it was rolled back, and nobody has answered: `calving rollback FILE")


def test_a_compaction_of_another_branch_leaves_main_alone(tmp_path: Path) -> None:
    catalog: Catalog = open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)})
    lake = Lake(catalog, "2", "audit")
    entries = committed(lake)
    main = lake.table.metadata.refs["main"].snapshot_id
    assert [done.replacement is not None for done in compact(lake)] == [True]
    assert lake.table.metadata.refs["main"].snapshot_id == main
    lake.settle(*entries)
    assert lake.rows == list(range(40))


def test_after_all_but_one_snapshot_expired_a_replay_and_a_recovery_double_and_lose_nothing(lake: Lake) -> None:
    entries = committed(lake)
    with lake.table.transaction() as change:
        change.set_properties({"calving.expire.max-snapshots": "1"})
    compact(lake)
    expirer = Expirer(lake.catalog, ("db", "t"), lake.key, 0, sleep=lambda seconds: None)
    assert expirer.expire(NOW) is not None and len(lake.table.metadata.snapshots) == 1
    expirer.delete(NOW, lambda metadata: ())
    lake.drop_history()
    lake.settle(*entries)
    assert lake.rows == [*range(40)] and lake.look() is not None
    assert lake.recover().start == 40
