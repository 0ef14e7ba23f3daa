"""Reading a real control topic: where a cursor begins, what it hears and whom it fences."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import NewPartitions

from calving.backend import SinkIdentity
from calving.backend.sessions import read_to_end
from calving.errors import FencedError
from calving.model.events import (
    CommitComplete,
    DataWritten,
    StartCommit,
)
from calving.source.client import client_config
from calving_kafka.backend import KafkaBackend
from calving_kafka.options import KafkaOptions
from tests.kafka.sinks import COMMIT, Sink, heard, publication, silent, wait

pytestmark = pytest.mark.services


def test_the_coordinator_starts_at_the_earliest_entry_without_a_saved_position(sink: Callable[..., Sink]) -> None:
    s = sink()
    group, _ = s.join()
    s.session().publish(publication(s.tp, None, 10, "f"), group.claim())
    assert isinstance(heard(s.cursor(replay=True), 2)[0].event, DataWritten)


def test_the_coordinator_starts_at_the_saved_position(sink: Callable[..., Sink]) -> None:
    s = sink()
    group, _ = s.join()
    s.session().publish(publication(s.tp, None, 10, "f"), group.claim())
    first = s.cursor(replay=True)
    position = {0: heard(first, 2)[-1].offset + 1}
    first.acknowledge(position, [CommitComplete(COMMIT)])
    second = s.cursor(replay=True)
    assert second.log.start == position
    assert isinstance(heard(second, 1)[0].event, CommitComplete)


def test_a_position_that_somebody_else_stored_is_in_no_topic_that_is_known(sink: Callable[..., Sink]) -> None:
    s = sink()
    session = s.session()
    group, _ = s.join()
    other = Consumer(client_config(s.identity.kafka, group_id=s.identity.group))
    session.publish(replace(publication(s.tp, None, 10, "a"), topic_ids={s.tp.topic: "one"}), group.claim())
    assert session.topic_ids([s.tp]) == {s.tp: "one"}
    group.close()
    other.commit(offsets=[KafkaPartition(s.tp.topic, s.tp.partition, 500)], asynchronous=False)
    other.close()
    assert session.committed([s.tp]) == {s.tp: 500}
    assert session.topic_ids([s.tp]) == {}


def test_a_publisher_keeps_to_its_partition_when_the_control_topic_gets_more(sink: Callable[..., Sink]) -> None:
    """Else the parts of a publication could be heard in any order."""
    s = sink()
    group, _ = s.join()
    sessions = [s.session() for _ in range(4)]
    control = s.identity.control_topic
    s.topic.admin.create_partitions([NewPartitions(control, 8)])[control].result()
    time.sleep(1)
    for i, session in enumerate(sessions):
        session.publish(publication(s.tp, i * 10 or None, i * 10 + 10, f"f{i}"), group.claim())
    assert {entry.partition for entry in heard(s.cursor(replay=True), 8)} == {0}


def test_a_new_coordinator_fences_the_old_one(sink: Callable[..., Sink]) -> None:
    s = sink()
    old = s.cursor(replay=True)
    old.acknowledge({}, [StartCommit(COMMIT)])
    new = s.cursor(replay=True)
    with pytest.raises(FencedError):
        old.acknowledge({0: 1}, [CommitComplete(COMMIT)])
    new.acknowledge({}, [StartCommit(COMMIT)])


def test_every_worker_hears_a_start_that_was_published_after_it_opened(sink: Callable[..., Sink]) -> None:
    s = sink()
    cursors = [s.cursor(replay=False) for _ in range(3)]
    s.cursor(replay=True).acknowledge({}, [StartCommit(COMMIT)])
    assert all(heard(cursor, 1)[0].event == StartCommit(COMMIT) for cursor in cursors)


def test_events_of_another_group_on_the_same_topic_are_not_heard(sink: Callable[..., Sink], servers: str) -> None:
    s = sink()
    stranger = SinkIdentity("other", "connect-other", s.identity.control_topic, s.identity.kafka)
    cursor = s.cursor(replay=False)
    theirs = KafkaBackend(stranger, KafkaOptions()).open("x").follow(replay=True)
    theirs.acknowledge({}, [StartCommit(COMMIT)])
    theirs.close()
    assert silent(cursor)


def test_records_that_cannot_be_decoded_are_skipped_counted_and_logged_once_per_sender(
    sink: Callable[..., Sink], caplog: pytest.LogCaptureFixture
) -> None:
    s = sink()
    cursor = s.cursor(replay=False)
    for _ in range(3):
        s.topic.producer.produce(s.identity.control_topic, b"garbage", key=b"vandal")
    s.topic.producer.flush()
    s.cursor(replay=True).acknowledge({}, [StartCommit(COMMIT)])
    assert heard(cursor, 1)[0].event == StartCommit(COMMIT)
    assert (cursor.entries.undecodable, cursor.undecodable) == ({"vandal": 3}, 3)
    assert sum("vandal" in record.getMessage() for record in caplog.records) == 1


def test_a_long_list_of_files_is_divided_and_arrives_whole(sink: Callable[..., Sink]) -> None:
    s = sink(**{"iceberg.control.max-message-bytes": 50_000})
    cursor, session = s.cursor(replay=False), s.session()
    group, _ = s.join()
    paths = [f"file-{i:05d}" for i in range(1000)]
    session.publish(publication(s.tp, None, 10, *paths), group.claim())
    found: list[str] = []
    wait(
        lambda: len(found) >= 1000,
        lambda: found.extend(
            f.file_path for e in cursor.read(0.2) if isinstance(e.event, DataWritten) for f in e.event.data_files
        ),
    )
    assert found == paths


def test_one_who_watches_a_quiet_log_does_not_wait_for_its_end_as_long_as_a_fetch(sink: Callable[..., Sink]) -> None:
    """A broker answers a fetch of a client after 500 ms, unless there is more."""
    s = sink()

    def taken() -> float:
        with closing(s.session().watch()) as cursor:
            start = time.monotonic()
            assert list(read_to_end(cursor)) == []
            return time.monotonic() - start

    assert min(taken() for _ in range(5)) < 0.35
