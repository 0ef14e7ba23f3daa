"""The campaign finds what it is there to find, also where the tables are in S3."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaign.run import Plan, campaign
from tests.e2e.test_campaign import FOUND

pytestmark = pytest.mark.services


@pytest.mark.parametrize("sabotage", ["dropped file", "doubled file"])
def test_a_sabotaged_sink_with_tables_in_s3_makes_the_verdict_red(tmp_path: Path, sabotage: str) -> None:
    plan = Plan("redis", tables=2, warehouse="s3", seconds=10, kinds=(), sabotage=sabotage, settle_seconds=20)
    found = campaign(tmp_path, plan)
    for verdict in FOUND[sabotage]:
        assert found[verdict], found
