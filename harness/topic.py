"""A topic of a real broker, and a producer for it."""

from __future__ import annotations

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from calving.source.client import client_config


class Topic:
    """A topic and a producer for it."""

    def __init__(self, servers: str, name: str, partitions: int = 1, config: dict[str, str] | None = None) -> None:
        self.servers, self.name = servers, name
        self.admin = AdminClient(client_config({"bootstrap.servers": servers}))
        self.admin.create_topics([NewTopic(name, partitions, 1, config=config or {})])[name].result()
        self.producer = Producer(client_config({"bootstrap.servers": servers}, linger_ms=5))

    def send(
        self,
        *values: bytes | None,
        partition: int = 0,
        key: bytes | None = None,
        headers: list[tuple[str, str | bytes | None]] | None = None,
        timestamp: int = 0,
    ) -> None:
        """``timestamp`` 0: the time now."""
        for number, value in enumerate(values, 1):
            self.producer.produce(self.name, value, key, partition, timestamp=timestamp, headers=headers)
            if number % 10_000 == 0:
                self.producer.flush()
        assert self.producer.flush(120) == 0

    def transactional(self, transactional_id: str) -> Producer:
        producer = Producer(client_config({"bootstrap.servers": self.servers}, transactional_id=transactional_id))
        producer.init_transactions(20)
        return producer
