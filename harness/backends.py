"""Backends on real stores, as their contract asks for them."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import cast

import redis
from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient
from pydantic import SecretStr

from calving.backend import Backend, SinkIdentity
from calving.model.offsets import TopicPartition
from calving.model.sink import Claim
from calving.services.kafka import KafkaServer
from calving.services.stores import RedisServer, ZooKeeperServer
from calving.source.client import client_config
from calving.source.kafka import KafkaGroup, Topics
from calving.testing import Harness, member_claim
from calving.testing.odd_entries import OddEntry
from calving_kafka.backend import KafkaBackend
from calving_kafka.options import KafkaOptions
from calving_redis.backend import RedisBackend
from calving_redis.options import RedisOptions
from calving_zookeeper.backend import ZooKeeperBackend
from calving_zookeeper.options import ZooKeeperOptions
from harness.control_logs import ControlLog, KafkaLog, RedisLog, ZooKeeperLog, node
from harness.topic import Topic
from harness.waiting import wait_for

_KEYS = "calving:{control:group}:"
"""Before each key in Redis."""


class _StoreHarness(Harness):
    log: ControlLog
    secret: SecretStr | None = None

    def sign(self, secret: str) -> None:
        self.secret = SecretStr(secret)

    def append(self, value: bytes, coverage: bytes | None, beside: bytes | None) -> None:
        self.log.append(OddEntry(value, coverage, beside))

    def repeat(self) -> None:
        for entry in self.log.entries():
            self.log.append(entry)


class KafkaHarness(_StoreHarness):
    log: KafkaLog
    drops_positions_itself = True

    def __init__(self, broker: KafkaServer, name: str) -> None:
        self._broker = broker
        self._kafka = {"bootstrap.servers": broker.bootstrap_servers}
        self._sink = SinkIdentity(name, f"group-{name}", f"control-{name}", self._kafka)
        self.log = KafkaLog(broker.bootstrap_servers, self._sink.control_topic)
        Topic(broker.bootstrap_servers, f"source-{name}", 2)
        self.source = [TopicPartition(f"source-{name}", 0), TopicPartition(f"source-{name}", 1)]
        self._members: list[tuple[KafkaGroup, _Held]] = []

    def backend(self) -> Backend:
        return KafkaBackend(self._sink, KafkaOptions(secret=self.secret))

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
        return [entry.value for entry in self.log.entries()]

    def append_odd(self) -> None:
        self.log.produce(None, {})
        self.log.produce(b"zz", {"calving-spans": None, "calving-beside": None})

    def stop(self) -> None:
        """Kill the broker once it has written the end marks of all transactions.

        Kafka 4.3.1 can lose end marks of transactions whose end it has acknowledged. It does if its only broker is killed
        before it has written the marks, and starts again before its session has ended. The controller then fences the
        broker, the partitions have no leader, and the transaction coordinator takes them for deleted.
        """
        self._leave()
        wait_for(lambda: self._end("read_committed") == self._end("read_uncommitted"), 120, 0.02)
        self._broker.kill()

    def _end(self, level: str) -> int:
        """The end of the control log: before open transactions, or after them."""
        consumer = Consumer(client_config(self._kafka, group_id="back-door", isolation_level=level))
        try:
            return int(consumer.get_watermark_offsets(KafkaPartition(self._sink.control_topic, 0), 20)[1])
        finally:
            consumer.close()

    def start(self) -> None:
        self._broker.start()

    def wipe(self) -> None:
        self._leave()
        admin = AdminClient(client_config(self._kafka))
        admin.delete_topics([self._sink.control_topic])[self._sink.control_topic].result()
        wait_for(lambda: self._sink.control_topic not in admin.list_topics(timeout=5).topics, 120, 0.1)

    def close(self) -> None:
        self._leave()

    def _join(self, partitions: int) -> None:
        group = KafkaGroup(self._kafka, self._sink.group, Topics(self._kafka, [self.source[0].topic], None))
        held = _Held()
        self._members.append((group, held))
        deadline = time.monotonic() + 120
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


class RedisHarness(_StoreHarness):
    log: RedisLog

    def __init__(self, folder: Path, settings: Mapping[str, str], **options: object) -> None:
        self._server = RedisServer(folder, settings)
        self.syncs_every_second = settings["appendfsync"] == "everysec"
        self._options = options
        self.start()

    def backend(self) -> Backend:
        settings = RedisOptions(
            url=self._server.url, timeout_ms=3000, lease_ms=1500, secret=self.secret, **self._options
        )
        return RedisBackend(SinkIdentity("sink", "group", "control"), settings)

    def claim(self) -> Claim:
        return member_claim("group")

    def outsider(self) -> Claim:
        return member_claim("group", "", -1)

    def positions(self) -> Mapping[TopicPartition, int]:
        found = cast("dict[bytes, bytes]", self._client.hgetall(f"{_KEYS}positions"))
        return {
            TopicPartition(field.decode().rsplit(":", 1)[0], int(field.decode().rsplit(":", 1)[1])): int(offset)
            for field, offset in found.items()
        }

    def entries(self) -> Sequence[bytes]:
        return [entry.value for entry in self.log.entries()]

    def append_odd(self) -> None:
        fields: list[dict[str, bytes]] = [{"hello": b"world"}, {"s": b"x"}, {"e": b"zz", "p": b"{"}, {"": b"\xff"}]
        for each in fields:
            self.log.add(each)

    def stop(self) -> None:
        self._server.kill()

    def start(self) -> None:
        self._server.start()
        self._client = redis.Redis(port=self._server.port, protocol=2)
        self.log = RedisLog(self._client, _KEYS)
        while True:
            try:
                self._client.ping()
            except redis.exceptions.BusyLoadingError:
                continue
            break

    def wipe(self) -> None:
        self._client.flushall()

    def close(self) -> None:
        self._client.close()
        self._server.stop()


class ZooKeeperHarness(_StoreHarness):
    log: ZooKeeperLog

    def __init__(self, server: ZooKeeperServer, name: str) -> None:
        self._server, self._root = server, f"/{name}"
        self._hosts, self.log = server.hosts, ZooKeeperLog(server.hosts, f"{self._root}/control/group")

    def backend(self) -> Backend:
        where = {"hosts": self._hosts, "root": self._root}
        options = ZooKeeperOptions(**where, session_ms=2000, timeout_ms=3000, secret=self.secret)
        return ZooKeeperBackend(SinkIdentity("sink", "group", "control"), options)

    def claim(self) -> Claim:
        return member_claim("group")

    def outsider(self) -> Claim:
        return member_claim("group", "", -1)

    def positions(self) -> Mapping[TopicPartition, int]:
        with self.log.client() as client:
            state = json.loads(client.get(f"{self._root}/control/group/state")[0])
        found = {tuple(field.rsplit(":", 1)): offset for field, offset in state["positions"].items()}
        return {TopicPartition(topic, int(partition)): offset for (topic, partition), offset in found.items()}

    def entries(self) -> Sequence[bytes]:
        return [entry.value for entry in self.log.entries()]

    def append_odd(self) -> None:
        whole = {"sender": "x", "spans": "", "beside": "", "sizes": [2], "blobs": []}
        contents = [
            b"",
            b"hello",
            b"\xff" * 100,
            struct.pack(">I", 2**32 - 1) + b"{}",
            struct.pack(">I", 100_000) + b"[" * 100_000,
            *(node(odd) for odd in (5, {}, {**whole, "sizes": "2"}, {**whole, "sizes": [-1]})),
            *(node({**whole, "blobs": odd}) + b"zz" for odd in (5, ["../state"], ["x"])),
        ]
        for content in contents:
            self.log.create(content)
        with self.log.client() as client:
            log = f"{self._root}/control/group/log"
            client.create(f"{log}/hello", b"world")
            client.create(f"{log}/{'9' * 19}", b"world")

    def stop(self) -> None:
        self._server.kill()

    def start(self) -> None:
        self._server.start()

    def wipe(self) -> None:
        with self.log.client() as client:
            client.delete(self._root, recursive=True)

    def close(self) -> None:
        pass
