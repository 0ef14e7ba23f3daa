"""The protocol under simulated faults: every seed is exactly-once, and every broken rule is noticed."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests.simulation.mutants import MUTANTS, table, verdicts
from tests.simulation.odds import THEMES
from tests.simulation.run import in_theme
from tests.simulation.world import simulate

SEEDS = int(os.environ.get("CALVING_SEEDS", "6"))
"""Of each theme."""
ENOUGH, OF = 2, 80
"""So many seeds must notice a broken rule; looking ends once they have. ``make simulate ARGS=--mutants`` counts all."""
CALLS = ("acknowledge", "attempt", "batch", "bounds", "committed", "follow", "load", "poll", "publish", "read", "start")


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    log = logging.getLogger("calving")
    before = log.level
    log.setLevel(logging.CRITICAL)
    yield
    log.setLevel(before)


@pytest.mark.parametrize("theme", THEMES)
def test_every_seed_is_exactly_once(theme: str) -> None:
    world = in_theme(theme)
    for seed in range(SEEDS):
        try:
            simulate(seed, world)
        except AssertionError as violation:
            command = f"python -m tests.simulation.run --theme '{theme}' --seed {seed}"
            pytest.fail(f"seed {seed}: {violation}; repeat with: {command}")


@pytest.mark.parametrize("seed", [339, 414, 483])
def test_a_topic_that_is_truncated_before_its_first_publication_is_read_once(seed: int) -> None:
    """Which is rare: of 500 seeds these three come to it."""
    simulate(seed, in_theme("truncated"))


@pytest.mark.parametrize("seed", [113, 181, 206])
def test_a_position_that_is_moved_back_after_it_was_moved_forwards_loses_nothing(seed: int) -> None:
    """Of 300 seeds these come to publications that no order fits, or to offsets passed over before."""
    simulate(seed, in_theme("positions moved"))


def test_a_seed_gives_the_same_run_twice() -> None:
    assert simulate(7) == simulate(7)


def test_what_may_happen_does_happen() -> None:
    total = sum((simulate(seed) for seed in range(2 * len(THEMES))), start=Counter[str]())
    rare = [*((seed, "hangs") for seed in range(12)), *((seed, "rolled back anywhere") for seed in range(2))]
    total += sum((simulate(seed, in_theme(theme)) for seed, theme in rare), start=Counter[str]())
    kinds = [
        "Crash",
        "FencedError",
        "OutcomeUnknownError",
        "UnavailableError",
        "expelled",
        "partitions added",
        "expired",
    ]
    kinds += ["store lost", "zombies", "stale loads", "snapshots expired", "topics recreated", "truncated"]
    kinds += ["renamed", "tables recreated", "released", "rolled back", "tables that hung"]
    kinds += ["rolled back to another's", "looks that found something", "commits in doubt"]
    kinds += ["moved forwards", "moved back", "accepted"]
    kinds += ["replaced", "newer form in use", "NewerVersionError", "other settings noticed"]
    kinds += ["open transactions", "entries passed over", "catalogs restored", *(f"hung: {call}" for call in CALLS)]
    assert [kind for kind in kinds if not total[kind]] == []


@pytest.mark.parametrize("rule", MUTANTS)
def test_the_simulation_notices_a_broken_rule(rule: str, record_property: Callable[[str, object], None]) -> None:
    found = verdicts(MUTANTS[rule], OF, ENOUGH)
    record_property("simulation", table([(rule, MUTANTS[rule].theme, found)]))
    assert found.caught >= ENOUGH, f"too few noticed: {rule}"
