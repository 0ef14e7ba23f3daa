"""The consumer group member of a worker. Its librdkafka consumer is paused, and only keeps the membership."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from confluent_kafka import (
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    TopicCollection,
    Uuid,
)
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

from calving.errors import ConfigError
from calving.model.offsets import SourceOffsets, Topic, TopicPartition
from calving.model.sink import WORKER, Claim
from calving.source.client import TIMEOUT, admin_client, consumer_client, patiently, reaching
from calving.source.group import failure, remedy, subscription
from calving.source.interface import NOTHING, Bounds, Group, Listener, NotedOffsets, Source
from calving.source.kafka_times import first_times
from calving.source.lookups import bounds_of, offsets_of, starts_of
from calving.source.members import members
from calving.source.notes import note, noted
from calving.source.start import Start, outside

if TYPE_CHECKING:
    from calving.records.regex import Regex

log = logging.getLogger(__name__)

_METADATA_SECONDS = 5.0
_GIVING_BACK_SECONDS = 5.0
_NO_IDENTITY = str(Uuid(0, 0))


class Topics(Source):
    """The topics of one Kafka cluster."""

    def __init__(self, kafka: Mapping[str, str], topics: Sequence[str], regex: str | None) -> None:
        self._kafka, self.names, self.regex = kafka, topics, regex
        self._known: frozenset[TopicPartition] = frozenset()
        self._asked = float("-inf")
        self._making = threading.Lock()
        self._made_admin: AdminClient | None = None
        self._made_consumers: dict[str, Consumer] = {}
        self.has_joined = False
        """Whether a member of this process has ever got an assignment."""

    def partitions(self) -> frozenset[TopicPartition]:
        if time.monotonic() - self._asked > _METADATA_SECONDS:
            self._known = self._ask()
            self._asked = time.monotonic()
        return self._known

    def bounds(self, partitions: Collection[TopicPartition], read_up_to: SourceOffsets = NOTHING) -> Bounds:
        return bounds_of(self._consumer("read_committed"), partitions, read_up_to)

    def highs(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return offsets_of(self._consumer("read_uncommitted"), partitions, OFFSET_END)

    def first_at(self, partitions: Collection[TopicPartition], at_ms: int) -> dict[TopicPartition, int]:
        return {tp: at for tp, at in offsets_of(self._consumer("read_committed"), partitions, at_ms).items() if at >= 0}

    def first_times(self, positions: SourceOffsets) -> dict[TopicPartition, int]:
        return first_times(self._kafka, positions)

    def starts(self, partitions: Collection[TopicPartition], start: Start) -> SourceOffsets:
        return starts_of(self._consumer("read_committed"), self.bounds(partitions), start)

    def noted(self, group: str) -> NotedOffsets:
        return noted(self._kafka, group, self.partitions())

    def note(self, group: str, offsets: NotedOffsets) -> None:
        note(self._kafka, group, offsets)

    def join(self, group: str) -> Group:
        return KafkaGroup(self._kafka, group, self)

    def members(self, group: str) -> dict[str, str]:
        return members(self._kafka, group)

    # Each client has its own threads, which cost CPU even when idle. So a client is made at its first use. The worker's
    # thread and the coordinator's may use it first at the same time.

    @property
    def _admin(self) -> AdminClient:
        with self._making:
            if self._made_admin is None:
                self._made_admin = admin_client(self._kafka)
            return self._made_admin

    def _consumer(self, isolation: str) -> Consumer:
        with self._making:
            if isolation not in self._made_consumers:
                # The client requires a group, but never joins it.
                made = consumer_client(self._kafka, group_id="calving-bounds", isolation_level=isolation)
                self._made_consumers[isolation] = made
            return self._made_consumers[isolation]

    @patiently
    def identities(self, topics: Collection[str]) -> dict[str, str]:
        ids = {}
        with reaching("asking for the topics' identities"):
            asked = self._admin.describe_topics(TopicCollection(list(topics)), request_timeout=TIMEOUT)
            for name, future in asked.items():
                try:
                    ids[name] = str(future.result().topic_id)
                except KafkaException as error:
                    if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                        raise
        return {name: identity for name, identity in ids.items() if identity != _NO_IDENTITY}

    def unknown(self, topics: Collection[Topic]) -> frozenset[Topic]:
        named: dict[str, set[Topic]] = {}
        for topic in topics:
            named.setdefault(topic.name, set()).add(topic)
        lost: set[Topic] = set()
        with reaching("asking for topics that may be gone"):
            asked = self._admin.describe_topics(TopicCollection(sorted(named)), request_timeout=TIMEOUT)
            for name, future in asked.items():
                try:
                    now = str(future.result().topic_id)
                except KafkaException as error:
                    if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                        lost |= named[name]
                    continue  # any other error, such as a missing privilege, does not show that the topic is gone
                lost |= {topic for topic in named[name] if topic.id not in ("", now) and now != _NO_IDENTITY}
        return frozenset(lost)

    def cluster(self) -> str:
        try:
            described = self._admin.describe_cluster(request_timeout=TIMEOUT).result()
        except KafkaException:  # it is only shown
            return ""
        return described.cluster_id or ""

    @cached_property
    def _pattern(self) -> Regex | None:
        from calving.records.regex import Regex  # it imports Arrow, which would delay a start

        return Regex(self.regex) if self.regex else None

    def _ask(self) -> frozenset[TopicPartition]:
        with reaching("asking for the topics' partitions"):
            if self._pattern is not None:
                metadata = self._admin.list_topics(timeout=TIMEOUT).topics
                topics = {name: list(metadata[name].partitions) for name in self._pattern.matching(metadata)}
            else:
                topics = dict(self._described())
        return frozenset(TopicPartition(name, p) for name, numbers in topics.items() for p in numbers)

    def _described(self) -> Iterator[tuple[str, list[int]]]:
        # `list_topics` with a topic's name creates the topic if the broker creates topics automatically.
        asked = self._admin.describe_topics(TopicCollection(list(self.names)), request_timeout=TIMEOUT)
        for name, future in asked.items():
            try:
                yield name, [p.id for p in future.result().partitions]
            except KafkaException as error:
                if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise ConfigError(
                        f"topic '{name}' does not exist: create it, or correct the key 'topics'"
                    ) from error
                raise


class KafkaGroup(Group):
    """Membership by ``subscribe``: the cooperative classic protocol, or ``group.protocol=consumer``."""

    def __init__(self, kafka: Mapping[str, str], group: str, topics: Topics) -> None:
        # librdkafka's default of 45 s delays the move of a dead member's partitions; brokers allow 6 s by default.
        session = kafka.get("session.timeout.ms", "6000")
        classic = {
            "partition_assignment_strategy": "cooperative-sticky",
            "session_timeout_ms": session,
            # Members also learn of a rebalance from their heartbeats.
            "heartbeat_interval_ms": kafka.get("heartbeat.interval.ms", str(min(1000, int(session) // 3))),
        }
        self._is_classic = kafka.get("group.protocol") != "consumer"
        strategy = classic if self._is_classic else {}
        refresh = kafka.get("topic.metadata.refresh.interval.ms", "5000")
        self._listener: Listener | None = None
        self._name, self._told = group, ""
        with reaching("joining the consumer group"):
            self._consumer = consumer_client(
                kafka,
                group_id=group,
                # A Java sink's file may give its own client id, by which its tasks are known.
                client_id="-".join([WORKER, *filter(None, [kafka.get("client.id")])]),
                enable_auto_commit=False,
                isolation_level="read_committed",
                topic_metadata_refresh_interval_ms=refresh,
                **strategy,
            )
            self._consumer.subscribe(
                [subscription(topics.regex)] if topics.regex else list(topics.names),
                on_assign=self._on_assign,
                on_revoke=self._on_revoke,
                on_lost=self._on_lost,
            )
        self._topics = topics
        self._closed = False
        self._held: set[TopicPartition] = set()
        self.broken = False

    def set_listener(self, listener: Listener) -> None:
        if self._held:
            listener.assigned(frozenset(self._held))

    def poll(self, timeout: float, listener: Listener) -> None:
        self._listener = listener
        try:
            message = self._consumer.poll(timeout)
        except KafkaException as error:
            self.broken = True
            raise failure(error.args[0], self._name, has_joined=self._topics.has_joined) from error
        finally:
            self._listener = None
        if message is not None and (fault := message.error()) is not None:
            self._check_fault(fault)

    def _check_fault(self, fault: KafkaError) -> None:
        self.broken |= fault.fatal()
        if fault.fatal() or remedy(fault) is not None:
            raise failure(fault, self._name, has_joined=self._topics.has_joined)
        if fault.str() != self._told:
            self._told = fault.str()
            log.warning("group '%s': %s", self._name, fault.str())

    def claim(self) -> Claim:
        token = bytes(self._consumer.consumer_group_metadata())
        return Claim(self._consumer.memberid() or "", token)

    def mirror(self, positions: SourceOffsets) -> None:
        positions_to_commit = [KafkaPartition(tp.topic, tp.partition, offset) for tp, offset in positions.items()]
        with contextlib.suppress(KafkaException):
            self._consumer.commit(offsets=positions_to_commit, asynchronous=True)

    def partitions(self) -> frozenset[TopicPartition]:
        return self._topics.partitions()

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        return self._topics.identities(topics)

    def bounds(self, partitions: Collection[TopicPartition], read_up_to: SourceOffsets = NOTHING) -> Bounds:
        return bounds_of(self._consumer, partitions, read_up_to)

    def starts(self, partitions: Collection[TopicPartition], start: Start) -> SourceOffsets:
        bounds = self.bounds(partitions)
        if (why := outside(start, bounds.begins, bounds.ends)) is not None:
            raise ConfigError(f"iceberg.source.start: {why}; correct it, and start the sink again")
        return starts_of(self._consumer, bounds, start)

    def highs(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return self._topics.highs(partitions)

    def close(self) -> None:
        """Leave the group without handing over the partitions: a clean stop publishes before it closes."""
        if not self._closed:
            self._closed = True
            self._give_back()
            self._consumer.close()

    def _give_back(self) -> None:
        """Give all partitions back, and leave the group, before the client closes.

        This works around librdkafka 2.16. ``close`` during an unanswered revocation revokes a second time, may drop the
        answer to that, and waits for it for ever, with Python's lock. ``close`` after the answer, but before the
        fetchers have stopped, skips the LeaveGroup, so the partitions wait for the end of the session. A client that
        has left has no member id.
        """
        with contextlib.suppress(KafkaException):
            self._consumer.unsubscribe()
            end = time.monotonic() + _GIVING_BACK_SECONDS
            self._consumer.poll(0)  # an assignment may have come that nobody has seen yet
            while (self._held or self._is_member()) and time.monotonic() < end:
                self._consumer.poll(0.01)

    def _is_member(self) -> bool:
        """Never with ``group.protocol=consumer``, whose clients keep their ids."""
        return self._is_classic and bool(self._consumer.memberid())

    def _on_assign(self, consumer: Consumer, partitions: list[KafkaPartition]) -> None:
        # Any explicit offset is good enough: the partitions are paused at once, and this consumer never fetches from
        # them.
        positions = [KafkaPartition(p.topic, p.partition, 0) for p in partitions]
        consumer.incremental_assign(positions)
        consumer.pause(positions)
        self.joined = self._topics.has_joined = True
        self._told = ""
        self._held |= set(_ours(partitions))
        if self._listener is not None and partitions:
            self._listener.assigned(_ours(partitions))

    def _on_revoke(self, consumer: Consumer, partitions: list[KafkaPartition]) -> None:
        try:
            if self._listener is not None:
                self._listener.revoked(_ours(partitions))
        finally:
            self._let_go(consumer, partitions)

    def _on_lost(self, consumer: Consumer, partitions: list[KafkaPartition]) -> None:
        try:
            if self._listener is not None:
                self._listener.lost(_ours(partitions))
        finally:
            self._let_go(consumer, partitions)

    def _let_go(self, consumer: Consumer, partitions: list[KafkaPartition]) -> None:
        # The listener may have failed. The membership stays, and a later listener is told its assignment then.
        consumer.incremental_unassign(partitions)
        self._held -= set(_ours(partitions))


def _ours(partitions: Sequence[KafkaPartition]) -> list[TopicPartition]:
    return [TopicPartition(p.topic, p.partition) for p in partitions]
