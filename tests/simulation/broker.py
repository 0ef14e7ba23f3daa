"""A consumer group and its source topic, in memory: rebalances, expulsions, members that notice too late."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection

from calving.model.membership import Claim
from calving.model.offsets import SourceOffsets, TopicPartition
from calving.source.interface import Bounds, Group, Listener


class Broker:
    def __init__(self, rng: random.Random, partitions: int) -> None:
        self.rng = rng
        self.timestamps: dict[TopicPartition, list[int]] = {TopicPartition("s", p): [] for p in range(partitions)}
        self.begins: dict[TopicPartition, int] = dict.fromkeys(self.timestamps, 0)
        self.members: dict[str, frozenset[TopicPartition]] = {}
        self.owners: dict[TopicPartition, str] = {}
        self.late_notice = 0.4
        self.late_arrival = 0.2

    def produce(self, tp: TopicPartition, timestamp: int) -> None:
        self.timestamps[tp].append(timestamp)

    def add_partition(self) -> None:
        tp = TopicPartition("s", len(self.timestamps))
        self.timestamps[tp], self.begins[tp] = [], 0
        if self.members:  # the others keep what they have
            lucky = self.rng.choice(sorted(self.members))
            self.members[lucky] |= {tp}

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
        partitions = sorted(self.timestamps)
        self.members = {m: frozenset(partitions[i :: len(ranked)]) for i, m in enumerate(ranked)}

    def is_current(self, claim: Claim) -> bool:
        return claim.member_id in self.members


class SimGroup(Group):
    def __init__(self, broker: Broker, name: str, on_revoked: Callable[[Collection[TopicPartition]], None]) -> None:
        self._broker, self._name, self._joins = broker, name, 0
        self._on_revoked = on_revoked
        self._held: frozenset[TopicPartition] = frozenset()
        self._join()

    def _join(self) -> None:
        self._joins += 1
        self.member_id = f"{self._name}.{self._joins}"
        self._broker.join(self.member_id)

    def tell(self, listener: Listener) -> None:
        if self._held:
            listener.assigned(self._held)

    def poll(self, timeout: float, listener: Listener) -> None:
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
                broker.owners.pop(tp, None)
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
        return frozenset(self._broker.timestamps)

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        return {}

    def highs(self, partitions: Collection[TopicPartition]) -> SourceOffsets:
        return self.bounds(partitions).ends

    def bounds(self, partitions: Collection[TopicPartition]) -> Bounds:
        broker = self._broker
        return Bounds(
            {tp: broker.begins[tp] for tp in partitions}, {tp: len(broker.timestamps[tp]) for tp in partitions}
        )

    def close(self) -> None:
        self._broker.leave(self.member_id)
