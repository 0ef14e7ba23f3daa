"""The protocol under simulated faults: every seed is exactly-once, and every broken rule is noticed."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest

from tests.simulation.mutants import MUTANTS, verdicts
from tests.simulation.world import simulate

SEEDS = int(os.environ.get("CALVING_SEEDS", "400"))
CHUNK = 50


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    log = logging.getLogger("calving")
    before = log.level
    log.setLevel(logging.CRITICAL)
    yield
    log.setLevel(before)


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_every_seed_is_exactly_once(first: int) -> None:
    for seed in range(first, min(first + CHUNK, SEEDS)):
        try:
            simulate(seed)
        except AssertionError as violation:
            pytest.fail(f"seed {seed}: {violation}; repeat with: python -m tests.simulation.run --seed {seed}")


def test_a_seed_gives_the_same_run_twice() -> None:
    assert simulate(7) == simulate(7)


def test_the_faults_of_the_campaign_do_happen() -> None:
    total = sum((simulate(seed) for seed in range(20)), start=type(simulate(0))())
    for kind in ("Crash", "Fenced", "OutcomeUnknown", "Unavailable", "expelled", "partitions added", "expired"):
        assert total[kind] > 0, kind


@pytest.mark.parametrize("rule", MUTANTS)
def test_the_simulation_notices_a_broken_rule(rule: str) -> None:
    found = verdicts(MUTANTS[rule], range(60))
    assert found["survived"] < 60, f"nobody noticed: {rule}"
