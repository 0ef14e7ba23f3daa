from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

from calving.backend.interface import Backend, SinkIdentity
from calving.model.membership import Claim
from calving.model.offsets import TopicPartition
from calving.services.kafka import KafkaServer
from calving.source.client import client_config
from calving.source.kafka import KafkaGroup, Topics
from calving.testing import BackendContract, Harness
from calving_kafka.backend import KafkaBackend
from calving_kafka.options import KafkaOptions
from tests.conftest import Topic

pytestmark = pytest.mark.services


class KafkaHarness(Harness):
    drops_positions_itself = True

    def __init__(self, broker: KafkaServer, name: str) -> None:
        self._broker = broker
        self._kafka = {"bootstrap.servers": broker.bootstrap_servers}
        self._sink = SinkIdentity(name, f"group-{name}", f"control-{name}", self._kafka)
        Topic(broker.bootstrap_servers, f"source-{name}", 2)
        self.source = [TopicPartition(f"source-{name}", 0), TopicPartition(f"source-{name}", 1)]
        self._members: list[tuple[KafkaGroup, _Held]] = []

    def backend(self) -> Backend:
        return KafkaBackend(self._sink, KafkaOptions())

    def claim(self) -> Claim:
        if not self._members:
            self._join(2)
        group, held = self._members[0]
        group.poll(0.1, held)
        return group.claim()

    def rivals(self) -> Sequence[Claim]:
        """One of a member whose generation has passed, and one of a member that is in the group."""
        stale = self.claim()
        self._join(1)
        for group, held in self._members:
            group.poll(0.1, held)
        return [stale, self._members[1][0].claim()]

    def outsider(self) -> Claim:
        consumer = Consumer(client_config(self._kafka, group_id=self._sink.group))
        try:
            return Claim("", bytes(consumer.consumer_group_metadata()))
        finally:
            consumer.close()

    def positions(self) -> Mapping[TopicPartition, int]:
        consumer = Consumer(client_config(self._kafka, group_id=self._sink.group))
        try:
            found = consumer.committed([KafkaPartition(tp.topic, tp.partition) for tp in self.source], 10)
        finally:
            consumer.close()
        return {TopicPartition(p.topic, p.partition): p.offset for p in found if p.offset >= 0}

    def entries(self) -> Sequence[bytes]:
        """Up to the end of the log: what a transaction wrote counts as read once its end mark is there, which the broker
        appends after the producer has its answer.
        """
        log = KafkaPartition(self._sink.control_topic, 0, 0)
        every = Consumer(client_config(self._kafka, group_id="back-door", isolation_level="read_uncommitted"))
        _, end = every.get_watermark_offsets(log, 20)
        every.close()
        settings = client_config(self._kafka, group_id="back-door", isolation_level="read_committed")
        consumer = Consumer(settings | {"enable.partition.eof": True})
        consumer.assign([log])
        found: list[bytes] = []
        reached = 0
        try:
            while reached < end:
                message = consumer.poll(20)
                assert message is not None, f"the log ends at {end}, and reading it stops at {reached}"
                if (error := message.error()) is None:
                    found.append(message.value() or b"")
                elif error.code() == KafkaError._PARTITION_EOF:
                    reached = message.offset() or 0
        finally:
            consumer.close()
        return found

    def stop(self) -> None:
        self._leave()
        self._broker.kill()

    def start(self) -> None:
        self._broker.start()

    def wipe(self) -> None:
        self._leave()
        admin = AdminClient(client_config(self._kafka))
        admin.delete_topics([self._sink.control_topic])[self._sink.control_topic].result()
        deadline = time.monotonic() + 10
        while self._sink.control_topic in admin.list_topics(timeout=5).topics:
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def close(self) -> None:
        self._leave()

    def _join(self, partitions: int) -> None:
        group = KafkaGroup(self._kafka, self._sink.group, Topics(self._kafka, [self.source[0].topic], None))
        held = _Held()
        self._members.append((group, held))
        deadline = time.monotonic() + 30
        while len(held.found) < partitions:
            assert time.monotonic() < deadline, "the group was not joined"
            for other, its in self._members:
                other.poll(0.1, its)

    def _leave(self) -> None:
        while self._members:
            try:
                self._members.pop()[0].close()
            except KafkaException:
                continue


class _Held:
    def __init__(self) -> None:
        self.found: set[TopicPartition] = set()

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.found |= set(partitions)

    def revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.found -= set(partitions)

    def lost(self, partitions: Collection[TopicPartition]) -> None:
        self.found -= set(partitions)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    found = KafkaServer(tmp_path_factory.mktemp("kafka") / "data", {"log.flush.interval.messages": "1"})
    found.start()
    yield found
    found.stop()


class TestKafka(BackendContract):
    @pytest.fixture
    def harness(self, broker: KafkaServer, unique: str) -> Harness:
        return KafkaHarness(broker, unique)
