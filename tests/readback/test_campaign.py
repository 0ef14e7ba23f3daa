"""Spark rolls tables back under a running sink, a few times: see ``make rollbacks ENGINE=spark``."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaign.rollbacks import VERDICT, stretch
from campaign.run import broker_and_proxy

pytestmark = [pytest.mark.services, pytest.mark.long]


def test_tables_that_spark_rolls_back_under_a_running_sink_hold_what_the_answers_promise(tmp_path: Path) -> None:
    with broker_and_proxy(tmp_path) as (broker, _):
        found = stretch(tmp_path, "redis", broker, 3, 0, 3, engine="spark")
    assert found["rollbacks"] >= 3
    assert {name: found[name] for name in VERDICT} == dict.fromkeys(VERDICT, 0), found
