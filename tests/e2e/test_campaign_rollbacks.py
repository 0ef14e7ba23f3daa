"""The campaign of rollbacks finds what it is there to find."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaign.rollbacks import VERDICT, stretch
from campaign.run import broker_and_proxy

pytestmark = [pytest.mark.services, pytest.mark.long]


def test_a_sink_that_does_not_notice_rollbacks_makes_the_verdict_red(tmp_path: Path) -> None:
    with broker_and_proxy(tmp_path) as (broker, _):
        found = stretch(tmp_path, "redis", broker, 1, 0, 6, "unnoticed rollbacks", patience=20)
    assert any(found[verdict] for verdict in ("lost", "resurrected", "wrong", "unanswered", "stuck")), found


def test_tables_that_are_replaced_under_a_running_sink_hold_what_the_answers_promise(tmp_path: Path) -> None:
    with broker_and_proxy(tmp_path) as (broker, _):
        found = stretch(tmp_path, "redis", broker, 5, 0, 3, engine="replacement")
    assert found["rollbacks"] >= 3
    assert {name: found[name] for name in VERDICT} == dict.fromkeys(VERDICT, 0), found
