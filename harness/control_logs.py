"""Control logs of real stores, read and written without the backends, as somebody else would."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

import redis
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from kazoo.client import KazooClient

from calving.source.client import client_config
from calving.testing.odd_entries import OddEntry

_SENDER = b"\xfe"


class ControlLog(Protocol):
    """The log of one sink."""

    def entries(self) -> Sequence[OddEntry]:
        """All entries that readers may see, oldest first."""

    def append(self, entry: OddEntry) -> None:
        """An entry of somebody else."""


class KafkaLog:
    def __init__(self, servers: str, topic: str, partition: int = 0) -> None:
        """``partition``: of the topic, the one that is read."""
        self._kafka, self._topic, self._partition = {"bootstrap.servers": servers}, topic, partition

    def entries(self) -> Sequence[OddEntry]:
        """Up to the end of the log: what a transaction wrote counts as read once its end mark is there, which the broker
        appends after the producer has its answer.
        """
        log = KafkaPartition(self._topic, self._partition, 0)
        every = Consumer(client_config(self._kafka, group_id="back-door", isolation_level="read_uncommitted"))
        _, end = every.get_watermark_offsets(log, 20)
        every.close()
        settings = client_config(self._kafka, group_id="back-door", isolation_level="read_committed")
        consumer = Consumer(settings | {"enable.partition.eof": True})
        consumer.assign([log])
        found: list[OddEntry] = []
        reached = 0
        try:
            while reached < end:
                message = consumer.poll(20)
                assert message is not None, f"the log ends at {end}, and reading it stops at {reached}"
                if (error := message.error()) is None:
                    headers = cast("dict[str, bytes | None]", dict(cast("Any", message.headers() or ())))
                    found.append(
                        OddEntry(message.value() or b"", headers.get("calving-spans"), headers.get("calving-beside"))
                    )
                elif error.code() == KafkaError._PARTITION_EOF:
                    reached = message.offset() or 0
        finally:
            consumer.close()
        return found

    def append(self, entry: OddEntry) -> None:
        headers = {"calving-spans": entry.coverage, "calving-beside": entry.beside}
        self.produce(entry.value, {name: header for name, header in headers.items() if header is not None})

    def produce(self, value: bytes | None, headers: Mapping[str, bytes | None]) -> None:
        producer = Producer(client_config(self._kafka))
        producer.produce(self._topic, value, _SENDER, 0, headers=list(headers.items()))
        assert producer.flush(10) == 0


class RedisLog:
    def __init__(self, client: redis.Redis, keys: str) -> None:
        """``keys`` stands before each key of the sink."""
        self._client, self._keys = client, keys

    def entries(self) -> Sequence[OddEntry]:
        log = cast("list[tuple[bytes, dict[bytes, bytes]]]", self._client.xrange(f"{self._keys}log"))
        return [OddEntry(fields[b"e"], fields.get(b"p"), fields.get(b"b")) for _, fields in log]

    def append(self, entry: OddEntry) -> None:
        fields = {"s": _SENDER, "p": entry.coverage, "b": entry.beside, "e": entry.value}
        state, offset = f"{self._keys}state", 0
        while not offset:
            offset = max(int(cast("bytes", self._client.hget(state, "last") or b"0")) + 1, time.time_ns() // 1000)
            try:
                self.add({name: field for name, field in fields.items() if field is not None}, f"{offset}-0")
            except redis.exceptions.ResponseError:  # the sink has written meanwhile
                offset = 0
        self._client.hset(state, "last", str(offset))

    def add(self, fields: Mapping[str, bytes], number: str = "*") -> None:
        self._client.xadd(f"{self._keys}log", cast("Any", fields), number)


class ZooKeeperLog:
    def __init__(self, hosts: str, path: str) -> None:
        """``path``: the node of the sink."""
        self._hosts, self._path = hosts, path

    def entries(self) -> Sequence[OddEntry]:
        found: list[OddEntry] = []
        with self.client() as client:
            for name in sorted(client.get_children(f"{self._path}/log")):
                raw = client.get(f"{self._path}/log/{name}")[0]
                (size,) = struct.unpack_from(">I", raw)
                header = json.loads(raw[4 : 4 + size])
                body = raw[4 + size :] + b"".join(client.get(f"{self._path}/blobs/{b}")[0] for b in header["blobs"])
                for length in header["sizes"]:
                    found.append(OddEntry(body[:length], header["spans"].encode(), header["beside"].encode()))
                    body = body[length:]
        return found

    def append(self, entry: OddEntry) -> None:
        spans, said = ((text or b"").decode(errors="replace") for text in (entry.coverage, entry.beside))
        sizes = [len(entry.value)]
        header = {"marker": "m", "sender": "x", "spans": spans, "beside": said, "sizes": sizes, "blobs": []}
        offset = self.create(node(header) + entry.value)
        with self.client() as client:
            path = f"{self._path}/state"
            state = json.loads(client.get(path)[0])
            client.set(path, json.dumps({**state, "next": offset + 1}).encode())

    def create(self, content: bytes) -> int:
        """A node with the next number, as a writer of the backend would take it; the state stays as it is."""
        offset = time.time_ns() // 1000
        with self.client() as client:
            client.create(f"{self._path}/log/{offset:019d}", content)
        return offset

    def client(self) -> _Connected:
        return _Connected(self._hosts)


def node(header: object) -> bytes:
    """The beginning of a node of ZooKeeper's log."""
    text = json.dumps(header).encode()
    return struct.pack(">I", len(text)) + text


class _Connected:
    def __init__(self, hosts: str) -> None:
        self._client = KazooClient(hosts)

    def __enter__(self) -> KazooClient:
        self._client.start()
        return self._client

    def __exit__(self, *_: object) -> None:
        self._client.stop()
        self._client.close()
