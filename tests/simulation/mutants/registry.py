"""Broken variants of the product, one rule each. The simulation must catch every one of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from calving.model.events import TableId
from calving.model.marks import TableMark
from calving.model.offsets import ControlOffsets
from calving.protocol.buffer import Buffer
from calving.protocol.coordinator import Coordinator, Intervals
from tests.simulation.checks import Violation
from tests.simulation.world import World, simulate

MUTANTS: dict[str, type[World]] = {}


def mutant(rule: str, theme: str | None = None, seed: int = 0) -> Callable[[type[World]], type[World]]:
    """``theme``: the world in which the rule matters, where most worlds never come to need it. ``seed``: the one to begin
    with, where few notice.
    """

    def register(world: type[World]) -> type[World]:
        world.theme, world.first_seed = theme, seed
        MUTANTS[rule] = world
        return world

    return register


class Verdicts(NamedTuple):
    caught: int
    seeds: int
    """The number of seeds that were run."""
    rules: Counter[str]
    """Which rule was found broken how often."""


def verdicts(world: type[World], seeds: int, enough: int | None = None) -> Verdicts:
    """In how many seeds a broken rule is found; ends as soon as these are ``enough``."""
    rules: Counter[str] = Counter()
    for tried, seed in enumerate(sorted(range(seeds), key=lambda seed: seed != world.first_seed), 1):
        try:
            simulate(seed, world)
        except Violation as violation:
            rules[str(violation).partition(":")[0]] += 1
        except (TypeError, AttributeError, NameError):
            raise  # the mutant itself no longer fits the code, and proves nothing
        except Exception as error:  # a mutant may also break down, which is as good as being caught
            rules[type(error).__name__] += 1
        if rules.total() == enough:
            return Verdicts(rules.total(), tried, rules)
    return Verdicts(rules.total(), seeds, rules)


def table(rows: Iterable[tuple[str, str | None, Verdicts]]) -> str:
    """One line a mutant: how many seeds caught it, and by which rule."""
    lines = [
        f"{rule:84s} {theme or 'all worlds':24s} {found.caught:3d} of {found.seeds:3d}  "
        + ", ".join(f"{name} {count}" for name, count in found.rules.most_common())
        for rule, theme, found in rows
    ]
    return "\n".join(lines)


class Spoilt(Coordinator):
    """A coordinator that is changed once it is made."""

    def __init__(
        self, intervals: Intervals, position: ControlOffsets, now: float, seen: Mapping[TableId, TableMark]
    ) -> None:
        super().__init__(intervals, position, now, seen)
        self.spoil(position)

    def spoil(self, position: ControlOffsets) -> None:
        """Replace a part of it; ``position`` is where the log was opened."""
        raise NotImplementedError


def with_buffer(buffer: type[Buffer]) -> type[Coordinator]:
    class Machine(Spoilt):
        def spoil(self, position: ControlOffsets) -> None:
            self._buffer = buffer(position)

    return Machine
