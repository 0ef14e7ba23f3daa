"""The campaign finds what it is there to find: a sink that is wrong in one way makes its verdict red."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaign.changes import Workload
from campaign.run import Plan, campaign

pytestmark = pytest.mark.services

FOUND = {
    "dropped file": {"lost", "invariants"},
    "doubled file": {"doubled"},
    "wrong time": {"invariants"},
    "stuck worker": {"stuck"},
    "deaf cursor": {"stuck", "lost"},
    "uncounted records": {"unbalanced"},
}


@pytest.mark.parametrize("sabotage", FOUND)
def test_a_sabotaged_sink_makes_the_verdict_red(tmp_path: Path, sabotage: str) -> None:
    plan = Plan("kafka", tables=2, seconds=10, kinds=(), sabotage=sabotage, settle_seconds=20)
    found = campaign(tmp_path, plan)
    for verdict in FOUND[sabotage]:
        assert found[verdict], found


FOUND_IN_ROWS = {
    "dropped keys": {"doubled"},
    "dropped file": {"lost"},
    "first changes": {"wrong"},
    "forgotten deletes": {"resurrected", "doubled"},
}


@pytest.mark.parametrize("sabotage", FOUND_IN_ROWS)
def test_a_sabotaged_sink_whose_records_change_rows_makes_the_verdict_red(tmp_path: Path, sabotage: str) -> None:
    plan = Plan("kafka", tables=1, workload="cdc", seconds=15, kinds=(), sabotage=sabotage, settle_seconds=20)
    found = campaign(tmp_path, plan)
    assert any(found[verdict] for verdict in FOUND_IN_ROWS[sabotage]), found


@pytest.mark.parametrize("workload", ["upsert", "cdc"])
def test_a_sabotaged_sink_that_ignores_the_order_field_makes_the_verdict_red(
    tmp_path: Path, workload: Workload
) -> None:
    plan = Plan("kafka", 6, workload=workload, seconds=15, kinds=(), sabotage="ignored order", settle_seconds=20)
    assert campaign(tmp_path, plan)["wrong"]
