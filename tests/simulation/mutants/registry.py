"""Broken variants of the product, one rule each. The simulation must catch every one of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple
from uuid import UUID

from calving.backend.interface import Cursor, Session
from calving.model.offsets import ControlOffsets, Topic, TopicPartition
from calving.protocol.buffer import Buffer
from calving.protocol.coordinator import Coordinator, Intervals
from calving.protocol.worker import BatchLimits, Worker
from calving.runtime.coordinator import Committer, CoordinatorLoop
from calving.runtime.worker import Clock, Runner, SourcePolicy, WorkerLoop
from calving.source.interface import Group
from tests.simulation.checks import Violation
from tests.simulation.world import World, simulate

MUTANTS: dict[str, type[World]] = {}


def mutant(rule: str, theme: str | None = None) -> Callable[[type[World]], type[World]]:
    """``theme``: the world in which the rule matters, where most worlds never come to need it."""

    def register(world: type[World]) -> type[World]:
        world.theme = theme
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
    for seed in range(seeds):
        try:
            simulate(seed, world)
        except Violation as violation:
            rules[str(violation).partition(":")[0]] += 1
        except (TypeError, AttributeError, NameError):
            raise  # the mutant itself no longer fits the code, and proves nothing
        except Exception as error:  # a mutant may also break down, which is as good as being caught
            rules[type(error).__name__] += 1
        if rules.total() == enough:
            return Verdicts(rules.total(), seed + 1, rules)
    return Verdicts(rules.total(), seeds, rules)


def table(rows: Iterable[tuple[str, str | None, Verdicts]]) -> str:
    """One line a mutant: how many seeds caught it, and by which rule."""
    lines = [
        f"{rule:84s} {theme or 'all worlds':24s} {found.caught:3d} of {found.seeds:3d}  "
        + ", ".join(f"{name} {count}" for name, count in found.rules.most_common())
        for rule, theme, found in rows
    ]
    return "\n".join(lines)


def with_machine(machine: type[Worker]) -> type[WorkerLoop]:
    class Loop(WorkerLoop):
        def __init__(
            self,
            group: Group,
            session: Session,
            cursor: Cursor,
            runner: Runner,
            limits: BatchLimits,
            policy: SourcePolicy,
            clock: Clock,
        ) -> None:
            super().__init__(group, session, cursor, runner, limits, policy, clock)
            self.machine = machine(limits)

    return Loop


def with_coordinator(machine: type[Coordinator]) -> type[CoordinatorLoop]:
    class Loop(CoordinatorLoop):
        def __init__(
            self,
            cursor: Cursor,
            committer: Committer,
            partitions: Callable[[], frozenset[TopicPartition]],
            intervals: Intervals,
            clock: Clock,
            fresh_id: Callable[[], UUID],
            unknown: Callable[[Collection[Topic]], Collection[Topic]],
        ) -> None:
            super().__init__(cursor, committer, partitions, intervals, clock, fresh_id, unknown)
            self.machine = machine(intervals, cursor.log.start, clock())

    return Loop


def with_buffer(buffer: type[Buffer]) -> type[CoordinatorLoop]:
    class Machine(Coordinator):
        def __init__(self, intervals: Intervals, position: ControlOffsets, now: float) -> None:
            super().__init__(intervals, position, now)
            self._buffer = buffer(position)

    return with_coordinator(Machine)
