"""The reader in Rust, and the one of message objects: what one gives, the other one gives."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from calving.converters.native import SWITCH
from calving.errors import UnavailableError
from calving.model.offsets import Range, TopicPartition
from calving.model.record_path import Limits
from calving.source.kafka import Topics
from calving.source.kafka_columns import absence
from calving.source.opening import no_native_reader, open_reader
from calving.source.reading import Block, headers_of
from harness.topic import Topic

pytestmark = pytest.mark.skipif(absence() is not None, reason=absence() or "")

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = 3


def fill(topic: Topic, chance: Random, transactional: str) -> None:
    """Records of every form, of transactions that are committed and aborted, and of none."""
    producer = topic.transactional(transactional)
    for _ in range(8):
        is_ours = chance.random() < 0.7
        if is_ours:
            producer.begin_transaction()
        for _ in range(chance.choice([1, 3, 150, 2_500])):
            value = None if chance.random() < 0.1 else chance.randbytes(chance.choice([0, 1, 50, 500]))
            key = None if chance.random() < 0.5 else chance.randbytes(chance.randint(0, 20))
            many = chance.randint(1, 40) if chance.random() < 0.3 else 0
            headers: list[tuple[str, str | bytes | None]] = [
                (f"h{i}", None if chance.random() < 0.2 else chance.randbytes(5)) for i in range(many)
            ]
            at = chance.choice([0, -1, 1, 1_700_000_000_000])
            into = producer if is_ours else topic.producer
            into.produce(topic.name, value, key, chance.randrange(PARTITIONS), headers=headers, timestamp=at)
        producer.flush()
        topic.producer.flush()
        if is_ours:
            (producer.commit_transaction if chance.random() < 0.6 else producer.abort_transaction)()


def records(blocks: Sequence[Block]) -> dict[int, list[Any]]:
    """All that the columns say, by partition."""
    found: dict[int, list[Any]] = {}
    for b in blocks:
        rows = zip(b.offsets.to_pylist(), b.timestamps_ms.to_pylist(), b.keys, b.values, strict=True)
        found.setdefault(b.source.partition, []).extend((*row, headers_of(b, i)) for i, row in enumerate(rows))
        assert b.values.size == sum(len(value) for value in b.values if value is not None)
        known = [at for at in b.timestamps_ms.to_pylist() if at is not None and at >= 0]
        assert b.first_and_last_ms == ((min(known), max(known)) if known else None)
    return found


@pytest.mark.parametrize("codec", CODECS)
def test_both_readers_read_the_same(
    topic: Callable[..., Topic], unique: str, codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = Random(codec)
    kind = chance.choice(["CreateTime", "LogAppendTime"])
    compression = {"compression.type": "uncompressed" if codec == "none" else codec}
    kept = {"message.timestamp.type": kind, "retention.ms": "-1"}  # there are records of 1970
    t = topic(partitions=PARTITIONS, config={**compression, **kept})
    fill(t, chance, unique)
    kafka = {"bootstrap.servers": t.servers}
    source = Topics(kafka, [t.name], None)
    places = [TopicPartition(t.name, p) for p in range(PARTITIONS)]
    deadline = time.monotonic() + 120
    while (ends := source.bounds(places).ends) != source.highs(places):
        assert time.monotonic() < deadline
    for _ in range(4):
        bounds = [sorted(chance.choices(range(ends[tp] + 1), k=2)) for tp in places]
        ranges = [Range(t.name, p, *each) for p, each in enumerate(bounds)]
        found = []
        for switch in "01":
            monkeypatch.setenv(SWITCH, switch)
            limits = Limits(block_records=chance.choice([7, 100, 8_000]))
            found.append(records(list(open_reader(kafka, limits).read(ranges))))
        assert found[0] == found[1]


@pytest.mark.parametrize("switch", ["1", "0"], ids=["Rust", "messages"])
def test_a_reader_without_headers_reads_all_else(
    topic: Callable[..., Topic], switch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SWITCH, switch)
    t = topic()
    t.send(b"1", None, b"3", key=b"k", headers=[("h", b"x")])
    whole, bare = (
        list(open_reader({"bootstrap.servers": t.servers}, Limits(), headers=headers).read([Range(t.name, 0, 0, 3)]))
        for headers in (True, False)
    )
    assert headers_of(whole[0], 0) == (("h", b"x"),)
    for column in ("values", "keys", "offsets", "timestamps_ms"):
        read, without = ([each for b in blocks for each in getattr(b, column)] for blocks in (whole, bare))
        assert without == read and len(read) == 3
    with pytest.raises(RuntimeError, match="without their headers"):
        headers_of(bare[0], 0)


def test_a_block_of_large_records_has_few_of_them(topic: Callable[..., Topic]) -> None:
    t = topic()
    t.send(*[b"x" * 5_000] * 20_000)
    ahead = {
        "queued.min.messages": "100000",
        "queued.max.messages.kbytes": "200000",
        "fetch.message.max.bytes": "60000000",
    }
    blocks = open_reader({"bootstrap.servers": t.servers, **ahead}, Limits()).read([Range(t.name, 0, 0, 20_000)])
    sizes = []
    for block in blocks:
        sizes.append(block.values.size)
        time.sleep(1)  # the client fetches the rest meanwhile
    assert sum(sizes) == 100_000_000
    assert max(sizes) < 40_000_000


def test_what_librdkafka_logs_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "calving.librdkafka")
    reader = open_reader({"bootstrap.servers": "127.0.0.1:1", "debug": "broker"}, Limits(stalled_seconds=1))
    with pytest.raises(UnavailableError):
        list(reader.read([Range("t", 0, 0, 1)]))
    assert any("127.0.0.1:1" in record.getMessage() for record in caplog.records)


def test_memory_does_not_grow_with_what_was_read(topic: Callable[..., Topic]) -> None:
    t = topic()
    t.send(*[b"x" * 1_000] * 20_000, key=b"k", headers=[("h", b"1")])

    def read() -> None:
        for block in open_reader({"bootstrap.servers": t.servers}, Limits()).read([Range(t.name, 0, 0, 20_000)]):
            assert len(block.values.column) == len(block.keys.column) == len(block)

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    for _ in range(4):
        read()
    before = resident()
    for _ in range(10):
        read()
    assert resident() - before < 60_000_000  # of 200 MB that were read


def test_the_switch_says_why_there_is_no_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    assert no_native_reader() is None
    monkeypatch.setenv(SWITCH, "0")
    assert no_native_reader() == "switched off by CALVING_NATIVE = 0"
