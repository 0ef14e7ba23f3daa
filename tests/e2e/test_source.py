"""Source topics: truncated logs, topics that appear later, missing topics."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from calving.engine.interface import LocalEngine
from calving.errors import ConfigError
from calving.iceberg.catalog import open_catalog
from calving.model.offsets import SourceOffsets, TopicPartition, named
from calving.protocol.departures import Departures
from calving.protocol.ledger import decode_source
from calving.protocol.ledger_key import SOURCE_OFFSETS
from calving.runtime.app import App, Progress
from calving.services.kafka import KafkaServer
from calving.settings.load import load
from calving.source.client import client_config
from harness.topic import Topic
from tests.cli.commands import Cli
from tests.tasks.conftest import encode

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """A broker that may be killed, and that makes topics by itself, as brokers do unless told otherwise."""
    broker = KafkaServer(tmp_path_factory.mktemp("kafka"), {"auto.create.topics.enable": "true"})
    broker.start()
    yield broker
    broker.stop()


def test_a_log_that_was_truncated_is_named_so_and_read_on_at_its_end(
    own_broker: KafkaServer,
    keys: dict[str, str],
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    unique: str,
) -> None:
    """The retained records have been read: to read them again would double them."""
    sink = Cli(tmp_path, Topic(own_broker.bootstrap_servers, f"source-{unique}"), unique)
    sink.keys |= keys
    for first in range(0, 500, 50):
        sink.send(first, first + 50)
    sink.run_here()
    own_broker.kill()
    truncate(tmp_path_factory.getbasetemp(), f"source-{unique}-0")
    own_broker.start()
    sink.refused("was truncated: reading should continue at offset 500, but it ends at 450")
    sink.keys["iceberg.source.on-data-loss"] = "skip"
    sink.run_here()
    sink.assert_exactly_once(500)
    sink.send(500, 560)
    sink.run_here()
    sink.assert_exactly_once(560)
    sink.send(560, 600)
    sink.run_here()
    sink.assert_exactly_once(600)


def truncate(folder: Path, partition: str) -> None:
    """The log loses its last batch, as a machine does that had not written it to its disk."""
    (log,) = (path for path in folder.rglob("00000000000000000000.log") if path.parent.name == partition)
    log.write_bytes(log.read_bytes()[:-10])
    for checkpoint in folder.rglob("recovery-point-offset-checkpoint"):
        checkpoint.unlink()


def test_a_topic_that_appears_later_is_read_from_its_beginning_whatever_the_reset_says(
    servers: str, tmp_path: Path, unique: str
) -> None:
    sink = Cli(tmp_path, Topic(servers, f"{unique}-first"), unique)
    del sink.keys["topics"]
    sink.keys |= {"topics.regex": f"{unique}-.*", "iceberg.source.start": "latest"}
    sink.send(0, 10)
    sink.run_here()
    sink.send(10, 20)
    Topic(servers, f"{unique}-second").send(*encode(*({"id": i} for i in range(20, 30))))
    sink.run_here()
    assert sorted(sink.ids()) == list(range(10, 30))


def test_what_comes_after_a_first_start_is_read_also_where_partitions_change_hands_before_the_first_record(
    topic: Callable[..., Topic], tmp_path: Path, unique: str
) -> None:
    """The first worker dies before it has read anything; to the next one this is no first start."""
    sink = Cli(tmp_path, topic(partitions=2), unique)
    sink.keys |= {"iceberg.source.start": "latest", "iceberg.control.commit.interval-ms": 60_000}
    sink.send(0, 10)
    die_when_something_is_held(sink)
    sink.keys["iceberg.control.commit.interval-ms"] = 1000
    sink.send(10, 20)
    sink.run_here()
    assert sorted(sink.ids()) == list(range(10, 20))


def test_a_first_start_of_a_time_reads_what_is_not_older_and_then_all_that_comes(
    topic: Callable[..., Topic], tmp_path: Path, unique: str, keys: dict[str, str]
) -> None:
    sink, noon = Cli(tmp_path, topic(partitions=3), unique), 1_795_867_200_000
    sink.keys |= keys | {"iceberg.source.start": "2026-11-28T12:00:00Z"}
    for number, at in enumerate([-2_000, -1_000, 0, 1_000]):
        sink.topic.send(*encode({"id": number}), partition=0, timestamp=noon + at)
    sink.topic.send(*encode({"id": 4}), partition=1, timestamp=noon - 1)
    sink.run_here()
    assert sorted(sink.ids()) == [2, 3]
    for number, partition in ((5, 1), (6, 2)):
        sink.topic.send(*encode({"id": number}), partition=partition, timestamp=noon - 5_000)
    sink.keys["iceberg.source.start"] = "earliest"
    sink.run_here()
    assert sorted(sink.ids()) == [2, 3, 5, 6]


def test_a_first_start_of_offsets_reads_from_there_and_other_partitions_whole(
    topic: Callable[..., Topic], tmp_path: Path, unique: str, caplog: pytest.LogCaptureFixture
) -> None:
    sink = Cli(tmp_path, topic(partitions=2), unique)
    sink.topic.send(*encode(*({"id": number} for number in range(10))), partition=0)
    sink.topic.send(*encode(*({"id": number} for number in range(10, 20))), partition=1)
    caplog.set_level("INFO")
    sink.keys["iceberg.source.start"] = f"{sink.topic.name}:0=11"
    with pytest.raises(ConfigError, match="has the offsets 0 to 10, and 11 is none of them"):
        sink.run_here()
    sink.keys["iceberg.source.start"] = f"{sink.topic.name}:0=7"
    sink.run_here()
    sink.run_here()
    assert sorted(sink.ids()) == [7, 8, 9, *range(10, 20)]
    assert caplog.text.count("first start, from") == 1
    assert f"topic '{sink.topic.name}': partition 0 from 7, 1 from 0" in caplog.text


def die_when_something_is_held(sink: Cli) -> None:
    class Killed(BaseException):
        pass

    def die(progress: Progress) -> None:
        if progress.held:
            raise Killed

    with pytest.raises(Killed):
        App(load(sink.config), LocalEngine()).run(on_progress=die)


def test_a_topic_that_is_gone_is_forgotten_and_one_that_comes_back_is_read_whole(
    keys: dict[str, str], servers: str, tmp_path: Path, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"looks": 3, "seconds": 2.0, "pause": 0.5}.items():
        monkeypatch.setattr(Departures, name, value)
    sink, leaving = Cli(tmp_path, Topic(servers, f"{unique}-stays"), unique), f"{unique}-leaves"
    del sink.keys["topics"]
    sink.keys |= {"topics.regex": f"{unique}-.*", "kafka.topic.metadata.refresh.interval.ms": 1000} | keys
    send(Topic(servers, leaving), 0, 10)
    sink.send(10, 20)
    sink.run_here()
    assert topics_of(sink) == {leaving, f"{unique}-stays"}
    sink.topic.admin.delete_topics([leaving])[leaving].result()
    sent = run_until(sink, 20, lambda: topics_of(sink) == {f"{unique}-stays"})
    assert stored(sink, leaving) == {}
    send(Topic(servers, leaving), 1000, 1010)
    sink.run_here()
    assert sorted(sink.ids()) == [*range(sent), *range(1000, 1010)]
    assert topics_of(sink) == {leaving, f"{unique}-stays"}


def send(topic: Topic, first: int, end: int) -> None:
    topic.send(*encode(*({"id": i} for i in range(first, end))))


def topics_of(sink: Cli) -> set[str]:
    """Those that the newest snapshot speaks of."""
    snapshot = open_catalog("iceberg", sink.catalog_keys).load_table("db.t").current_snapshot()
    assert snapshot is not None and snapshot.summary is not None
    return {named(tp).topic for tp in decode_source(snapshot.summary[SOURCE_OFFSETS] or "")}


def stored(sink: Cli, topic: str) -> SourceOffsets:
    found = load(sink.config)
    session = found.backend(found.identity, found.backend_settings).open("looking")
    try:
        return session.committed([TopicPartition(topic, 0)])
    finally:
        session.close()


def run_until(sink: Cli, first: int, done: Callable[[], bool]) -> int:
    """With a record a second, from ``first`` on; the number after the last."""
    app, at, deadline = App(load(sink.config), LocalEngine()), first, time.monotonic() + 60
    due = 0.0

    def on_progress(progress: Progress) -> None:
        nonlocal at, due
        if time.monotonic() >= due:
            assert time.monotonic() < deadline, "it did not happen in time"
            due = time.monotonic() + 1
            if done():
                app.stop()
            else:
                sink.send(at, at + 1)
                at += 1

    app.run(on_progress=on_progress)
    sink.run_here()
    return at


def test_to_look_for_a_topic_does_not_make_it(own_broker: KafkaServer, tmp_path: Path, unique: str) -> None:
    sink = Cli(tmp_path, Topic(own_broker.bootstrap_servers, f"there-{unique}"), unique)
    sink.keys["topics"] = f"typo-{unique}"
    for _ in range(2):
        with pytest.raises(ConfigError, match=re.escape(f"topic 'typo-{unique}' does not exist")):
            sink.run_here()
        time.sleep(0.5)
    admin = AdminClient(client_config({"bootstrap.servers": sink.topic.servers}))
    assert f"typo-{unique}" not in admin.list_topics(timeout=10).topics
