"""A sink's topic, group and backend on a real broker, and what is published and heard there."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Any, TypeVar
from uuid import uuid4

from calving.backend import Cursor, Session, SinkIdentity
from calving.model.events import (
    DataComplete,
    DataWritten,
    Publication,
    TableReference,
)
from calving.model.files import DataFile
from calving.model.offsets import Advance, Span, TopicPartition
from calving.source.kafka import KafkaGroup, Topics
from calving_kafka.backend import KafkaBackend
from calving_kafka.cursor import KafkaCursor
from calving_kafka.options import KafkaOptions
from calving_kafka.session import KafkaSession
from harness.topic import Topic

COMMIT = uuid4()
TABLE = TableReference("c", ("db",), "t")
PROTOCOLS = ["classic", "consumer"]


class Listener:
    def __init__(self) -> None:
        self.held: set[TopicPartition] = set()
        self.lost_ever: set[TopicPartition] = set()
        self.revoked_ever: set[TopicPartition] = set()

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.held |= set(partitions)

    def revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.held -= set(partitions)
        self.revoked_ever |= set(partitions)

    def lost(self, partitions: Collection[TopicPartition]) -> None:
        self.held -= set(partitions)
        self.lost_ever |= set(partitions)


Part = TypeVar("Part", Session, Cursor, KafkaGroup)


class Sink:
    """One sink on the shared broker: its topic, its group, its backend."""

    def __init__(self, servers: str, name: str, topic: Topic, protocol: str = "classic", **options: object) -> None:
        self.kafka = {"bootstrap.servers": servers, "group.protocol": protocol}
        if protocol == "classic":
            self.kafka |= {"session.timeout.ms": "3000", "heartbeat.interval.ms": "500", "max.poll.interval.ms": "4000"}
        else:
            self.kafka |= {"max.poll.interval.ms": "4000"}
        self.topic = topic
        self.identity = SinkIdentity(name, f"connect-{name}", f"control-{name}", {"bootstrap.servers": servers})
        self.backend = KafkaBackend(self.identity, KafkaOptions.model_validate(options))
        self.backend.provision()
        self._open: list[Session | Cursor | KafkaGroup] = []

    def session(self, member: str | None = None) -> KafkaSession:
        session = self._keep(self.backend.open(member or str(uuid4())))
        assert isinstance(session, KafkaSession)
        return session

    def cursor(self, *, replay: bool) -> KafkaCursor:
        cursor = self._keep(self.session().follow(replay=replay))
        assert isinstance(cursor, KafkaCursor)
        return cursor

    def join(self, partitions: int = 1) -> tuple[KafkaGroup, Listener]:
        group = self._keep(KafkaGroup(self.kafka, self.identity.group, Topics(self.kafka, [self.topic.name], None)))
        listener = Listener()
        wait(lambda: len(listener.held) >= partitions, lambda: group.poll(0.1, listener))
        return group, listener

    def join_another(self, first: KafkaGroup, listener: Listener) -> tuple[KafkaGroup, Listener]:
        """A second member, and the partition that it got of the first one's."""
        group, other = (
            self._keep(KafkaGroup(self.kafka, self.identity.group, Topics(self.kafka, [self.topic.name], None))),
            Listener(),
        )

        def both() -> None:
            first.poll(0.05, listener)
            group.poll(0.05, other)

        wait(lambda: bool(other.held), both)
        return group, other

    def _keep(self, part: Part) -> Part:
        self._open.append(part)
        return part

    def close(self) -> None:
        for part in reversed(self._open):
            part.close()

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic.name, 0)


def wait(done: Callable[[], bool], step: Callable[[], object], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, "it did not happen in time"
        step()


def publication(tp: TopicPartition, start: int | None, end: int, *paths: str) -> Publication:
    files = tuple(DataFile(path, "PARQUET", 1, 1) for path in paths)
    events = (DataWritten(COMMIT, TABLE, files), DataComplete(COMMIT))
    return Publication(events, {tp: Advance(start, end)}, {tp: (Span(start or 0, end),)})


def heard(cursor: Cursor, count: int) -> list[Any]:
    found: list[Any] = []
    wait(lambda: len(found) >= count, lambda: found.extend(cursor.read(0.2)))
    return found


def silent(cursor: Cursor, seconds: float = 1.5) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if cursor.read(0.2):
            return False
    return True
