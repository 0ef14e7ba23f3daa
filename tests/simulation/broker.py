"""A source topic and its consumer group, in memory: rebalances, expulsions, members that notice too late, and what may
become of a topic: it loses its beginning or its end, is recreated, or has an end that nobody may read.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from calving.errors import UnavailableError
from calving.model.offsets import SourceOffsets, TopicPartition
from calving.model.sink import Claim
from calving.source.interface import NOTHING, Bounds, Group, Listener
from calving.source.start import EARLIEST, Start


class Record(NamedTuple):
    """One record that was ever produced, whatever else has had its topic's name or its offset at another time."""

    tp: TopicPartition
    offset: int
    topic: int
    """How often the topic had been recreated."""
    serial: int
    timestamp: int
    is_filtered: bool

    @property
    def table(self) -> int:
        return self.offset % 2


class Broker:
    def __init__(self, rng: random.Random, partitions: int, *, knows_ids: bool = True) -> None:
        self.rng, self.knows_ids = rng, knows_ids
        self.content: dict[TopicPartition, list[Record]] = {TopicPartition("s", p): [] for p in range(partitions)}
        self.begins: dict[TopicPartition, int] = dict.fromkeys(self.content, 0)
        self.stuck: dict[TopicPartition, int] = {}
        """Where an open transaction holds the last stable offset."""
        self.reused: set[TopicPartition] = set()
        """Whose offsets have been given to several records under the same identity."""
        self.quiet: int | None = None
        """The table for which no records come."""
        self.incarnation = 0
        self._serial = 0
        self.members: dict[str, frozenset[TopicPartition]] = {}
        self.owners: dict[TopicPartition, str] = {}
        self.late_notice = 0.4
        self.late_arrival = 0.2

    def produce(self, tp: TopicPartition, timestamp: int) -> None:
        self._serial += 1
        entries = self.content[tp]
        record = Record(tp, len(entries), self.incarnation, self._serial, timestamp, len(entries) % 7 == 0)
        entries.append(record._replace(is_filtered=True) if record.table == self.quiet else record)

    def add_partition(self) -> None:
        tp = TopicPartition("s", len(self.content))
        self.content[tp], self.begins[tp] = [], 0
        if self.members:  # the others keep what they have
            lucky = self.rng.choice(sorted(self.members))
            self.members[lucky] |= {tp}

    def end(self, tp: TopicPartition) -> int:
        return len(self.content[tp])

    def truncate(self, tp: TopicPartition, end: int) -> list[Record]:
        """Its last records are lost, as after an unclean election; these."""
        self.reused.add(tp)
        lost = self.content[tp][end:]
        del self.content[tp][end:]
        self.stuck.pop(tp, None)
        self.begins[tp] = min(self.begins[tp], end)
        return lost

    def recreate(self) -> list[Record]:
        """The topic is recreated; what was in it."""
        lost = [record for entries in self.content.values() for record in entries]
        self.incarnation += 1
        self.stuck.clear()
        if not self.knows_ids:
            self.reused |= self.content.keys()
        self.content = {tp: [] for tp in self.content}
        self.begins = dict.fromkeys(self.content, 0)
        return lost

    def topic_ids(self) -> Mapping[str, str]:
        return {"s": f"id{self.incarnation}"} if self.knows_ids else {}

    def is_there(self, record: Record) -> bool:
        entries = self.content[record.tp]
        return record.offset < len(entries) and entries[record.offset].serial == record.serial

    def join(self, member: str) -> None:
        self.members[member] = frozenset()
        self.rebalance()

    def leave(self, member: str) -> None:
        """Gone or expelled: its partitions are free at once, whether it knows or not."""
        if self.members.pop(member, None) is not None:
            self.owners = {tp: owner for tp, owner in self.owners.items() if owner != member}
            self.rebalance()

    def rebalance(self) -> None:
        ranked = sorted(self.members)
        self.rng.shuffle(ranked)
        partitions = sorted(self.content)
        self.members = {m: frozenset(partitions[i :: len(ranked)]) for i, m in enumerate(ranked)}

    def is_current(self, claim: Claim) -> bool:
        return claim.member_id in self.members


class SimGroup(Group):
    def __init__(
        self,
        broker: Broker,
        name: str,
        on_revoked: Callable[[Collection[TopicPartition]], None],
        call: Callable[[str], None],
    ) -> None:
        self._broker, self._name, self._joins = broker, name, 0
        self._on_revoked, self._call = on_revoked, call
        self._held: frozenset[TopicPartition] = frozenset()
        self._closed = False
        self._join()

    def _join(self) -> None:
        self._joins += 1
        self.member_id = f"{self._name}.{self._joins}"
        self._broker.join(self.member_id)

    def set_listener(self, listener: Listener) -> None:
        if self._held:
            listener.assigned(self._held)

    def poll(self, timeout: float, listener: Listener) -> None:
        self._call("poll")
        if self._closed:
            raise UnavailableError("its process has ended")
        broker = self._broker
        if self.member_id not in broker.members:
            if broker.rng.random() < broker.late_notice:
                return
            lost, self._held = self._held, frozenset()
            self._join()
            if lost:
                listener.lost(lost)
            return
        target = broker.members[self.member_id]
        leaving = self._held - target
        if leaving:
            self._on_revoked(leaving)
            listener.revoked(leaving)
            self._on_revoked(())
            self._held -= leaving
            for tp in leaving:
                if broker.owners.get(tp) == self.member_id:
                    del broker.owners[tp]
        if self.member_id not in broker.members:
            return  # expelled while it handed over
        free = sorted(tp for tp in target - self._held if tp not in broker.owners)
        arriving = frozenset(tp for tp in free if broker.rng.random() >= broker.late_arrival)
        if arriving:
            broker.owners.update(dict.fromkeys(arriving, self.member_id))
            self._held |= arriving
            listener.assigned(arriving)

    def mirror(self, positions: SourceOffsets) -> None:
        raise AssertionError("the memory backend needs no mirror")

    def claim(self) -> Claim:
        return Claim(self.member_id, None)

    def partitions(self) -> frozenset[TopicPartition]:
        return frozenset(self._broker.content)

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        self._call("topic ids")
        return self._broker.topic_ids()

    def highs(self, partitions: Collection[TopicPartition]) -> SourceOffsets:
        return self.bounds(partitions).ends

    def bounds(self, partitions: Collection[TopicPartition], read_up_to: SourceOffsets = NOTHING) -> Bounds:
        self._call("bounds")
        broker = self._broker
        ends = {tp: min(broker.end(tp), broker.stuck.get(tp, broker.end(tp))) for tp in partitions}
        return Bounds({tp: broker.begins[tp] for tp in partitions if ends[tp] != read_up_to.get(tp)}, ends)

    def starts(self, partitions: Collection[TopicPartition], start: Start) -> SourceOffsets:
        assert start == EARLIEST
        return self.bounds(partitions).begins

    def close(self) -> None:
        self._closed = True
        self._broker.leave(self.member_id)
