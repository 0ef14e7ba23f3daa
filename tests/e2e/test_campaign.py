"""The campaign finds what it is there to find: a sink that is wrong in one way makes its verdict red."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from calving.services.kafka import KafkaServer
from campaign.changes import Workload
from campaign.run import BACKENDS, Plan, broker_and_proxy, on_broker
from harness.proxy import Proxy

pytestmark = [pytest.mark.services, pytest.mark.long]

Campaign = Callable[[Plan], dict[str, Any]]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[KafkaServer, Proxy]]:
    """A broker that all campaigns share: no fault harms it."""
    with broker_and_proxy(tmp_path_factory.mktemp("kafka")) as found:
        yield found


@pytest.fixture
def campaign(kept: tuple[KafkaServer, Proxy], tmp_path: Path, unique: str) -> Campaign:
    return lambda plan: on_broker(tmp_path, plan, *kept, unique)


FOUND = {
    "dropped file": {"lost", "invariants", "findings"},
    "doubled file": {"doubled", "findings"},
    "wrong time": {"invariants"},
    "stuck worker": {"stuck"},
    "deaf cursor": {"stuck", "lost"},
    "uncounted records": {"unbalanced"},
}


@pytest.mark.parametrize("sabotage", FOUND)
def test_a_sabotaged_sink_makes_the_verdict_red(campaign: Campaign, sabotage: str) -> None:
    plan = Plan("kafka", tables=2, seconds=6, kinds=(), sabotage=sabotage, settle_seconds=12)
    found = campaign(plan)
    for verdict in FOUND[sabotage]:
        assert found[verdict], found


FOUND_IN_ROWS = {
    "dropped keys": {"doubled"},
    "dropped file": {"lost"},
    "first changes": {"wrong"},
    "forgotten deletes": {"resurrected", "doubled"},
}


@pytest.mark.parametrize("sabotage", FOUND_IN_ROWS)
def test_a_sabotaged_sink_whose_records_change_rows_makes_the_verdict_red(campaign: Campaign, sabotage: str) -> None:
    plan = Plan("kafka", tables=1, workload="cdc", seconds=10, kinds=(), sabotage=sabotage, settle_seconds=12)
    found = campaign(plan)
    assert any(found[verdict] for verdict in FOUND_IN_ROWS[sabotage]), found


@pytest.mark.parametrize("workload", ["upsert", "cdc"])
def test_a_sabotaged_sink_that_ignores_the_order_field_makes_the_verdict_red(
    campaign: Campaign, workload: Workload
) -> None:
    plan = Plan("kafka", 6, workload=workload, seconds=10, kinds=(), sabotage="ignored order", settle_seconds=12)
    assert campaign(plan)["wrong"]


@pytest.mark.parametrize(
    ("sabotage", "workload", "tables", "verdicts"),
    [
        ("forgotten columns", "partial", 1, {"lost", "wrong"}),
        ("ignored truncates", "partial", 3, {"resurrected"}),
        ("endless versions", "history", 2, {"wrong"}),
    ],
)
def test_a_sabotaged_sink_of_partial_updates_truncates_or_versions_makes_the_verdict_red(
    campaign: Campaign, sabotage: str, workload: Workload, tables: int, verdicts: set[str]
) -> None:
    plan = Plan("kafka", tables, workload=workload, seconds=10, kinds=(), sabotage=sabotage, settle_seconds=12)
    found = campaign(plan)
    assert any(found[verdict] for verdict in verdicts) and found["findings"], found


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_store_that_compares_no_positions_makes_the_verdict_red(campaign: Campaign, backend: str) -> None:
    """A worker that sleeps before it publishes repeats what others have published meanwhile: it wakes under load."""
    arms, sabotage = ("publish:pause:3",), "uncompared positions"
    found = campaign(Plan(backend, 1, seconds=16, seed=3, kinds=(), arms=arms, sabotage=sabotage, settle_seconds=8))
    assert found["stuck"], found


def test_a_sink_that_deletes_files_which_others_name_makes_the_verdict_red(campaign: Campaign) -> None:
    sabotage = "unchecked expiry"
    plan = Plan("kafka", 1, seconds=20, kinds=(), sabotage=sabotage, settle_seconds=12, maintained=True)
    assert campaign(plan)["missing"]
