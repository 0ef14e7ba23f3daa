"""What the sink does with a table that was rolled back, until somebody has answered (R6)."""

from __future__ import annotations

from pathlib import Path

import pytest

from calving.errors import UnansweredRollbackError
from calving.iceberg.catalog import open_catalog
from calving.model.tables import OnRollback, RollbackAnswer
from calving.protocol.answers import AsItIs
from tests.iceberg.lake import Lake
from tests.iceberg.test_rollback_answers import answered
from tests.iceberg.test_rollbacks import own


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)}), "2", "main")


def rolled_back(lake: Lake, policy: OnRollback) -> Lake:
    """It has lost the offsets from 100 to 200."""
    lake.commit(0, 100)
    first = lake.head
    lake.commit(100, 200)
    lake.roll_back(first)
    lake.on_rollback = policy
    return lake


def in_doubt(lake: Lake, policy: OnRollback) -> Lake:
    """As before, and nothing is left that would tell."""
    rolled_back(lake, policy)
    lake.append(-1)
    lake.expire()
    lake.drop_history()
    return lake


@pytest.mark.parametrize("policy", ["stop", "stop-on-doubt"])
def test_a_table_that_stops_takes_nothing_until_somebody_answers(lake: Lake, policy: OnRollback) -> None:
    rolled_back(lake, policy)
    before = lake.table.metadata_location
    with pytest.raises(UnansweredRollbackError, match=r"was rolled back.*until then the table takes nothing"):
        lake.commit(200, 300)
    assert lake.table.metadata_location == before
    answered(lake, AsItIs(), RollbackAnswer.FORGET)
    lake.commit(200, 300)
    assert lake.rows == [*own(0, 100), *own(200, 300)]


def test_a_table_that_continues_takes_later_records(lake: Lake) -> None:
    rolled_back(lake, "continue").commit(200, 300)
    assert lake.rows == [*own(0, 100), *own(200, 300)]


@pytest.mark.parametrize("policy", ["continue", "stop"])
def test_doubt_alone_stops_no_table(lake: Lake, policy: OnRollback) -> None:
    in_doubt(lake, policy).commit(200, 300)
    assert lake.rows == [-1, *own(0, 100), *own(200, 300)]


def test_doubt_stops_a_table_whose_owner_wants_that(lake: Lake) -> None:
    in_doubt(lake, "stop-on-doubt")
    with pytest.raises(UnansweredRollbackError, match="may have been rolled back"):
        lake.commit(200, 300)
    answered(lake, AsItIs(), RollbackAnswer.FORGET)
    lake.commit(200, 300)
    assert lake.rows == [-1, *own(0, 100), *own(200, 300)]
