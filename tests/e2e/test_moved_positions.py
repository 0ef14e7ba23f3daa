"""Positions of the sink's consumer group that somebody else moves: nothing is skipped without a word."""

from __future__ import annotations

import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaPartition

from calving.cli.accept import accept
from calving.cli.status import status
from calving.model.events import DataComplete, PartitionProgress
from calving.model.offsets import TopicPartition
from calving.settings.load import load
from calving.source.client import client_config
from calving.status.health import reasons
from calving.status.remedies import Cause
from calving.wire.codec import Message, encode
from harness.topic import Topic
from tests.cli.commands import Cli

pytestmark = pytest.mark.services


@pytest.fixture
def sink(tmp_path: Path, topic: Callable[..., Topic], unique: str) -> Cli:
    """300 records, all of them committed."""
    made = Cli(tmp_path, topic(), unique)
    made.send(0, 300)
    made.run_here()
    return made


def consumer(sink: Cli, **settings: str | bool) -> Consumer:
    group = load(sink.config).group
    return Consumer(client_config({"bootstrap.servers": sink.topic.servers}, group_id=group, **settings))


def answer_as_java(sink: Cli, offset: int) -> None:
    """The answer of a task of the Java sink, which has no headers."""
    loaded = load(sink.config)
    event = DataComplete(uuid4(), (PartitionProgress(TopicPartition(sink.topic.name, 0), offset, 1),))
    producer = Producer(client_config({"bootstrap.servers": sink.topic.servers}))
    producer.produce(loaded.keys.control_topic, encode(Message(uuid4(), 1, loaded.group, event)), b"task", 0)
    assert producer.flush(10) == 0


def test_records_that_an_operator_skips_are_named_until_they_are_read_again(
    sink: Cli, caplog: pytest.LogCaptureFixture
) -> None:
    sink.send(300, 400)
    sink.move(400)
    sentence = (
        f"topic '{sink.topic.name}', partition 0: 100 records from offset 300 to 400 are in no table, because somebody"
        " else (another consumer with the sink's group id, or an operator) has moved the position"
    )
    before = status(load(sink.config))
    assert before.health == "DEGRADED" and any(reason.startswith(sentence) for reason in before.reasons)
    for end in (410, 420):
        sink.send(end - 10, end)
        app = sink.run_here()
        assert [r.text for r in reasons(app.status, time.time()) if r.cause == Cause.POSITION_MOVED] == [*before.moved]
        assert status(load(sink.config)).health == "DEGRADED"
    warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert sum(text.startswith(sentence) for text in warnings) == 1
    assert sorted(sink.ids()) == [*range(300), *range(400, 420)]
    (table,) = status(load(sink.config)).tables
    assert table.state == "DEGRADED"
    sink.recover_here()
    sink.run_here()
    sink.assert_exactly_once(420)
    assert status(load(sink.config)).health == "OK"


def test_records_that_a_consumer_with_the_group_of_the_sink_takes_can_be_accepted(sink: Cli) -> None:
    sink.send(300, 400)
    with contextlib.closing(consumer(sink, enable_auto_commit=True, auto_offset_reset="earliest")) as stranger:
        stranger.subscribe([sink.topic.name])
        taken = 0
        while taken < 100:
            taken += stranger.poll(10) is not None
    sink.send(400, 410)
    app = sink.run_here()
    assert app.status.worker.passed_over == {sink.topic.name: 100}
    sink.send(410, 420)
    sink.run_here()
    assert status(load(sink.config)).health == "DEGRADED"
    lines = list(accept(load(sink.config)))
    assert lines == [f"{sink.topic.name}-0: 100 offsets from 300 to 400: accepted"]
    assert list(accept(load(sink.config))) == ["there is nothing to accept"]
    assert status(load(sink.config)).health == "OK"
    sink.send(420, 430)
    app = sink.run_here()
    assert not [r for r in reasons(app.status, time.time()) if r.cause == Cause.POSITION_MOVED]
    assert status(load(sink.config)).health == "OK"
    assert Counter(sink.ids()) == Counter([*range(300), *range(400, 430)])


@pytest.mark.parametrize("takes_effect", [True, False])
def test_a_move_is_accepted_although_the_answer_was_lost(
    tmp_path: Path, topic: Callable[..., Topic], unique: str, takes_effect: bool, lose_answer: Callable[..., None]
) -> None:
    sink = Cli(tmp_path, topic(), unique)
    sink.send(0, 30)
    sink.run_here()
    sink.send(30, 60)
    sink.move(50)
    lose_answer(takes_effect=takes_effect)
    assert list(accept(load(sink.config))) == [f"{sink.topic.name}-0: 20 offsets from 30 to 50: accepted"]
    assert list(accept(load(sink.config))) == ["there is nothing to accept"]
    assert not status(load(sink.config)).moved


def test_a_move_is_accepted_before_the_sink_reads_on(sink: Cli, caplog: pytest.LogCaptureFixture) -> None:
    sink.send(300, 400)
    sink.move(350)
    assert list(accept(load(sink.config))) == [f"{sink.topic.name}-0: 50 offsets from 300 to 350: accepted"]
    assert not status(load(sink.config)).moved
    for end in (400, 410):
        sink.send(end, end + 10)
        sink.run_here()
    assert "somebody else" not in caplog.text
    assert status(load(sink.config)).health == "OK"
    assert Counter(sink.ids()) == Counter([*range(300), *range(350, 420)])


def test_a_control_log_that_retention_has_emptied_raises_no_alarm(sink: Cli) -> None:
    control = load(sink.config).keys.control_topic
    partitions = sink.topic.admin.list_topics(control).topics[control].partitions
    for removed in sink.topic.admin.delete_records([KafkaPartition(control, p, -1) for p in partitions]).values():
        removed.result()
    sink.send(300, 310)
    sink.run_here()
    assert (status(load(sink.config)).health, status(load(sink.config)).moved) == ("OK", ())


@pytest.mark.parametrize("reads_on", [True, False])
def test_records_that_an_operator_skips_right_after_a_recovery_are_named_until_they_are_accepted(
    sink: Cli, *, reads_on: bool
) -> None:
    """The control log tells nothing of the partition then: its tables do."""
    sink.recover_here()
    assert not status(load(sink.config)).moved
    sink.send(300, 400)
    sink.move(400)
    (before,) = status(load(sink.config)).moved
    assert before.startswith(
        f"topic '{sink.topic.name}', partition 0: 100 records from offset 300 to 400 are in no table"
    )
    if reads_on:
        sink.send(400, 410)
        assert sink.run_here().status.worker.passed_over == {sink.topic.name: 100}
        assert status(load(sink.config)).moved == (before,)
    assert list(accept(load(sink.config))) == [f"{sink.topic.name}-0: 100 offsets from 300 to 400: accepted"]
    sink.send(410 if reads_on else 400, 420)
    sink.run_here()
    assert status(load(sink.config)).health == "OK"
    assert Counter(sink.ids()) == Counter([*range(300), *range(400, 420)])


def test_positions_that_the_java_sink_has_stored_are_believed(sink: Cli, caplog: pytest.LogCaptureFixture) -> None:
    """Its tasks announce each position with an answer in the control log."""
    sink.send(300, 400)
    answer_as_java(sink, 400)
    sink.move(400)
    assert not status(load(sink.config)).moved
    for end in (400, 410):
        sink.send(end, end + 10)
        sink.run_here()
    assert "somebody else" not in caplog.text
    assert status(load(sink.config)).health == "OK"
