"""Stored positions of a group, for those who are not its members."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from calving.backend import TopicPartition
from calving.source.client import TIMEOUT, consumer_client, reaching


class StoredPositions:
    """Asks a broker for a group's positions, and is no member of the group.

    It is a consumer, not an admin client: librdkafka 2.16 crashes the process of an admin client that asks for
    positions while the group's coordinator moves or starts.
    """

    def __init__(self, kafka: Mapping[str, str], group: str, *, stable: bool) -> None:
        """``stable``: the broker delays its answer while a transaction has positions pending. Otherwise it answers with
        the positions before the transaction.

        :raises ConfigError: a property is wrong.
        """
        level = "read_committed" if stable else "read_uncommitted"
        self._group = group
        self._consumer = consumer_client(kafka, group_id=group, enable_auto_commit=False, isolation_level=level)

    def read(self, partitions: Collection[TopicPartition], seconds: float = TIMEOUT) -> list[KafkaPartition]:
        """The positions of those partitions that have one, with their notes.

        :raises ConfigError: settings or privileges are wrong. :raises UnavailableError: try again.
        """
        if not partitions:
            return []
        with reaching(f"stored positions of group '{self._group}'"):
            stored = self._consumer.committed([KafkaPartition(tp.topic, tp.partition) for tp in partitions], seconds)
        for p in stored:
            if p.error is not None:
                with reaching(f"stored position of {p.topic}-{p.partition} in group '{self._group}'"):
                    raise KafkaException(p.error)
        return [p for p in stored if p.offset >= 0]

    def close(self) -> None:
        self._consumer.close()
