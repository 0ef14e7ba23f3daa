"""Ranges of a real broker: transactions, holes, large records, odd records."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as KafkaPartition

from calving.converters.native import SWITCH
from calving.errors import ConfigError, DataLossError, UnavailableError
from calving.model.offsets import Range, TopicPartition
from calving.model.record_path import Limits
from calving.source.kafka import Topics
from calving.source.kafka_columns import absence
from calving.source.opening import open_reader
from calving.source.reading import Block, headers_of
from harness.raw import RawProducer
from harness.topic import Topic

USUAL = Limits()
MESSAGES, COLUMNS = "0", "1"
"""Values of the switch: a message object for each record, or columns."""


@pytest.fixture(params=[MESSAGES, COLUMNS], ids=["messages", "columns"], autouse=True)
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both read the same."""
    monkeypatch.setenv(SWITCH, request.param)
    if request.param == COLUMNS and (reason := absence()) is not None:
        pytest.skip(reason)


def read(topic: Topic, start: int, end: int, partition: int = 0, limits: Limits = USUAL) -> list[Block]:
    reader = open_reader({"bootstrap.servers": topic.servers}, limits)
    return list(reader.read([Range(topic.name, partition, start, end)]))


def read_all(topic: Topic, *ranges: tuple[int, int, int], limits: Limits = USUAL) -> list[Block]:
    """Ranges by partition, start and end."""
    reader = open_reader({"bootstrap.servers": topic.servers}, limits)
    return list(reader.read([Range(topic.name, *each) for each in ranges]))


def values(blocks: Sequence[Block]) -> list[bytes | None]:
    return [value for block in blocks for value in block.values]


def stable_end(topic: Topic, partition: int = 0) -> int:
    tp = TopicPartition(topic.name, partition)
    return Topics({"bootstrap.servers": topic.servers}, [topic.name], None).bounds([tp]).ends[tp]


def wait_for_end(topic: Topic, end: int) -> int:
    """Markers become visible a moment after the producer was told."""
    deadline = time.monotonic() + 120
    while stable_end(topic) < end:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert stable_end(topic) == end
    return end


def test_a_range_is_read_once_and_in_order(topic: Callable[..., Topic]) -> None:
    t = topic()
    t.send(*[b"%d" % i for i in range(1000)])
    assert values(read(t, 100, 900)) == [b"%d" % i for i in range(100, 900)]


def test_small_ranges_are_read_at_the_same_time(topic: Callable[..., Topic]) -> None:
    t = topic(partitions=200)
    for p in range(200):
        t.producer.produce(t.name, b"%d" % p, partition=p)
    t.send()
    started = time.monotonic()
    found = read_all(t, *((p, 0, 1) for p in range(200)))
    assert time.monotonic() - started < 4  # one after the other: ten seconds and more
    assert Counter(values(found)) == Counter(b"%d" % p for p in range(200))


def test_blocks_are_of_one_partition_each_and_in_its_order(topic: Callable[..., Topic]) -> None:
    t = topic(partitions=5)
    for i in range(500):
        t.producer.produce(t.name, b"%d" % i, partition=i % 5)
    t.send()
    found = read_all(t, (0, 0, 100), (1, 50, 100), (2, 0, 50), (4, 99, 100), limits=Limits(block_records=70))
    offsets: dict[int, list[int]] = {}
    for block in found:
        p = block.source.partition
        assert block.values == [b"%d" % (offset * 5 + p) for offset in block.offsets.to_pylist()]
        offsets.setdefault(p, []).extend(block.offsets.to_pylist())
    assert offsets == {0: [*range(100)], 1: [*range(50, 100)], 2: [*range(50)], 4: [99]}


def test_ranges_too_large_to_be_read_at_once_are_read_whole(topic: Callable[..., Topic]) -> None:
    t = topic(partitions=3)
    for p in range(3):
        t.send(*[b"%d" % i for i in range(30_000)], partition=p)
    found = read_all(t, *((p, 0, 30_000) for p in range(3)))
    for p in range(3):
        its = [block for block in found if block.source.partition == p]
        assert [offset for block in its for offset in block.offsets.to_pylist()] == list(range(30_000))


def test_an_empty_range_reads_nothing(topic: Callable[..., Topic]) -> None:
    assert read(topic(), 0, 0) == []


def test_blocks_are_bounded(topic: Callable[..., Topic]) -> None:
    t = topic()
    t.send(*[b"x"] * 1000)
    assert max(len(block) for block in read(t, 0, 1000, limits=Limits(block_records=64))) <= 64


def test_a_range_that_ends_in_an_aborted_transaction_ends(topic: Callable[..., Topic], unique: str) -> None:
    t = topic()
    t.send(b"kept")
    producer = t.transactional(unique)
    producer.begin_transaction()
    producer.produce(t.name, b"aborted")
    producer.flush()
    producer.abort_transaction()
    end = wait_for_end(t, 3)
    assert values(read(t, 0, end)) == [b"kept"]


def test_a_range_that_is_nothing_but_markers_ends(topic: Callable[..., Topic], unique: str) -> None:
    t = topic()
    producer = t.transactional(unique)
    for _ in range(3):
        producer.begin_transaction()
        producer.produce(t.name, b"aborted")
        producer.flush()
        producer.abort_transaction()
    end = wait_for_end(t, 6)
    assert values(read(t, 0, end)) == []
    assert values(read(t, 5, 6)) == []


def test_every_range_ends_by_itself_markers_or_not(topic: Callable[..., Topic], unique: str) -> None:
    t = topic(partitions=20)
    producer = t.transactional(unique)
    producer.begin_transaction()
    for p in range(10):
        producer.produce(t.name, b"%d" % p, partition=p)
    producer.commit_transaction()
    deadline = time.monotonic() + 120
    while any(stable_end(t, p) < 2 for p in range(10)):  # the broker writes markers after it has answered
        assert time.monotonic() < deadline
    for p in range(5, 20):
        t.producer.produce(t.name, b"late", partition=p)
    t.send()
    marked, followed = ((p, 0, 2) for p in range(5)), ((p, 0, 2) for p in range(5, 10))
    found = read_all(t, *marked, *followed, *((p, 0, 1) for p in range(10, 20)))
    assert Counter(values(found)) == Counter([b"%d" % p for p in range(10)] + [b"late"] * 10)


def test_a_range_that_ends_in_a_commit_marker_ends(topic: Callable[..., Topic], unique: str) -> None:
    t = topic()
    producer = t.transactional(unique)
    producer.begin_transaction()
    producer.produce(t.name, b"a")
    producer.commit_transaction()
    assert values(read(t, 0, wait_for_end(t, 2))) == [b"a"]


def test_an_open_transaction_holds_the_end_back(topic: Callable[..., Topic], unique: str) -> None:
    t = topic()
    t.send(b"before")
    producer = t.transactional(unique)
    producer.begin_transaction()
    producer.produce(t.name, b"open")
    producer.flush()
    t.send(b"behind")
    assert stable_end(t) == 1
    producer.commit_transaction()
    assert values(read(t, 0, wait_for_end(t, 4))) == [b"before", b"open", b"behind"]


def test_a_range_that_cannot_be_reached_gives_up_without_spinning(topic: Callable[..., Topic]) -> None:
    t = topic()
    t.send(b"a")
    read(t, 0, 1)
    started = time.process_time()
    with pytest.raises(UnavailableError, match="no progress at offset 1"):
        read(t, 0, 5, limits=Limits(stalled_seconds=1.5))
    assert time.process_time() - started < 0.5


def test_the_one_range_that_cannot_be_reached_is_named(topic: Callable[..., Topic]) -> None:
    t = topic(partitions=3)
    for p in range(3):
        t.send(b"a", partition=p)
    with pytest.raises(UnavailableError, match=f"topic '{t.name}', partition 1: no progress at offset 1 of 2"):
        read_all(t, (0, 0, 1), (1, 0, 2), (2, 0, 1), limits=Limits(stalled_seconds=0.5))


def test_after_an_error_reading_starts_afresh(topic: Callable[..., Topic]) -> None:
    t = topic()
    t.send(b"a")
    with pytest.raises(UnavailableError):
        read(t, 0, 2, limits=Limits(stalled_seconds=0.2))
    assert values(read(t, 0, 1)) == [b"a"]


def test_holes_left_by_compaction_are_stepped_over(topic: Callable[..., Topic]) -> None:
    config = {
        "cleanup.policy": "compact",
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.01",
        "max.compaction.lag.ms": "100",
        "delete.retention.ms": "100",
    }
    t = topic(config=config)
    for i in range(60):
        t.send(b"%d" % i, key=b"same")
    t.send(b"tick", key=b"tick")
    deadline = time.monotonic() + 60
    while len(values(read(t, 0, stable_end(t)))) > 30:
        assert time.monotonic() < deadline, "the broker did not compact"
        time.sleep(0.5)
        t.send(b"tick", key=b"tick")
    end = stable_end(t)
    assert values(read(t, 0, end))[-1] == b"tick"
    assert values(read(t, 0, 30)) in ([], [b"0"], [b"29"]) or len(values(read(t, 0, 30))) < 30


def test_a_record_larger_than_the_fetch_size_is_read(topic: Callable[..., Topic]) -> None:
    t = topic(config={"max.message.bytes": "10000000"})
    large = b"x" * 5_000_000
    t.producer = __import__("confluent_kafka").Producer(
        {"bootstrap.servers": t.servers, "message.max.bytes": "10000000"}
    )
    t.send(b"a", large, b"b")
    assert values(read(t, 0, 3)) == [b"a", large, b"b"]


def test_keys_headers_timestamps_and_offsets_come_along(topic: Callable[..., Topic]) -> None:
    t, now = topic(), int(time.time() * 1000) - 5000
    t.send(b"v", key=b"k", headers=[("h", b"1")], timestamp=now)
    (block,) = read(t, 0, 1)
    assert (list(block.keys), headers_of(block, 0), block.offsets.to_pylist()) == ([b"k"], (("h", b"1"),), [0])
    assert block.timestamps_ms.to_pylist() == [now]
    assert block.first_and_last_ms == (now, now)


def test_an_empty_value_is_no_tombstone(topic: Callable[..., Topic]) -> None:
    t = topic()
    for value, key in ((None, b"k"), (b"", None), (b"x", b"")):
        t.producer.produce(t.name, value, key, partition=0)
    t.send()
    found = read(t, 0, 3)
    assert [v for block in found for v in block.values] == [None, b"", b"x"]
    assert [k for block in found for k in block.keys] == [b"k", None, b""]


def test_headers_are_those_of_their_record(topic: Callable[..., Topic]) -> None:
    t = topic()
    t.send(b"a", b"b")
    t.send(b"c", headers=[("one", None), ("two", b""), ("one", b"\xff")])
    (block,) = read(t, 0, 3)
    assert [headers_of(block, i) for i in range(3)] == [(), (), (("one", None), ("two", b""), ("one", b"\xff"))]
    assert [block.with_header(name, range(3)) for name in ("one", "two", "a")] == [{2}, {2}, set()]


def test_only_the_record_with_a_header_name_that_is_no_utf8_has_no_headers_to_read(topic: Callable[..., Topic]) -> None:
    t = topic()
    raw = RawProducer(t.servers)
    for headers in ([(b"a", b"1")], [(b"b", b"2"), (b"\xff\xfe", b"3")], []):
        raw.send(t.name, b"v", key=b"k", headers=headers)
    raw.close()
    found = read(t, 0, 3)
    assert [headers_of(block, i) for block in found for i in range(len(block))] == [(("a", b"1"),), None, ()]
    assert values(found) == [b"v"] * 3


def test_records_behind_the_end_of_a_range_are_left_out_of_every_column(topic: Callable[..., Topic]) -> None:
    t = topic()
    t.send(*[b"%d" % i for i in range(100)], key=b"k", headers=[("h", b"1")])
    found = read(t, 10, 40)
    assert [v for block in found for v in block.values] == [b"%d" % i for i in range(10, 40)]
    assert sum(len(block) for block in found) == 30
    for block in found:
        columns = (block.values, block.keys, block.offsets, block.timestamps_ms, block.headers)
        assert {len(column) for column in columns} == {len(block)}
        assert block.values.size == sum(len(value) for value in block.values)


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_a_timestamp_is_that_of_the_topics_kind(topic: Callable[..., Topic], kind: str) -> None:
    t = topic(config={"message.timestamp.type": kind})
    t.send(b"v", timestamp=1_000)
    (block,) = read(t, 0, 1)
    (at,) = block.timestamps_ms.to_pylist()
    assert block.first_and_last_ms == (at, at)
    assert (at == 1_000) == (kind == "CreateTime")


def test_a_record_without_timestamp_has_none(topic: Callable[..., Topic]) -> None:
    t = topic()
    t.send(b"v", timestamp=-1)
    (block,) = read(t, 0, 1)
    assert block.timestamps_ms.to_pylist() == [None]


def test_a_partition_split_over_tasks_is_read_once(topic: Callable[..., Topic]) -> None:
    t = topic()
    t.send(*[b"%d" % i for i in range(500)])
    parts = [values(read(t, start, start + 125)) for start in range(0, 500, 125)]
    assert [v for part in parts for v in part] == [b"%d" % i for i in range(500)]


def test_records_that_are_gone_are_an_error_never_a_jump(topic: Callable[..., Topic]) -> None:
    t = topic()
    t.send(*[b"x"] * 10)
    for future in t.admin.delete_records([KafkaPartition(t.name, 0, 6)]).values():
        future.result()
    with pytest.raises(
        DataLossError,
        match=f"topic '{t.name}', partition 0: reading should continue at offset 2, but the broker has 6 to 10",
    ):
        read(t, 2, 10)


def test_a_batch_that_the_client_cannot_decompress_stops_the_sink_with_its_place(topic: Callable[..., Topic]) -> None:
    """The client itself would try it for ever. It decompresses zstd up to the size of an answer of a broker."""
    t = topic()
    t.send(b"a")
    bomb = Producer({"bootstrap.servers": t.servers, "compression.codec": "zstd", "message.max.bytes": 3_000_000})
    bomb.produce(t.name, b"\0" * 2_000_000, partition=0)
    assert bomb.flush(10) == 0
    t.send(b"b")
    least = {"fetch.max.bytes": "1000000", "receive.message.max.bytes": "1000512"}
    reader = open_reader({"bootstrap.servers": t.servers, **least}, Limits(stalled_seconds=3))
    with pytest.raises(ConfigError, match=f"'{t.name}', partition 0: the batch at offset 1 is unreadable"):
        list(reader.read([Range(t.name, 0, 0, 3)]))
