"""Records with odd envelopes, and dead letters that their topic refuses, on every backend."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from calving.errors import ConfigError
from calving.iceberg.catalog import open_catalog
from calving.model.offsets import Range, TopicPartition
from calving.model.record_path import Limits
from calving.protocol.ledger_key import VALID_THROUGH
from calving.source.kafka import Topics
from calving.source.opening import open_reader
from calving.source.reading import Block, headers_of
from harness.raw import RawProducer
from harness.topic import Topic
from tests.cli.commands import Cli
from tests.tasks.conftest import encode

pytestmark = pytest.mark.services

LONG = str(2**63 - 1)
ANY_TIME = {"message.timestamp.after.max.ms": LONG, "message.timestamp.before.max.ms": LONG, "retention.ms": "-1"}
LARGE = {"max.message.bytes": "8000000"}
DEAD = {"errors.tolerance": "all", "errors.deadletterqueue.topic.replication.factor": "1"}


@pytest.fixture
def sink(topic: Callable[..., Topic], keys: dict[str, str], tmp_path: Path, unique: str) -> Cli:
    made = Cli(tmp_path, topic(config={**ANY_TIME, **LARGE}), unique)
    made.keys |= keys | DEAD | {"errors.deadletterqueue.topic.name": f"dead-{unique}"}
    return made


@pytest.fixture
def raw(servers: str) -> Iterator[RawProducer]:
    made = RawProducer(servers)
    yield made
    made.close()


def test_odd_timestamps_and_header_names_spoil_no_commit_and_no_other_record(sink: Cli, raw: RawProducer) -> None:
    micros, source = time.time_ns() // 1_000, sink.topic.name
    raw.send(source, b'{"id": 0}', timestamp=micros)
    raw.send(source, b'{"id": 1}', timestamp=micros * 1_000)
    sink.run_here()
    assert VALID_THROUGH not in summary(sink)
    raw.send(source, b'{"id": 2}', headers=[(b"\xff", b"1")])
    raw.send(source, b"no JSON", timestamp=micros * 1_000, headers=[(b"\xff", b"1")], key=b"\xff")
    sink.run_here()
    assert "2000" < summary(sink)[VALID_THROUGH] < "2100"
    sink.assert_exactly_once(3)
    (letter,) = read(sink.topic.servers, f"dead-{sink.name}")
    assert (list(letter.values), list(letter.keys)) == ([b"no JSON"], [b"\xff"])
    assert letter.timestamps_ms.to_pylist() == [micros * 1_000]
    said = dict(headers_of(letter, 0) or ())
    assert b"the name of a header is not UTF-8" in (said["__connect.errors.exception.message"] or b"")


def read(servers: str, topic: str) -> list[Block]:
    """All of a topic of one partition."""
    kafka, there = {"bootstrap.servers": servers}, TopicPartition(topic, 0)
    end = Topics(kafka, [topic], None).highs([there])[there]
    return [*open_reader(kafka, Limits()).read([Range(topic, 0, 0, end)])]


def summary(sink: Cli) -> dict[str, str]:
    snapshot = open_catalog("iceberg", sink.catalog_keys).load_table("db.t").current_snapshot()
    assert snapshot is not None and snapshot.summary is not None
    return snapshot.summary.additional_properties


def test_a_dead_letter_whose_timestamp_its_topic_refuses_stops_the_sink_with_what_to_do(
    sink: Cli, raw: RawProducer, topic: Callable[..., Topic]
) -> None:
    sink.keys["errors.deadletterqueue.topic.name"] = dead = topic(
        config={"message.timestamp.after.max.ms": "3600000"}
    ).name
    raw.send(sink.topic.name, b"no JSON", timestamp=time.time_ns() // 1_000)
    assert_refused(sink, dead, "message.timestamp.after.max.ms")


def assert_refused(sink: Cli, dead: str, setting: str) -> None:
    """The first record's dead letter stops the sink, and the error names the topic's setting."""
    with pytest.raises(ConfigError) as stopped:
        sink.run_here()
    record = f"the dead letter of topic '{sink.topic.name}', partition 0, offset 0"
    assert str(stopped.value).startswith(f"topic '{dead}' refuses {record}")
    assert f"raise its {setting}" in str(stopped.value)


def test_a_dead_letter_that_is_too_large_without_its_record_stops_the_sink_with_what_to_do(
    sink: Cli, raw: RawProducer, topic: Callable[..., Topic]
) -> None:
    sink.keys["errors.deadletterqueue.topic.name"] = dead = topic(config={"max.message.bytes": "100"}).name
    raw.send(sink.topic.name, b"no JSON")
    assert_refused(sink, dead, "max.message.bytes")


def test_a_dead_letter_is_as_small_as_its_record_was_and_otherwise_says_what_it_lacks(
    sink: Cli, raw: RawProducer, topic: Callable[..., Topic], caplog: pytest.LogCaptureFixture
) -> None:
    dead = topic(config={"max.message.bytes": "100000"})
    sink.keys["errors.deadletterqueue.topic.name"] = dead.name
    letters = [b"no JSON" * 100_000, Random(1).randbytes(200_000), b"no JSON"]
    for number, value in enumerate(letters):
        raw.send(sink.topic.name, value, key=b"%d" % number, headers=[(b"h", b"1")])
    raw.send(sink.topic.name, b'{"id": 0}')
    sink.run_here()
    sink.assert_exactly_once(1)
    told = {
        block.keys[i]: (block.values[i], dict(headers_of(block, i) or ()))
        for block in read(dead.servers, dead.name)
        for i in range(len(block))
    }
    assert [told[b"%d" % number][0] for number in range(3)] == [letters[0], None, letters[2]]
    left_out = [headers.get("calving-left-out") for _, headers in told.values()]
    assert [json.loads(text) for text in left_out if text is not None] == [
        {"topic": sink.topic.name, "partition": 0, "offset": 1, "value": 200_000}
    ]
    assert all(headers["h"] == b"1" for _, headers in told.values())
    assert "starting over" not in caplog.text


def test_small_dead_letters_are_whole_in_a_topic_that_takes_no_batch_of_them(
    sink: Cli, raw: RawProducer, topic: Callable[..., Topic]
) -> None:
    dead = topic(config={"max.message.bytes": "2000"})
    sink.keys |= {"errors.deadletterqueue.topic.name": dead.name, "errors.max-share": 1, "kafka.linger.ms": 100}
    letters = [Random(number).randbytes(300) for number in range(200)]
    for number, value in enumerate(letters):
        raw.send(sink.topic.name, value, key=b"%d" % number)
    raw.send(sink.topic.name, b'{"id": 0}')
    sink.run_here()
    sink.assert_exactly_once(1)
    told = {block.keys[i]: block.values[i] for block in read(dead.servers, dead.name) for i in range(len(block))}
    assert told == {b"%d" % number: value for number, value in enumerate(letters)}


@pytest.mark.long
def test_records_that_no_table_can_take_stop_no_other_table_on_spark(
    topic: Callable[..., Topic], tmp_path: Path, unique: str
) -> None:
    sink = Cli(tmp_path, topic(), unique)
    del sink.keys["iceberg.tables"]
    dead = topic()
    sink.keys |= DEAD | {
        "iceberg.engine": "spark",
        "spark.master": "local[1]",
        "iceberg.tables.dynamic-enabled": True,
        "iceberg.tables.route-field": "to",
        "iceberg.tables.evolve-schema-enabled": True,
        "iceberg.tables.upsert-mode-enabled": True,
        "iceberg.tables.default-id-columns": "id",
        "iceberg.tables.default-partition-by": "day(ts)",
        "iceberg.tables.order-field": "lsn",
        "iceberg.tables.delete-mode": "soft",
        "iceberg.limits.columns": 30,
        "iceberg.limits.new-columns": 10,
        "errors.deadletterqueue.topic.name": dead.name,
    }
    catalog = open_catalog("iceberg", sink.catalog_keys)
    catalog.create_namespace("db")
    catalog.create_table("db.other", Schema(NestedField(1, "x", LongType(), required=False)))
    good = {"to": "db.good", "id": 0, "ts": "2024-05-06T12:00:00Z", "lsn": 1}
    poison = [
        ({**good, "to": "db.a", "ts": None}, "table db.a: partition-by 'day(ts)': there is no column 'ts'"),
        ({**good, "to": "db.b", "ts": True}, "table db.b: partition-by 'day(ts)' cannot be applied to a boolean"),
        ({**good, "to": "db.c", "lsn": None}, "table db.c: the record has no value for the order-field 'lsn'"),
        ({**good, "to": "db.d", "lsn": [1]}, "table db.d: the order-field 'lsn' cannot hold what the record has"),
        ({**good, "to": "db.e", "id": None}, "table db.e: the record has no value for the id-column 'id'"),
        ({**good, "to": "db.f", "_cdc_deleted": "no"}, "table db.f: field '_cdc_deleted': 'no' is not a boolean"),
        ({**good, "to": "db.g", "x" * 256: 1}, "it is longer than 255 bytes"),
        ({**good, "a\n": 1}, "table db.good: no column can have the name 'a\\n': it has control characters"),
        ({**good, **{f"n{i}": i for i in range(40)}}, "columns, more than iceberg.limits."),
        ({**good, "to": "db.other"}, "table db.other: it has no column id, which is its id column"),
    ]
    for run in (0, 1):
        records = [{**good, "to": f"db.{to}", "id": 10 * run + n} for to in ("good", "better") for n in range(5)]
        sink.topic.send(*encode(*records, *(record for record, _ in poison), {**good, "id": 10 * run + 5}))
        sink.run("run", "--until-caught-up")
    assert sorted(sink.ids("db.good")) == [0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 15]
    assert sorted(sink.ids("db.better")) == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]
    blocks = read(dead.servers, dead.name)
    said = [dict(headers_of(block, n) or ()) for block in blocks for n in range(len(block))]
    reasons = [(headers["__connect.errors.exception.message"] or b"").decode() for headers in said]
    assert {why: sum(why in reason for reason in reasons) for _, why in poison} == {why: 2 for _, why in poison}
    assert len(reasons) == 2 * len(poison)
