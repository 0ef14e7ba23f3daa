"""The control topic on a real broker: how it is made and trimmed, and what it may lose."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import ConfigResource, NewPartitions, ResourceType
from tenacity import stop_after_delay

from calving.backend import SinkIdentity
from calving.backend.interface import find
from calving.errors import ConfigError, DataLossError, UnavailableError
from calving.model.events import (
    Attachment,
    CommitComplete,
    Parked,
    StartCommit,
)
from calving.model.offsets import Span
from calving.source.client import admin_client
from calving_kafka.backend import KafkaBackend
from calving_kafka.options import KafkaOptions
from calving_kafka.trimming import Trimming
from harness.topic import Topic
from tests.kafka.sinks import COMMIT, Sink, heard, publication, wait

pytestmark = pytest.mark.services


def test_a_saved_position_that_was_truncated_away_is_an_error(sink: Callable[..., Sink]) -> None:
    s = sink()
    cursor = s.cursor(replay=True)
    cursor.acknowledge({0: 0}, [StartCommit(COMMIT)])
    for _ in range(3):
        cursor.acknowledge({}, [StartCommit(COMMIT)])
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": s.identity.kafka["bootstrap.servers"]})
    for future in admin.delete_records([KafkaPartition(s.identity.control_topic, 0, 4)]).values():
        future.result()
    with pytest.raises(DataLossError, match="saved position 0"):
        s.cursor(replay=True)
    lenient = KafkaBackend(s.identity, KafkaOptions.model_validate({"iceberg.control.on-truncation": "continue"}))
    going_on = lenient.open("x").follow(replay=True)
    assert going_on.log.start == {0: 4}
    going_on.close()


def test_a_control_topic_that_is_deleted_under_a_running_sink_stops_it_after_some_tries(
    sink: Callable[..., Sink], monkeypatch: pytest.MonkeyPatch
) -> None:
    s = sink()
    running, looking = (KafkaBackend(s.identity, KafkaOptions()) for _ in range(2))
    running.provision()
    running.open("x").close()
    s.topic.admin.delete_topics([s.identity.control_topic])[s.identity.control_topic].result()
    monkeypatch.setattr(KafkaBackend._control_topic.retry, "stop", stop_after_delay(1))
    for _ in range(2):
        with pytest.raises(UnavailableError, match="Unknown topic"):
            running.open("x")
    with pytest.raises(DataLossError, match=r"was deleted while the sink ran: .*run `calving recover FILE`"):
        running.open("x")
    for _ in range(4):  # a command has not seen the topic before: it may not be there yet
        with pytest.raises(UnavailableError, match="Unknown topic"):
            looking.open("x")


def delete_below(s: Sink, offset: int) -> None:
    for future in s.topic.admin.delete_records([KafkaPartition(s.identity.control_topic, 0, offset)]).values():
        future.result()


def test_a_control_topic_that_lost_only_what_was_committed_is_no_error(sink: Callable[..., Sink]) -> None:
    """As after a long pause of a sink that had committed everything, where the topic's retention is finite."""
    s = sink()
    group, _ = s.join()
    s.session().publish(publication(s.tp, None, 10, "f"), group.claim())
    first = s.cursor(replay=True)
    first.acknowledge({0: heard(first, 2)[-1].offset + 1}, [CommitComplete(COMMIT)])
    end = s.cursor(replay=False).log.end[0]
    delete_below(s, end)
    assert s.cursor(replay=True).log.start == {0: end}


def test_a_control_topic_that_lost_a_publication_behind_the_last_commit_is_an_error(sink: Callable[..., Sink]) -> None:
    s = sink()
    group, _ = s.join()
    first = s.cursor(replay=True)
    first.acknowledge({0: 0}, [CommitComplete(COMMIT)])
    s.session().publish(publication(s.tp, None, 10, "f"), group.claim())
    delete_below(s, s.cursor(replay=False).log.end[0])
    with pytest.raises(DataLossError, match="saved position 0"):
        s.cursor(replay=True)


def test_a_control_topic_that_lost_what_names_the_parked_commits_is_an_error(sink: Callable[..., Sink]) -> None:
    """Nothing is behind the last commit, but a table that failed does not have all that came before it."""
    s = sink()
    first = s.cursor(replay=True)
    parked = Attachment(parked={("db", "t"): Parked("file:///parked", 3, {s.tp: (Span(0, 10),)})})
    first.acknowledge({0: 0}, [CommitComplete(COMMIT)], parked)
    delete_below(s, s.cursor(replay=False).log.end[0])
    with pytest.raises(DataLossError, match="saved position 0"):
        s.cursor(replay=True)


def test_the_control_topic_is_created_to_keep_everything(sink: Callable[..., Sink]) -> None:
    s = sink()
    resource = ConfigResource(ResourceType.TOPIC, s.identity.control_topic)
    found = s.topic.admin.describe_configs([resource])[resource].result()
    assert found["retention.ms"].value == "-1"


def test_a_control_topic_that_forgets_is_named_with_the_command_that_helps(
    topic: Callable[..., Topic], caplog: pytest.LogCaptureFixture
) -> None:
    forgetting = topic(config={"retention.ms": "60000"})
    identity = SinkIdentity("x", "connect-x", forgetting.name, {"bootstrap.servers": forgetting.servers})
    KafkaBackend(identity, KafkaOptions()).provision()
    assert f"--entity-name {forgetting.name} --add-config retention.ms=-1" in caplog.text


def test_a_control_topic_is_trimmed_below_what_all_its_sinks_have_saved(
    sink: Callable[..., Sink], caplog: pytest.LogCaptureFixture
) -> None:
    s = sink()
    stranger = SinkIdentity("other", f"{s.identity.group}-b", s.identity.control_topic, s.identity.kafka)
    ours, theirs = s.cursor(replay=True), KafkaBackend(stranger, KafkaOptions()).open("x").follow(replay=True)
    trimming = Trimming(s.identity, 1)
    ours.acknowledge({0: 8}, [CommitComplete(COMMIT) for _ in range(8)])
    trimming.trim([0], ours.entries.others)
    assert s.cursor(replay=False).log.end and first_offset(s) == 0, "the other one has read nothing"
    theirs.acknowledge({0: 5}, [])
    trimming.trim([0], {stranger.group})
    assert first_offset(s) == 4
    trimming.trim([0], {"it's a group"})
    theirs.acknowledge({0: 8}, [])
    trimming.trim([0], {"it's a group"})
    assert first_offset(s) == 4
    (told,) = [r.getMessage() for r in caplog.records if "is not trimmed" in r.getMessage()]
    assert """--group 'it'"'"'s a group-coord' --topic""" in told
    theirs.close()


def test_a_backfill_whose_position_kafka_has_forgotten_does_not_stop_the_trimming(sink: Callable[..., Sink]) -> None:
    s = sink()
    filled = SinkIdentity("x", f"{s.identity.group}.backfill.x", s.identity.control_topic, s.identity.kafka)
    ours, theirs = s.cursor(replay=True), KafkaBackend(filled, KafkaOptions()).open("x").follow(replay=True)
    trimming = Trimming(s.identity, 1)
    ours.acknowledge({0: 8}, [CommitComplete(COMMIT) for _ in range(8)])
    theirs.acknowledge({0: 5}, [])
    theirs.close()
    trimming.trim([0], {filled.group})
    assert first_offset(s) == 4
    admin, group = admin_client(s.identity.kafka), f"{filled.group}-coord"
    admin.delete_consumer_groups([group])[group].result()
    trimming.trim([0], {filled.group})
    assert first_offset(s) == 7


def first_offset(s: Sink) -> int:
    low: int = s.cursor(replay=False)._consumer.get_watermark_offsets(KafkaPartition(s.identity.control_topic, 0), 10)[
        0
    ]
    return low


def test_a_recreated_control_topic_has_another_identity(sink: Callable[..., Sink]) -> None:
    s = sink()
    before = s.cursor(replay=False).log.identity
    s.topic.admin.delete_topics([s.identity.control_topic])[s.identity.control_topic].result()
    wait(lambda: s.identity.control_topic not in s.topic.admin.list_topics().topics, lambda: time.sleep(0.1))
    s.backend.provision()
    assert s.cursor(replay=False).log.identity != before


def test_partitions_added_to_the_control_topic_are_read(
    sink: Callable[..., Sink], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("calving_kafka.cursor._PARTITIONS_SECONDS", 0.5)
    s = sink()
    cursor = s.cursor(replay=True)
    s.topic.admin.create_partitions([NewPartitions(s.identity.control_topic, 4)])[s.identity.control_topic].result()
    time.sleep(1)
    group, listener = s.join()
    for start in (None, *range(1, 12)):
        group.poll(0, listener)
        s.session().publish(publication(s.tp, start, (start or 0) + 1, f"f{start}"), group.claim())
    entries = heard(cursor, 24)
    assert len({e.partition for e in entries}) > 1


def test_a_compacted_control_topic_is_refused(sink: Callable[..., Sink], topic: Callable[..., Topic]) -> None:
    compacted = topic(config={"cleanup.policy": "compact"})
    identity = SinkIdentity("x", "connect-x", compacted.name, {"bootstrap.servers": compacted.servers})
    with pytest.raises(ConfigError, match="compacted"):
        KafkaBackend(identity, KafkaOptions()).provision()


def test_the_backend_is_found_through_its_entry_point() -> None:
    assert find("kafka") is KafkaBackend


def test_a_cursor_is_current_only_without_entries_that_an_open_transaction_hides(sink: Callable[..., Sink]) -> None:
    s = sink()
    control = s.identity.control_topic
    s.topic.admin.create_partitions([NewPartitions(control, 2)])[control].result()
    cursor = s.cursor(replay=True)
    wait(lambda: cursor.is_current, lambda: cursor.read(0.1))
    other = Producer({**s.identity.kafka, "transactional.id": f"{control}-open"})
    other.init_transactions(10)
    other.begin_transaction()
    for _ in range(2):  # as a publication has at least two offsets
        other.produce(control, b"of nobody", partition=1)
    assert other.flush(10) == 0
    wait(lambda: not cursor.is_current, lambda: cursor.read(0.1))
    other.abort_transaction(10)
    wait(lambda: cursor.is_current, lambda: cursor.read(0.1))
