"""The mark of a table does not go back because somebody has changed its properties by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.table.update import RemovePropertiesUpdate, SetPropertiesUpdate

from calving.iceberg.catalog import open_catalog
from calving.iceberg.lineage import new_snapshot
from calving.iceberg.marks import mark_of
from calving.protocol.ledger_key import LOG_ID
from tests.iceberg.lake import Lake


@pytest.fixture(params=[("1", "main"), ("2", "main"), ("2", "audit")], ids=" ".join)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    version, branch = request.param
    made = Lake(open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)}), version, branch)
    made.commit(0, 100)
    return made


def test_a_table_without_its_properties_is_not_older(lake: Lake) -> None:
    before = mark_of(lake.table, lake.key)
    own = [name for name in lake.table.properties if name.startswith(("calving.", "kafka."))]
    lake.change(RemovePropertiesUpdate(removals=own))
    assert not mark_of(lake.table, lake.key).is_older_than(before)


def test_a_table_with_properties_of_an_earlier_commit_is_not_older(lake: Lake) -> None:
    earlier = dict(lake.table.properties)
    lake.commit(100, 200)
    before = mark_of(lake.table, lake.key)
    lake.change(SetPropertiesUpdate(updates=earlier))
    assert not mark_of(lake.table, lake.key).is_older_than(before)


def test_a_table_that_was_rolled_back_is_not_older(lake: Lake) -> None:
    first = lake.head
    lake.commit(100, 200)
    before = mark_of(lake.table, lake.key)
    lake.roll_back(first)
    lake.expire()
    assert not mark_of(lake.table, lake.key).is_older_than(before)


def test_a_table_whose_last_commit_is_in_neither_snapshots_nor_properties_is_older(lake: Lake) -> None:
    earlier, first = dict(lake.table.properties), lake.head
    lake.commit(100, 200)
    before = mark_of(lake.table, lake.key)
    lake.roll_back(first)
    lake.expire()
    lake.change(SetPropertiesUpdate(updates=earlier))
    assert mark_of(lake.table, lake.key).is_older_than(before)


def test_a_damaged_snapshot_that_was_rolled_back_does_not_keep_the_table_from_being_marked(lake: Lake) -> None:
    first = lake.head
    damaged = {lake.key.offsets: "[]", LOG_ID: lake.key.log_id}
    lake.change(*new_snapshot(lake.table, damaged, lake.key.branch).prepare()[0])
    lake.roll_back(first)
    assert mark_of(lake.table, lake.key).control == {0: 2}
