"""Publishing to a real broker: every way in which a publication must be refused, and what survives."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
from confluent_kafka import TopicPartition as KafkaPartition

from calving.errors import CalvingError, FencedError
from calving.model.events import (
    DataComplete,
    DataWritten,
)
from calving.model.offsets import Span
from calving.model.sink import Claim
from calving.source.kafka import KafkaGroup, Topics
from calving.source.members import members
from tests.kafka.sinks import PROTOCOLS, Listener, Sink, heard, publication, silent, wait

pytestmark = pytest.mark.services

_STOPS = 20


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
from tests.kafka.sinks import Listener, publication, TopicPartition
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
