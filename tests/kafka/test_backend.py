"""The Kafka backend against a real broker: every way in which a publication must be refused, and what survives."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Any, TypeVar
from uuid import uuid4

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import ConfigResource, NewPartitions, ResourceType

from calving.backend import Cursor, Session, SinkIdentity
from calving.backend.registry import find
from calving.errors import CalvingError, ConfigError, DataLossError, FencedError
from calving.model.events import (
    Attachment,
    CommitComplete,
    DataComplete,
    DataWritten,
    Parked,
    Publication,
    StartCommit,
    TableReference,
)
from calving.model.files import DataFile
from calving.model.membership import Claim
from calving.model.offsets import Advance, Span, TopicPartition
from calving.source.client import client_config
from calving.source.kafka import KafkaGroup, Topics
from calving.source.members import members
from calving_kafka.backend import KafkaBackend
from calving_kafka.cursor import KafkaCursor
from calving_kafka.options import KafkaOptions
from calving_kafka.session import KafkaSession
from calving_kafka.trimming import Trimming
from harness.topic import Topic

pytestmark = pytest.mark.services

COMMIT = uuid4()
TABLE = TableReference("c", ("db",), "t")
PROTOCOLS = ["classic", "consumer"]
_STOPS = 20


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


@pytest.fixture
def sink(servers: str, unique: str, topic: Callable[..., Topic]) -> Iterator[Callable[..., Sink]]:
    made: list[Sink] = []

    def make(protocol: str = "classic", partitions: int = 1, **options: object) -> Sink:
        made.append(Sink(servers, f"{unique}-{len(made)}", topic(partitions), protocol, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def wait(done: Callable[[], bool], step: Callable[[], object], seconds: float = 30) -> None:
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


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_events_and_positions_become_visible_together(sink: Callable[..., Sink], protocol: str) -> None:
    s = sink(protocol)
    cursor, session = s.cursor(replay=False), s.session()
    group, _ = s.join()
    session.publish(publication(s.tp, None, 10, "f"), group.claim())
    written, complete = heard(cursor, 2)
    assert written.event.data_files[0].file_path == "f"
    assert written.spans == {s.tp: (Span(0, 10),)}
    assert isinstance(complete.event, DataComplete)
    assert session.committed([s.tp]) == {s.tp: 10}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_that_closes_has_left_the_group(sink: Callable[..., Sink], protocol: str) -> None:
    """Its partitions would wait for the end of its session. It is tried often: librdkafka's threads race."""
    s = sink(protocol, 4)
    for _ in range(_STOPS):
        group, _ = s.join(4)
        group.close()
        assert members(s.kafka, s.identity.group) == {}


def test_a_claim_without_a_member_is_refused_and_nothing_is_written(sink: Callable[..., Sink]) -> None:
    s = sink()
    cursor, session = s.cursor(replay=False), s.session()
    outsider = KafkaGroup(s.kafka, s.identity.group, Topics(s.kafka, [s.topic.name], None))
    try:
        claim = outsider.claim()  # has not joined: generation -1, no member
        assert claim.member_id == ""
        with pytest.raises(FencedError):
            session.publish(publication(s.tp, None, 10, "f"), claim)
    finally:
        outsider.close()
    with pytest.raises(FencedError):
        session.publish(publication(s.tp, None, 10, "f"), Claim("someone", None))
    assert session.committed([s.tp]) == {}
    assert silent(cursor)


@pytest.mark.parametrize("start", [None, 5, 11])
def test_a_publication_that_does_not_start_at_the_stored_position_is_refused(
    sink: Callable[..., Sink], start: int | None
) -> None:
    s = sink()
    cursor, session = s.cursor(replay=False), s.session()
    group, _ = s.join()
    session.publish(publication(s.tp, None, 10, "f"), group.claim())
    heard(cursor, 2)
    with pytest.raises(FencedError):
        session.publish(publication(s.tp, start, 20, "g"), group.claim())
    assert session.committed([s.tp]) == {s.tp: 10}
    assert silent(cursor)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_that_was_silent_past_the_poll_interval_is_refused(sink: Callable[..., Sink], protocol: str) -> None:
    s = sink(protocol)
    session = s.session()
    group, _ = s.join()
    claim = group.claim()
    time.sleep(6 if protocol == "classic" else 14)  # past max.poll.interval.ms librdkafka leaves, the latter later
    with pytest.raises(FencedError):
        session.publish(publication(s.tp, None, 10, "zombie"), claim)
    assert session.committed([s.tp]) == {}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_partition_that_was_lost_and_came_back_is_not_published_twice(
    sink: Callable[..., Sink], protocol: str
) -> None:
    s = sink(protocol)
    cursor = s.cursor(replay=False)
    first, listener = s.join()
    time.sleep(6)
    second, _ = s.join()
    s.session().publish(publication(s.tp, None, 10, "second"), second.claim())
    second.close()
    wait(lambda: s.tp in listener.lost_ever | listener.revoked_ever, lambda: first.poll(0.1, listener))
    wait(lambda: s.tp in listener.held, lambda: first.poll(0.1, listener))
    with pytest.raises(FencedError):
        s.session().publish(publication(s.tp, None, 10, "first"), first.claim())
    assert [e.event.data_files[0].file_path for e in heard(cursor, 2) if isinstance(e.event, DataWritten)] == ["second"]
    assert silent(cursor)


_ZOMBIE = """
import sys
from calving.backend import SinkIdentity
from calving.errors import CalvingError
from calving.source.kafka import KafkaGroup, Topics
from calving_kafka.backend import KafkaBackend
from calving_kafka.cursor import KafkaCursor
from calving_kafka.options import KafkaOptions
from calving_kafka.session import KafkaSession
from calving_kafka.trimming import Trimming
from tests.kafka.test_backend import Listener, publication, TopicPartition
servers, name, topic, protocol = sys.argv[1:]
kafka = {"bootstrap.servers": servers, "group.protocol": protocol, "max.poll.interval.ms": "6000"}
if protocol == "classic":
    kafka |= {"session.timeout.ms": "3000", "heartbeat.interval.ms": "500"}
identity = SinkIdentity(name, f"connect-{name}", f"control-{name}", {"bootstrap.servers": servers})
session = KafkaBackend(identity, KafkaOptions()).open("zombie")
group, listener = KafkaGroup(kafka, identity.group, Topics(kafka, [topic], None)), Listener()
while not listener.held:
    group.poll(0.1, listener)
claim = group.claim()
print("joined", flush=True)
sys.stdin.readline()
try:
    session.publish(publication(TopicPartition(topic, 0), None, 10, "zombie"), claim)
    print("published", flush=True)
except CalvingError as error:
    print(type(error).__name__, flush=True)
"""


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_process_that_was_stopped_past_its_session_is_refused(
    sink: Callable[..., Sink], servers: str, protocol: str
) -> None:
    s = sink(protocol)
    cursor = s.cursor(replay=False)
    zombie = subprocess.Popen(
        [sys.executable, "-c", _ZOMBIE, servers, s.identity.name, s.topic.name, protocol],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert zombie.stdout is not None and zombie.stdin is not None
        assert zombie.stdout.readline() == "joined\n"
        os.kill(zombie.pid, signal.SIGSTOP)
        time.sleep(4 if protocol == "classic" else 8)
        os.kill(zombie.pid, signal.SIGCONT)
        zombie.stdin.write("\n")
        zombie.stdin.flush()
        assert zombie.stdout.readline() == "FencedError\n"
    finally:
        zombie.kill()
        zombie.wait()
    assert s.session().committed([s.tp]) == {}
    assert silent(cursor)


def test_what_a_publisher_left_open_when_it_died_holds_up_nobody_who_takes_its_partition(
    sink: Callable[..., Sink],
) -> None:
    """Its positions and all later events are hidden until the transaction ends, which the broker sees to much later."""
    s = sink()
    first, _ = s.join()
    dead = s.session()
    dead.publish(publication(s.tp, None, 10, "f"), first.claim())
    assert dead._transactions is not None
    producer = dead._transactions._producer
    producer.begin_transaction()
    producer.produce(s.identity.control_topic, b"never heard", key=b"dead")
    producer.send_offsets_to_transaction(
        [KafkaPartition(s.tp.topic, s.tp.partition, 20)], first._consumer.consumer_group_metadata(), 10
    )
    first.close()
    second, _ = s.join()
    heir, began = s.session(), time.monotonic()
    cursor = heir.follow(replay=False)
    heir.take_over([s.tp])
    assert heir.committed([s.tp]) == {s.tp: 10}
    heir.publish(publication(s.tp, 10, 20, "g"), second.claim())
    assert [e.event.data_files[0].file_path for e in heard(cursor, 2) if isinstance(e.event, DataWritten)] == ["g"]
    assert time.monotonic() - began < 5
    with pytest.raises(CalvingError):
        dead.publish(publication(s.tp, 20, 30, "h"), second.claim())
    cursor.close()


def test_a_publisher_that_lives_is_left_alone_by_whoever_takes_its_partition(sink: Callable[..., Sink]) -> None:
    s = sink(partitions=2)
    first, listener = s.join(2)
    giving = s.session()
    _, other = s.join_another(first, listener)
    moved = next(iter(other.held))
    stayed = next(iter(listener.held - {moved}))
    giving.publish(publication(stayed, None, 10, "f"), first.claim())
    taking = s.session()
    taking.take_over([stayed, moved])
    giving.publish(publication(stayed, 10, 20, "g"), first.claim())
    assert taking.committed([stayed]) == {stayed: 20}


def test_a_publisher_that_was_taken_for_dead_goes_on_under_its_new_name_in_the_group(sink: Callable[..., Sink]) -> None:
    s = sink()
    former, _ = s.join()
    session = s.session()
    session.publish(publication(s.tp, None, 10, "f"), former.claim())
    former.close()
    s.session().take_over([s.tp])
    group, _ = s.join()
    session.publish(publication(s.tp, 10, 20, "g"), group.claim())
    assert session.committed([s.tp]) == {s.tp: 20}


def test_a_second_session_of_one_process_takes_over_from_the_first(sink: Callable[..., Sink]) -> None:
    s = sink()
    group, _ = s.join()
    before, after = s.session("one"), s.session("one")
    before.publish(publication(s.tp, None, 10, "f"), group.claim())
    after.publish(publication(s.tp, 10, 20, "g"), group.claim())
    with pytest.raises(CalvingError):
        before.publish(publication(s.tp, 20, 30, "h"), group.claim())
    assert after.committed([s.tp]) == {s.tp: 20}


def test_a_rebalance_makes_an_old_claim_worthless_for_what_moved(sink: Callable[..., Sink]) -> None:
    s = sink(partitions=2)
    first, listener = s.join(2)
    claim = first.claim()
    second = KafkaGroup(s.kafka, s.identity.group, Topics(s.kafka, [s.topic.name], None))
    other = Listener()
    try:

        def both() -> None:
            first.poll(0.05, listener)
            second.poll(0.05, other)

        wait(lambda: bool(other.held), both)
        with pytest.raises(FencedError):
            s.session().publish(publication(next(iter(other.held)), None, 10, "old"), claim)
    finally:
        second.close()


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


def test_a_control_topic_is_trimmed_below_what_all_its_sinks_have_saved(sink: Callable[..., Sink]) -> None:
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
    trimming.trim([0], {"a-group-that-has-saved-nothing"})
    theirs.acknowledge({0: 8}, [])
    trimming.trim([0], {"a-group-that-has-saved-nothing"})
    assert first_offset(s) == 4
    theirs.close()


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
