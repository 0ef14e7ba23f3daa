"""A stranger moves positions of the sink's consumer group: a consumer with its group id, or somebody with a tool."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Set
from typing import TYPE_CHECKING

from calving.backend.interface import ControlLog
from calving.backend.memory import MemorySession, MemoryStore
from calving.cli.accept import accept_unread
from calving.model.events import Publication
from calving.model.offsets import (
    Coverage,
    SourceOffsets,
    Span,
    TopicPartition,
    decode_coverage,
    less,
    merged,
    named,
    present,
    without,
)
from calving.protocol.positions import Unread
from calving.protocol.recovery import AWAITED_OFFSETS, resumed
from calving.runtime.log_view import hear
from calving.runtime.positions import unread
from tests.simulation.broker import Record
from tests.simulation.checks import Violation

if TYPE_CHECKING:
    from tests.simulation.world import World


class OpenSession(MemorySession):
    """Of a store that anybody may write to, as Kafka's consumer groups are."""

    def __init__(self, world: World, store: MemoryStore, member: str) -> None:
        super().__init__(store, member)
        self._world = world

    def moved_by_others(self, partitions: Collection[TopicPartition]) -> Collection[TopicPartition]:
        return self._world.strangers.moved & set(partitions)


class Strangers:
    accepted = staticmethod(accept_unread)

    def __init__(self, world: World) -> None:
        self._world = world
        self._are_here = world.odds.moves > 0
        self.moved: set[TopicPartition] = set()
        """Partitions whose position is a stranger's."""
        self._read: dict[TopicPartition, tuple[Span, ...]] = {}
        """The offsets that publications have read, and those without which an operator goes on."""
        self._known: set[TopicPartition] = set()
        """Partitions of which the control log or a table tells something. In others a position is believed, whoever
        stored it.
        """
        self._complete = True
        """Whether the last recovery knew all tables of the sink."""
        self.counted: Counter[TopicPartition] = Counter()
        """What the workers that are gone have counted."""
        self._passed: Counter[TopicPartition] = Counter()
        """What the workers should have counted, at least: one may count what is accepted just then."""

    # What happens

    def move(self) -> None:
        """Forwards or backwards. Who moves a position back has to recover the sink: its tables hold what it reads."""
        world = self._world
        tp = world.rng.choice(sorted(world.broker.content))
        stored, end = world.store.positions.get(tp), world.broker.end(tp)
        if stored is None or tp not in self._known or world.accidents.operator_in is not None:
            return
        to = world.rng.randint(stored, end) if world.chance(0.8) else world.rng.randint(max(0, stored - 20), stored)
        if to == stored:
            return
        world.store.positions[tp] = to
        world.store.topic_ids.pop(tp, None)
        world.log_ids.pop(tp, None)
        self.moved.add(tp)
        if to < stored or world.chance(0.2):
            world.accidents.operator_in = world.rng.randint(0, 60)
        world.stats["moved back" if to < stored else "moved forwards"] += 1

    def accept(self) -> None:
        """As ``calving offsets FILE --accept`` does, while the sink runs."""
        world = self._world
        if not self.unread():
            return
        session = OpenSession(world, world.store, "operator")
        unread = {world.known_as(tp): each for tp, each in self._at_positions(session).items()}
        accepted = self.accepted(session, unread)
        named_so = {tp: accepted.get(world.known_as(tp), ()) for tp in world.broker.content}
        for tp, spans in named_so.items():
            self._read[tp] = merged((*self._read.get(tp, ()), *spans))
        world.checks.forgiven |= self._records(named_so)
        world.stats["accepted"] += bool(accepted)

    def answer(self) -> None:
        """At the end: read again what nobody has read, go on without it, or nobody answers. A mutation table waits for an
        answer.
        """
        world = self._world
        if not self.unread():
            return
        if world.chance(0.3):
            world.accidents.recover()
        elif world.mutation_tables or world.chance(0.5):
            self.accept()

    # What the world tells

    def published(self, publication: Publication) -> Counter[TopicPartition]:
        """The offsets that the publication passes over, by partition."""
        passed: Counter[TopicPartition] = Counter()
        if not self._are_here:  # offsets may start over
            return passed
        for tp, advance in publication.advances.items():
            start, before = advance.start or 0, self._read.get(tp, ())
            if tp in self.moved and tp in self._known:
                passed[tp] = max(0, start - (before[-1].end if before else 0))
            self._read[tp] = merged((*before, Span(start, advance.end)))
        self.moved -= publication.advances.keys()
        self._known |= {named(tp) for tp in publication.spans}
        return passed

    def confirmed(self, passed: Counter[TopicPartition]) -> None:
        """The worker knows that its publication, which passes these offsets over, was accepted."""
        self._passed += passed

    def recovered(self, known: Set[TopicPartition], *, complete: bool) -> None:
        """Positions are the operator's; below them everything has been read. ``known``: the partitions of which a table
        tells. ``complete``: whether the operator knew all tables.
        """
        if not self._are_here:
            return
        self.moved.clear()
        self._known, self._complete = set(known), complete
        rows = set().union(*(table.rows for table in self._world.tables.values()))
        if lost := {r for r in self._records(self.unread()) if not r.is_filtered} - rows:
            raise Violation(f"W7: a recovery does not read again {len(lost)} records, such as {min(lost)}")
        self._read = {tp: (Span(0, at),) for tp, at in self._world.store.positions.items() if at}

    # What must hold

    def unread(self) -> Coverage:
        """The offsets below the stored positions that nobody has read."""
        stored = self._world.store.positions if self._are_here else {}
        found = {tp: without((Span(0, at),), self._read.get(tp, ())) for tp, at in stored.items() if at}
        return {tp: spans for tp, spans in found.items() if spans}

    def check(self) -> None:
        """``calving status`` names exactly what nobody has read, from the move on until somebody answers it."""
        world = self._world
        session = OpenSession(world, world.store, "somebody who looks")
        heard, at_positions = hear(session).unread, self._at_positions(session)
        said = {
            tp: merged((*heard.get(world.known_as(tp), ()), *([at_positions[tp].span] if tp in at_positions else ())))
            for tp in world.broker.content
        }
        if silent := less(self.unread(), said):
            raise Violation(f"W7: nobody has read {silent}, and the status does not say so")
        if wrong := {tp: spans for tp, spans in less(said, self._unsaid()).items() if spans}:
            raise Violation(f"W7: the status calls {wrong} unread")

    def _unsaid(self) -> Coverage:
        """What a status may call unread: a position may have gone back since the sink passed something over."""
        stored = self._world.store.positions
        read = {tp: self._read.get(tp, ()) for tp in self._read.keys() | stored.keys()}
        ends = {tp: max([stored.get(tp, 0), *(s.end for s in spans)]) for tp, spans in read.items()}
        return {tp: without((Span(0, end),), read[tp]) for tp, end in ends.items() if end}

    def _at_positions(self, session: OpenSession) -> dict[TopicPartition, Unread]:
        world = self._world
        stored = session.committed(world.broker.content.keys())
        return unread(session, stored, world.broker.topic_ids(), self.resumed)

    def resumed(self, log: ControlLog) -> SourceOffsets:
        """Where the sink reads on by its tables."""
        world, topic_ids = self._world, self._world.broker.topic_ids()
        awaiting = world.key(log.identity).of_table(AWAITED_OFFSETS)
        return resumed(
            {".".join(name): world.ledger_of(table.state()).present(topic_ids) for name, table in world.tables.items()},
            {
                ".".join(name): present(decode_coverage(table.properties.get(awaiting, "{}")), topic_ids)
                for name, table in world.tables.items()
            },
            world.broker.begins,
            complete=self._complete,
        )

    def audit(self) -> None:
        """At the end: what was passed over was counted, and nothing else. What nobody has answered is lost."""
        if not self._are_here:
            return
        self.check()
        counted = self.counted.copy()
        for member in self._world.members.values():
            counted.update(member.loop.passed_over if member.loop else {})
        if self._passed - counted or (counted - self._passed and not self._world.stats["accepted"]):
            raise Violation(f"W7: {dict(self._passed)} offsets were passed over, and {dict(counted)} were counted")
        self._world.checks.forgiven |= self._records(self.unread())

    def _records(self, offsets: Coverage) -> set[Record]:
        content = self._world.broker.content
        return {record for tp, spans in offsets.items() for span in spans for record in content[tp][slice(*span)]}
