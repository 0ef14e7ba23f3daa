"""Where a first start begins to read, as the key ``iceberg.source.start`` says it."""

from __future__ import annotations

import pytest

from calving.errors import ConfigError
from calving.model.offsets import TopicPartition
from calving.settings.load import parse
from calving.source.start import EARLIEST, Start, first_start_lines, outside

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
PLAIN = {"name": "s", "topics": "orders", "iceberg.tables": "db.t", "kafka.bootstrap.servers": "localhost:9092"}


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", EARLIEST),
        ("latest", Start("latest")),
        ("2026-11-28T09:30:00Z", Start(1795858200000)),
        ("2026-11-28T10:30:00+01:00", Start(1795858200000)),
        ("1987-01-24T18:17:37.040Z", Start(538510657040)),
        ("1970-01-01T00:00:00Z", Start(0)),
        ("orders:1=900, orders:0=1200", Start(offsets=((A, 1200), (B, 900)))),
        ("a:b:0=1", Start(offsets=((TopicPartition("a:b", 0), 1),))),
    ],
)
def test_a_start_is_a_place_a_time_or_offsets(text: str, start: Start) -> None:
    assert parse({**PLAIN, "iceberg.source.start": text}).keys.start == start


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("newest", "newest is not a time such as 2026-11-28T09:30:00Z"),
        ("2026-11-28T09:30:00", "which time zone"),
        ("2026-11-28", "which time zone"),
        ("1969-12-31T23:59:59.999Z", "is not in the years 1970 to 9999"),
        ("9999-12-31T23:59:59-14:00", "is not in the years 1970 to 9999"),
        ("0001-01-01T00:00:00+14:00", "is not in the years 1970 to 9999"),
        ("orders:0=-1", "orders:0=-1 is not TOPIC:PARTITION=OFFSET, such as orders:0=1200"),
        ("orders=5", "orders=5 is not TOPIC:PARTITION=OFFSET"),
        ("orders:0=1, orders:0=2", "partition 0 of topic 'orders' stands twice"),
        ("=", "= is not TOPIC:PARTITION=OFFSET"),
    ],
)
def test_another_start_is_refused_with_what_it_may_be(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=r"iceberg\.source\.start") as raised:
        parse({**PLAIN, "iceberg.source.start": text})
    assert says in str(raised.value)


def test_the_key_may_stand_by_its_former_name() -> None:
    assert parse({**PLAIN, "iceberg.source.auto-offset-reset": "latest"}).keys.start == Start("latest")


def test_the_key_and_its_former_name_do_not_stand_together() -> None:
    with pytest.raises(ConfigError, match="another name of iceberg"):
        parse({**PLAIN, "iceberg.source.auto-offset-reset": "latest", "iceberg.source.start": "latest"})


def test_a_replay_begins_at_the_first_dead_letter() -> None:
    keys = {
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": "dead",
        "errors.deadletterqueue.context.headers.enable": "true",
    }
    assert parse({**PLAIN, **keys, "iceberg.source.start": "latest"}).replay().keys.start == EARLIEST


@pytest.mark.parametrize(
    ("offsets", "why"),
    [
        (((B, 5),), "partition 1 of topic 'orders' is none that the sink reads"),
        (((A, 2),), "partition 0 of topic 'orders' has the offsets 3 to 9, and 2 is none of them"),
        (((A, 10),), "partition 0 of topic 'orders' has the offsets 3 to 9, and 10 is none of them"),
        (((A, 3),), None),
        (((A, 9),), None),
    ],
)
def test_a_start_names_partitions_and_offsets_that_are_there(
    offsets: tuple[tuple[TopicPartition, int], ...], why: str | None
) -> None:
    assert outside(Start(offsets=offsets), {A: 3}, {A: 9}) == why


def test_a_first_start_says_where_it_reads_from() -> None:
    assert first_start_lines(Start(1795858200000), {A: 4, B: 9}) == [
        "first start, from the first record of 2026-11-28T09:30:00+00:00 on; earlier records are in no table",
        "topic 'orders': partition 0 from 4, 1 from 9",
    ]


def test_a_first_start_does_not_say_so_for_each_of_very_many_topics() -> None:
    lines = first_start_lines(Start("latest"), {TopicPartition(f"t{number}", 0): 1 for number in range(1000)})
    assert len(lines) == 22 and lines[-1] == "980 more topics"
