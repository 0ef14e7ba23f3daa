"""The protocol under simulated faults: every seed is exactly-once, and every broken rule is noticed."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from calving.model.events import Envelope
from calving.model.offsets import ControlOffsets
from calving.protocol.ledger import Ledger, SourceProgress
from calving.protocol.ledger_key import source_entries
from calving.protocol.next_ledger import next_ledger
from calving.protocol.order import Ordered, ordered
from tests.simulation.mutants import MUTANTS, table, verdicts
from tests.simulation.odds import THEMES, TURNS
from tests.simulation.run import in_theme
from tests.simulation.world import simulate

SEEDS = int(os.environ.get("CALVING_SEEDS", "4"))
"""Of each theme."""
ENOUGH, OF = 1, 80
"""So many seeds must notice a broken rule; looking ends once one has. ``make simulate ARGS=--mutants`` counts all."""
ENOUGH_OF = {"several versions": int(os.environ.get("CALVING_ENOUGH", ENOUGH))}
"""The same for the rules of a theme; ``make versions`` takes 5 seeds for each."""
_HANG = [f"hung: {call}" for call in ("batch", "bounds", "committed", "poll", "publish", "read", "start")]
_ERRORS = ["Crash", "FencedError", "OutcomeUnknownError", "UnavailableError"]
HAPPENS = {
    "zombies": (*_ERRORS, "expelled", "zombies", "store lost", *_HANG, "hung: follow", "hung: load"),
    "hangs": (*_HANG, "hung: acknowledge"),
    "crowd": ("Crash", "FencedError", "UnavailableError", "partitions added"),
    "retention": ("expired",),
    "replica": ("stale loads",),
    "expiry": ("snapshots expired",),
    "topic recreated": ("topics recreated",),
    "truncated": ("truncated",),
    "renamed": ("renamed",),
    "table recreated": ("tables recreated", "released"),
    "table hangs": ("tables that hung",),
    "rolled back": (
        "rolled back",
        "looks that found something",
        "rolled back and forgotten",
        "stopped by a rollback",
        "maintained",
    ),
    "rolled back anywhere": ("rolled back to another's", "looks that found something", "commits in doubt"),
    "renamed and rolled back": ("renamed", "rolled back", "rolled back and forgotten"),
    "compacted": ("compacted", "compacted, and changed since", "compactions dropped"),
    "replaced by others": (
        "replaced by others",
        "commits discarded",
        "replacements noted",
        "rollbacks restored in part",
    ),
    "positions moved": ("moved forwards", "moved back", "accepted"),
    "several versions": (
        "replaced",
        "newer form in use",
        "other settings noticed",
        "files for another branch",
    ),
    TURNS: ("replaced", "other settings noticed", "other settings refused", "held back"),
    "open transactions": ("open transactions",),
    "entries passed over": ("entries passed over",),
    "catalog restored": ("catalogs restored",),
}
"""What the first four seeds of a theme, and any more, come to: a theme without it would prove nothing."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    log = logging.getLogger("calving")
    before = log.level
    log.setLevel(logging.CRITICAL)
    yield
    log.setLevel(before)


@pytest.mark.parametrize("theme", THEMES)
def test_every_seed_is_exactly_once_and_has_what_its_theme_is_about(theme: str) -> None:
    world, total = in_theme(theme), Counter[str]()
    for seed in range(SEEDS):
        try:
            total += simulate(seed, world)
        except AssertionError as violation:
            command = f"python -m tests.simulation.run --theme '{theme}' --seed {seed}"
            pytest.fail(f"seed {seed}: {violation}; repeat with: {command}")
    expected = HAPPENS.get(theme, ()) if SEEDS >= 4 else ()
    assert [kind for kind in expected if not total[kind]] == []


def test_each_theme_with_something_to_happen_exists() -> None:
    assert set(HAPPENS) <= set(THEMES)


@pytest.mark.parametrize("seed", [12, 15, 16])
def test_an_attempt_to_commit_that_hangs_loses_nothing(seed: int) -> None:
    """One of seven seeds has one."""
    assert simulate(seed, in_theme("hangs"))["hung: attempt"]


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


def _anew(ledger: Ledger) -> Ledger:
    """The same ledger, of objects of its own."""
    source, settled, missing = dict(ledger.source), dict(ledger.settled), dict(ledger.missing)
    return replace(ledger, source=source, settled=settled, missing=missing)


def _progress_anew(progress: SourceProgress) -> SourceProgress:
    return replace(progress, covered=dict(progress.covered), settled=dict(progress.settled))


@pytest.mark.parametrize("theme", ["zombies", "rolled back", "topic recreated"])
def test_a_ledger_that_tables_share_is_what_each_would_compute_alone(
    theme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[int, object] = {}
    shared = 0

    def compared(ledger: Ledger, read: ControlOffsets, progress: SourceProgress, *given: Any) -> Ledger:
        nonlocal shared
        passed, admitted, left_out = given[0], [*given[1]], given[2]
        found = next_ledger(ledger, read, progress, passed, admitted, left_out)
        shared += id(found.source) in seen
        seen[id(found.source)] = found.source
        alone = next_ledger(_anew(ledger), read, _progress_anew(progress), passed, admitted, left_out)
        assert (found, source_entries(found)) == (alone, source_entries(alone))
        return found

    monkeypatch.setattr("calving.protocol.commit.next_ledger", compared)
    for seed in range(SEEDS):
        simulate(seed, in_theme(theme))
    assert shared


@pytest.mark.parametrize("theme", ["zombies", "rolled back", "positions moved"])
def test_an_order_that_tables_share_is_what_each_would_find_alone(theme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 0

    def compared(
        entries: Iterable[Envelope], control: ControlOffsets, progress: SourceProgress, ledger: Ledger
    ) -> Ordered:
        nonlocal count
        given = [*entries]
        found = ordered(given, control, progress, ledger)
        own = [replace(entry, spans=dict(entry.spans)) for entry in given]
        assert found == ordered(own, control, _progress_anew(progress), _anew(ledger))
        count += len(given) > 1
        return found

    monkeypatch.setattr("calving.protocol.commit.ordered", compared)
    for seed in range(SEEDS):
        simulate(seed, in_theme(theme))
    assert count


@pytest.mark.parametrize("rule", MUTANTS)
def test_the_simulation_notices_a_broken_rule(rule: str, record_property: Callable[[str, object], None]) -> None:
    theme = MUTANTS[rule].theme
    enough = ENOUGH_OF.get(theme or "", ENOUGH)
    found = verdicts(MUTANTS[rule], OF, enough)
    record_property("simulation", table([(rule, theme, found)]))
    assert found.caught >= enough, f"too few noticed: {rule}"
