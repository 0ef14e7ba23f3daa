"""A member of a consumer group that leaves."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaPartition

from calving.model.offsets import TopicPartition
from calving.source import client, kafka
from calving.source.interface import Group, Listener
from calving.source.kafka import Topics
from harness.topic import Topic
from harness.waiting import wait_for

UNANSWERED_SECONDS = 2.0


class Ignoring(Listener):
    def assigned(self, partitions: Collection[TopicPartition]) -> None: ...
    def revoked(self, partitions: Collection[TopicPartition]) -> None: ...
    def lost(self, partitions: Collection[TopicPartition]) -> None: ...


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_who_leaves_gives_all_partitions_back_before_the_client_closes(
    protocol: str, servers: str, topic: Callable[..., Topic], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    class Watched(Consumer):
        def close(self) -> None:
            seen.append("closes")
            super().close()

    def revoked(group: kafka.KafkaGroup, consumer: Consumer, partitions: list[KafkaPartition]) -> None:
        seen.append("revoked")
        answer(group, consumer, partitions)

    answer = kafka.KafkaGroup._on_revoke
    monkeypatch.setattr(client, "Consumer", Watched)
    monkeypatch.setattr(kafka.KafkaGroup, "_on_revoke", revoked)
    t = topic(partitions=4)
    settings = {"bootstrap.servers": servers, "group.protocol": protocol}
    if protocol == "classic":
        settings["heartbeat.interval.ms"] = "200"
    leaving = Topics(settings, [t.name], None).join(t.name)
    wait_for(lambda: _holds(leaving, 4))
    staying = Topics(settings, [t.name], None).join(t.name)
    stop = threading.Event()
    other = threading.Thread(target=_poll, args=(staying, stop))
    other.start()
    try:
        time.sleep(UNANSWERED_SECONDS)  # the broker asks for two partitions, and has no answer yet
    finally:
        leaving.close()
        stop.set()
        other.join()
        staying.close()
    assert seen[: seen.index("closes")] == ["revoked", "revoked"]


def _holds(group: Group, count: int) -> bool:
    group.poll(0.05, Ignoring())
    assert isinstance(group, kafka.KafkaGroup)
    return len(group._held) == count


def _poll(group: Group, stop: threading.Event) -> None:
    while not stop.is_set():
        group.poll(0.05, Ignoring())
