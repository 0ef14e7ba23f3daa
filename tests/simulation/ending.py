"""How a world ends: nothing goes wrong any more, and then all must be committed, settled, and forgotten if it is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.checks import Violation
from tests.simulation.odds import CALM

if TYPE_CHECKING:
    from tests.simulation.world import World


class Ending:
    def __init__(self, world: World) -> None:
        self._world = world

    def run(self) -> None:
        self._calm()
        self._last_words()

    def _calm(self) -> None:
        world = self._world
        if world.accidents.operator_in is not None:
            world.accidents.recover()
        world.odds = CALM
        world.strangers.answer()
        world.versions.end()
        world.accidents.stalled = set()
        world.veils.clear()
        world.broker.stuck.clear()
        world.broker.late_notice = world.broker.late_arrival = 0.0
        for table in world.tables.values():
            table.broken = False
        if world.odds_of_theme.swaps:
            # Only a new leader looks at a table for which nothing comes: the sink tells what it lacks, and then somebody
            # answers.
            for member in world.members.values():
                member.die()
            world.rounds(40)
        world.answers.end()
        if world.broker.quiet is not None:
            # A restored table for which nothing comes is noticed when the next coordinator starts.
            world.rounds(10)
            for member in world.members.values():
                member.die()
        complete = len(world.completed)
        world.rounds(40)
        if world.stats["entries passed over"] and len(world.completed) == complete:
            # The position was saved behind an entry that nobody had heard: the error names the command.
            world.accidents.recover()
        for _ in range(600):  # what is read again after a loss may be a long way
            if all(world.store.positions.get(tp) == len(t) for tp, t in world.broker.content.items()):
                break
            world.rounds(1)
        self._agree()
        self._one_hangs()
        self._two_cycles()

    def _agree(self) -> None:
        """Operators give all members the same settings, and members forget those that had others."""
        world = self._world
        if not world.odds_of_theme.replacements:
            return
        for _ in range(300):
            if world.versions.is_settled:
                break
            world.rounds(1)
        else:
            raise Violation("S1: nobody notices that members have different settings")
        for _ in range(2):
            self._two_cycles()

    def _one_hangs(self) -> None:
        """As long as one table hangs, the other gets what was written for it."""
        world = self._world
        if not world.odds_of_theme.stalls:
            return
        hung, other = world.names
        world.accidents.stalled = {hung}
        self._more_records()
        for _ in range(2):
            self._two_cycles()
        landed = {path for s in world.tables[other].snapshots for path in s.files}
        if waiting := {path for path, name in world.checks.files_of.items() if name == other} - landed:
            raise Violation(f"C4: {len(waiting)} files of {other} wait, and only {hung} hangs")
        world.accidents.stalled = set()

    def _two_cycles(self) -> None:
        world = self._world
        started = len(world.completed)
        for _ in range(80):
            if len(world.completed) >= started + 2:
                break
            world.rounds(1)
        else:
            raise Violation("I6: two cycles did not complete in time")
        if world.checks.was_partial(world.completed[-1]):
            raise Violation("I6: with every worker alive a cycle still ended partially")

    def _more_records(self) -> None:
        world = self._world
        for tp in sorted(world.broker.content):
            for _ in range(4):
                world.broker.produce(tp, int(world.now))

    def _last_words(self) -> None:
        """The last commit says that everything before it is settled."""
        world = self._world
        ends = {tp: world.broker.end(tp) for tp in world.broker.content}
        for _ in range(2):
            self._more_records()
            self._two_cycles()
        if not world.store.fences_coordinators:
            return  # one that is not fenced may save a position beyond what another has said, and say less itself
        settled = world.checks.settled_to()
        if world.checks.lacks_records() or world.strangers.unread():
            return
        for tp, end in ends.items():
            if settled.get(tp, 0) < end and tp not in world.broker.reused:
                raise Violation(f"C6: {tp} is settled to {settled.get(tp)}, its end was {end} two commits ago")
        self._departures()

    def _departures(self) -> None:
        """Tables drop topics that are gone."""
        world = self._world
        if not world.odds_of_theme.recreations:
            return
        for _ in range(2):
            world.rounds(120)
            self._more_records()
            self._two_cycles()
        there = {world.known_as(tp).whole for tp in world.broker.content}
        for name, table in world.tables.items():
            ledger = world.key(world.store.identity).read(table.state().line, table.properties)
            if left := {tp.whole for tp in ledger.source if tp not in ledger.missing} - there:
                raise Violation(f"C8: the ledger of {name} still speaks of {sorted(map(str, left))}")
