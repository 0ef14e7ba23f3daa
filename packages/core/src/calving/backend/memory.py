"""A backend in the memory of this process, for experiments and as the reference in the simulation.

The backend keeps every rule, but its data is lost when the process ends.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import uuid4

from pydantic import BaseModel, ConfigDict

from calving.backend.entries import BEFORE, check_starts
from calving.backend.interface import Backend, ControlLog, Cursor, Session
from calving.errors import FencedError, ProtocolError
from calving.model.dead_letters import DeadLetter
from calving.model.events import (
    NO_COMMIT,
    NOTHING_ATTACHED,
    Attachment,
    DataComplete,
    DataWritten,
    Envelope,
    Event,
    Publication,
    WorkerEnd,
)
from calving.model.members import Member
from calving.model.offsets import ControlOffsets, Coverage, SourceOffsets, Topic, TopicPartition, furthest, stored_in
from calving.model.sink import Claim, SinkIdentity
from calving.version import __version__


class Entry(NamedTuple):
    """An entry of the log: an event and its headers."""

    event: Event
    spans: Coverage
    parts: int | None
    attached: Attachment
    restarted: frozenset[TopicPartition]
    writer: str | None = None
    end: WorkerEnd | None = None
    paused_ms: int | None = None
    member: Member | None = None
    branch: str | None = None
    ordered: bool = False
    wanted: bool = False
    sender: str = ""


@dataclass
class MemoryStore:
    """The shared state of one sink."""

    partitions: int = 1
    identity: str = "memory"
    fences_coordinators: bool = True
    is_current: Callable[[Claim], bool] = lambda claim: bool(claim.member_id)
    log: list[list[Entry | None]] = field(default_factory=list)
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    topic_ids: dict[TopicPartition, str] = field(default_factory=dict)
    saved: dict[int, int] = field(default_factory=dict)
    dead_letters: tuple[DeadLetter, ...] = ()
    coordinator_epoch: int = 0
    lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self.log = self.log or [[] for _ in range(self.partitions)]

    def publish(self, publication: Publication, member: str) -> None:
        """Append the events of a worker's publication. Its positions are not moved here."""
        parts = sum(isinstance(event, DataWritten) for event in publication.events)
        self.log[self.shard(member)].extend(
            Entry(
                event,
                publication.spans,
                parts if isinstance(event, DataComplete) else None,
                NOTHING_ATTACHED,
                publication.restarted,
                __version__,
                paused_ms=publication.paused_ms,
                member=publication.member,
                branch=publication.branch_of(event),
                ordered=isinstance(event, DataWritten) and event.table.identifier in publication.ordered,
                wanted=publication.wanted,
                sender=member,
            )
            for event in publication.events
        )

    def announce(self, events: Sequence[Event], attached: Attachment) -> None:
        """Append a coordinator's events, always into the same partition."""
        self.log[0].extend(Entry(event, {}, None, attached, frozenset()) for event in events)

    def shard(self, member: str) -> int:
        """The partition of the log for all publications of a member."""
        return sum(member.encode()) % len(self.log)

    def ends(self) -> dict[int, int]:
        return {p: len(entries) for p, entries in enumerate(self.log)}


class MemoryCursor(Cursor):
    def __init__(self, store: MemoryStore, member: str, replay: bool, watch: bool = False) -> None:
        self._store, self._member = store, member
        with store.lock:
            if replay:
                store.coordinator_epoch += 1
            self._epoch = store.coordinator_epoch if replay else None
            self._at = {p: store.saved.get(p, 0) for p in store.ends()} if replay or watch else store.ends()
            self.log = ControlLog(store.identity, dict(self._at), store.ends())
            if watch:
                self._at = {p: max(0, at - BEFORE) for p, at in self._at.items()}

    @property
    def has_ended(self) -> bool:
        return all(self._at.get(p, 0) >= end for p, end in self.log.end.items())

    @property
    def is_current(self) -> bool:
        with self._store.lock:
            return all(self._at.get(p, 0) >= end for p, end in self._store.ends().items())

    def read(self, timeout: float) -> Sequence[Envelope]:
        deadline = time.monotonic() + timeout
        while not (envelopes := self._take()) and time.monotonic() < deadline:
            time.sleep(0.01)
        return envelopes

    def _take(self) -> list[Envelope]:
        envelopes: list[Envelope] = []
        with self._store.lock:
            for p, entries in enumerate(self._store.log):
                start = self._at.get(p, 0)
                if start >= len(entries):
                    continue
                for offset, entry in enumerate(entries[start:], start):
                    if entry is not None:
                        envelopes.append(Envelope(p, offset, *entry))
                self._at[p] = len(entries)
        return envelopes

    def acknowledge(
        self,
        position: ControlOffsets,
        events: Sequence[Event],
        attached: Attachment = NOTHING_ATTACHED,
        departed: Collection[Topic] = (),
    ) -> None:
        store = self._store
        with store.lock:
            self._check()
            store.announce(events, attached)
            store.saved = furthest(store.saved, position)
            for tp in [tp for tp in store.positions if stored_in(tp.topic, store.topic_ids.get(tp, "")) in departed]:
                del store.positions[tp]
                store.topic_ids.pop(tp, None)

    def rewind(self, positions: SourceOffsets) -> None:
        store = self._store
        with store.lock:
            self._check()
            store.identity, store.saved, store.positions = str(uuid4()), store.ends(), dict(positions)
            store.topic_ids.clear()

    def _check(self) -> None:
        if self._epoch is None:
            raise ProtocolError("only a cursor that replays can write")
        if self._store.fences_coordinators and self._epoch != self._store.coordinator_epoch:
            raise FencedError("another coordinator has opened the control log")

    def close(self) -> None:
        pass


class MemorySession(Session):
    def __init__(self, store: MemoryStore, member: str) -> None:
        self._store, self._member, self._identity = store, member, store.identity

    def lead(self, held: Collection[TopicPartition], every: Collection[TopicPartition]) -> bool:
        return bool(every) and min(every) in held

    def committed(self, partitions: Collection[TopicPartition]) -> SourceOffsets:
        with self._store.lock:
            return {tp: self._store.positions[tp] for tp in partitions if tp in self._store.positions}

    def topic_ids(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, str]:
        with self._store.lock:
            return {tp: self._store.topic_ids[tp] for tp in partitions if tp in self._store.topic_ids}

    def publish(self, publication: Publication, claim: Claim) -> None:
        store = self._store
        with store.lock:
            self.check()
            if not store.is_current(claim):
                raise FencedError("publication refused: its claim names no current member of the group")
            check_starts(publication, store.positions)
            store.publish(publication, self._member)
            store.dead_letters += publication.dead_letters
            store.positions.update({tp: advance.end for tp, advance in publication.advances.items()})
            store.topic_ids.update(publication.identities)

    def report_end(self, end: WorkerEnd) -> None:
        with self._store.lock:
            self.check()
            entry = Entry(DataComplete(NO_COMMIT), {}, 0, NOTHING_ATTACHED, frozenset(), end=end)
            self._store.log[self._store.shard(self._member)].append(entry)

    def check(self) -> None:
        """Check that this session may still write.

        :raises FencedError: the store was rewound or emptied since this session began.
        """
        if self._store.identity != self._identity:
            raise FencedError("the control log was recreated after this session began")

    def follow(self, *, replay: bool) -> Cursor:
        return MemoryCursor(self._store, self._member, replay)

    def watch(self) -> Cursor:
        return MemoryCursor(self._store, self._member, replay=False, watch=True)

    def close(self) -> None:
        pass


class MemorySettings(BaseModel):
    model_config = ConfigDict(extra="forbid")


class MemoryBackend(Backend):
    name = "memory"
    settings = MemorySettings
    _stores: dict[str, MemoryStore] = {}

    def __init__(self, sink: SinkIdentity, settings: BaseModel | None = None, store: MemoryStore | None = None) -> None:
        self._store = store or self._stores.setdefault(sink.group, MemoryStore(identity=f"memory:{sink.group}"))

    def provision(self) -> None:
        pass

    def open(self, member_id: str) -> Session:
        return MemorySession(self._store, member_id)
