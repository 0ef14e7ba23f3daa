"""A table that is broken for long costs the others nothing: its commits are parked, and made once it is mended."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaPartition

from calving.services.stores import RedisServer, ZooKeeperServer
from calving.source.client import client_config
from harness.heads import row_count
from harness.run import Run, settings_of
from harness.waiting import wait_for

pytestmark = pytest.mark.services

BROKEN, WELL = "db.odd", "db.even"
BEHIND = 40


@pytest.fixture
def run(servers: str, tmp_path: Path, unique: str) -> Iterator[Callable[[dict[str, str]], Run]]:
    made: list[Run] = []

    def start(settings: dict[str, str]) -> Run:
        made.append(Run(tmp_path, servers, unique, settings={"iceberg.batch.max-records": "20"} | settings))
        made[0].environment["PARK_BEHIND"] = str(BEHIND)
        return made[0]

    yield start
    for found in made:
        found.close()


def heard_again(sink: Run) -> tuple[int, int]:
    """Places of the control topic that a coordinator would read now, and all that there have been."""
    topic, config = f"control-{sink.name}", {"bootstrap.servers": sink.servers}
    consumer = Consumer(client_config(config, group_id=f"connect-{sink.name}-coord"))
    try:
        partitions = consumer.list_topics(topic, 10).topics[topic].partitions
        saved = {p.partition: p.offset for p in consumer.committed([KafkaPartition(topic, p) for p in partitions], 10)}
        ends = {p: consumer.get_watermark_offsets(KafkaPartition(topic, p), 10)[1] for p in partitions}
    finally:
        consumer.close()
    return sum(end - max(0, saved[p]) for p, end in ends.items()), sum(ends.values())


def break_and_mend(sink: Run, rounds: int) -> list[tuple[int, int]]:
    """While the table is broken its coordinators are killed; what a successor would hear again, each time."""
    fault = f"table={BROKEN}:broken:@{sink.folder}"
    sink.start(fault)
    sink.start(fault)
    sink.produce(200)
    sink.wait_until_committed()
    before = row_count(sink.catalog, BROKEN)
    (sink.folder / "table-broken").touch()
    figures: list[tuple[int, int]] = []
    for n in range(rounds):
        sink.produce(400)
        wait_for(lambda: row_count(sink.catalog, WELL) == sink.sent // 2)
        wait_for(partial(has_parked, sink, n))
        if "iceberg.control.backend" not in sink.config.read_text():
            figures.append(heard_again(sink))
        # Each in turn: whoever led has a successor.
        sink.workers[n].signal(signal.SIGKILL)
        sink.start(fault)
    assert row_count(sink.catalog, BROKEN) == before
    assert row_count(sink.catalog, WELL) > before
    (sink.folder / "table-broken").unlink()
    return figures


def has_parked(sink: Run, more_than: int) -> bool:
    return len(parked(sink)) > more_than


def parked(sink: Run) -> list[str]:
    return [str(path) for path in sink.folder.rglob("calving-parked-*")]


def assert_it_has_all_of_it_once(sink: Run) -> None:
    sink.wait_until_committed(90)
    logs = "".join(worker.log.read_text() for worker in sink.workers)
    entries = r"(?:1 entry with its files is|\d+ entries with their files are)"
    assert len(re.findall(rf"table {BROKEN}: {entries} parked in", logs)) >= 2
    leaders = sum("coordinating group" in worker.log.read_text() for worker in sink.workers)
    assert leaders >= 2
    sink.produce(100)  # the next commit of the table drops the files
    sink.wait_until_committed()
    sink.stop()
    sink.assert_exactly_once()


def test_a_successor_hears_little_again_while_a_table_is_broken_and_the_table_gets_all_of_it_once(
    run: Callable[[dict[str, str]], Run],
) -> None:
    sink = run({})
    figures = break_and_mend(sink, 4)
    print("heard again, of all:", figures)
    assert_it_has_all_of_it_once(sink)
    # What is not parked yet, one more cycle or two, StartCommits and answers among it.
    assert all(again < 10 * BEHIND for again, _ in figures), figures
    assert figures[-1][0] < figures[-1][1] / 2, figures


@pytest.mark.long
@pytest.mark.parametrize("store", ["redis", "zookeeper"], indirect=True)
def test_it_is_so_with_every_backend(
    store: RedisServer | ZooKeeperServer, run: Callable[[dict[str, str]], Run]
) -> None:
    sink = run(settings_of(store))
    break_and_mend(sink, 3)
    assert_it_has_all_of_it_once(sink)


def test_a_recovery_reads_again_what_was_parked(run: Callable[[dict[str, str]], Run]) -> None:
    sink = run({})
    break_and_mend(sink, 2)
    for worker in sink.workers:
        worker.signal(signal.SIGKILL)
    assert parked(sink)
    sink.recover()
    sink.start()
    sink.produce(100)
    sink.wait_until_committed(90)
    sink.stop()
    sink.assert_exactly_once()


def test_landed_files_are_parked_and_committed_in_the_spec_that_they_have_landed_in(
    run: Callable[[dict[str, str]], Run],
) -> None:
    sink = run({"iceberg.tables.landing": "unpartitioned", "iceberg.tables.default-partition-by": "bucket(id, 50)"})
    break_and_mend(sink, 2)
    assert_it_has_all_of_it_once(sink)
    files = sink.catalog.load_table(BROKEN).inspect.data_files()
    assert set(files["spec_id"].to_pylist()) == {1}
