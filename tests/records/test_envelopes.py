"""What becomes of a record with an odd timestamp, key or headers: the same alone and among others."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, TimestamptzType

from calving.model.offsets import TopicPartition
from calving.model.record_path import (
    ConverterSpec,
    Evolution,
    PredicateSpec,
    RouteRule,
    Routing,
    Tolerance,
    TopicConverters,
    TransformSpec,
)
from harness.blocks import MILLIS, RecordEnvelope
from tests.fuzz.sink import TOPIC, Found, Run, Sink, Target

TYPES = {"id": LongType(), "at": LongType(), "ts": TimestamptzType(), "key": StringType()}
TABLE = [Target("db.t", Schema(*(NestedField(i, n, k, required=False) for i, (n, k) in enumerate(TYPES.items(), 1))))]
ONE = Routing((RouteRule("db.t"),))
MICROS, NANOS, YEAR_10000 = MILLIS * 1_000, MILLIS * 1_000_000, 253_402_300_800_000
TIMESTAMPS = [None, 0, -1, -5, -MICROS, MICROS, NANOS, YEAR_10000, YEAR_10000 - 1, 2**63 - 1, -(2**63)]
KEYS = [None, b"", b"\xff\xfe", b"\0", b'{"key": 1}', b'{"key":', b"[" * 5_000, b'{"key": "\\ud800"}', b"k" * 1_000_000]
HEADERS = [
    None,
    [("", None)],
    [("h", b"\xff"), ("h", None), ("h", b"")],
    [(f"h{i}", b"x") for i in range(1_000)],
    [("__connect.errors.topic", b"\xff"), ("__connect.errors.partition", b"9" * 40)],
    [("__connect.errors.topic", b"t"), ("__connect.errors.partition", b"-7"), ("__connect.errors.offset", b"9" * 40)],
]
USUAL = RecordEnvelope(b'{"key": 1}')
ODD = [
    *(USUAL._replace(timestamp_ms=at) for at in TIMESTAMPS),
    *(USUAL._replace(key=key) for key in KEYS),
    *(USUAL._replace(headers=headers) for headers in HEADERS),
]
ENVELOPES = [each for odd in ODD for each in (odd, USUAL)]
RECORDS = [json.dumps({"id": i}).encode() for i in range(len(ENVELOPES))]
JSON_KEYS = {"": TopicConverters(key=ConverterSpec("json", {"schemas.enable": "false"}))}


def step(kind: str, **options: str) -> TransformSpec:
    return TransformSpec("x", kind, {name.replace("_", "."): value for name, value in options.items()})


WITH_HEADER = replace(
    step("InsertField", static_field="key", static_value="v"), predicate=PredicateSpec("HasHeaderKey", {"name": "h"})
)
CHAINS = {
    "none": (),
    "timestamp as a number": (step("InsertField", timestamp_field="at"),),
    "timestamp in a timestamp column": (step("InsertField", timestamp_field="ts"),),
    "metadata": (TransformSpec("x", "KafkaMetadataTransform", {"field_name": "m", "nested": "true"}),),
    "topic of the timestamp": (step("TimestampRouter"),),
    "header": (TransformSpec("x", "InsertHeader", {"header": "h", "value.literal": "v"}),),
    "headers from fields": (
        TransformSpec("x", "HeaderFrom$Value", {"fields": "id", "headers": "h", "operation": "copy"}),
    ),
    "no headers": (TransformSpec("x", "DropHeaders", {"headers": "h"}),),
    "chosen by header": (WITH_HEADER,),
    "key": (TransformSpec("x", "ExtractField$Key", {"field": "key"}),),
    "key in a struct": (TransformSpec("x", "HoistField$Key", {"field": "k"}),),
    "timestamp in the key": (step("InsertField$Key", timestamp_field="at"),),
    "SQL": (step("InsertField", timestamp_field="at"), TransformSpec("y", "Sql", {"query": "SELECT * FROM records"})),
}


@pytest.fixture(scope="module")
def sink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sink]:
    made = Sink(tmp_path_factory.mktemp("sink") / "warehouse")
    yield made
    made.close()


@pytest.mark.parametrize("chain", CHAINS)
def test_a_record_with_an_odd_envelope_becomes_the_same_alone_as_among_others(sink: Sink, chain: str) -> None:
    compare(sink, chain, Tolerance("topic", at_most=10**9))


@pytest.mark.parametrize("chain", ["none", "metadata"])
def test_a_dead_letter_with_an_odd_envelope_is_replayed_the_same_alone_as_among_others(sink: Sink, chain: str) -> None:
    compare(sink, chain, Tolerance("topic", at_most=10**9, replayed=True))


def test_a_dead_letter_without_its_value_is_no_tombstone_when_it_is_replayed(sink: Sink) -> None:
    lacking = USUAL._replace(headers=[("calving-left-out", b'{"value": 200000}')])
    run = Run(ONE, Evolution(evolve=True), JSON_KEYS, tolerance=Tolerance("topic", at_most=10**9, replayed=True))
    found = sink.take(run, TABLE, [None, None, RECORDS[0]], [lacking, USUAL, USUAL])
    assert (found.dead, dict(found.filtered)) == ({0: "VALUE_CONVERTER"}, {"tombstone": 1})
    assert "its header calving-left-out names the record" in found.reasons[0]


@pytest.mark.parametrize("replayed", [True, False])
def test_only_a_dead_letter_can_say_what_it_lacks(sink: Sink, replayed: bool) -> None:
    forged = USUAL._replace(headers=[("calving-left-out", b'{"value": 200000}')])
    tolerance = Tolerance("topic", at_most=10**9, replayed=replayed)
    found = sink.take(Run(ONE, Evolution(evolve=True), JSON_KEYS, tolerance=tolerance), TABLE, [b"{"], [forged])
    assert found.left_out == {0: {"value": 200000} if replayed else {}}


def rows(found: Found) -> Counter[str]:
    """Its rows without places, because a record in a partition of its own has another one. Nor is a column that only some records need
    there without them.
    """
    return Counter(re.sub(r"(offset|partition): \d+|\w+: None", "", str(row)) for row in found.rows["db.t"].elements())


def compare(sink: Sink, chain: str, tolerance: Tolerance) -> None:
    size = Random(chain).choice([7, 8_000])
    run = Run(ONE, Evolution(evolve=True), JSON_KEYS, CHAINS[chain], tolerance, block_records=size)
    together = sink.take(run, TABLE, RECORDS, ENVELOPES)
    each = tuple(TopicPartition(TOPIC, i) for i in range(len(RECORDS)))
    apart = sink.take(replace(run, partitions=each), TABLE, RECORDS, ENVELOPES)
    assert (together.error, apart.error) == (None, None)
    assert together.dead == apart.dead
    assert not any(i % 2 for i in together.dead), "a usual record is never bad"
    assert rows(together) == rows(apart)
    assert not together.changed


def test_a_timestamp_that_no_column_can_hold_makes_its_record_bad_where_it_is_wanted(sink: Sink) -> None:
    odd = [USUAL._replace(timestamp_ms=at) for at in (MICROS, MILLIS, NANOS, None)]
    found = sink.take(Run(ONE, transforms=CHAINS["timestamp in a timestamp column"]), TABLE, RECORDS[:4], odd)
    assert 2 in found.dead and not {1, 3} & found.dead.keys()
    found = sink.take(Run(ONE, transforms=CHAINS["timestamp as a number"]), TABLE, RECORDS[:4], odd)
    assert not found.dead


def test_only_moments_count_for_the_latest_timestamp(sink: Sink) -> None:
    odd = [USUAL._replace(timestamp_ms=at) for at in (*TIMESTAMPS, MILLIS, *TIMESTAMPS)]
    found = sink.take(Run(ONE), TABLE, RECORDS[: len(odd)], odd)
    assert found.latest_us == {TopicPartition(TOPIC, 0): (YEAR_10000 - 1) * 1_000}
    found = sink.take(Run(ONE), TABLE, RECORDS[:1], [USUAL._replace(timestamp_ms=MICROS)])
    assert found.latest_us == {}


def test_a_dead_letter_table_takes_a_letter_with_any_envelope(sink: Sink) -> None:
    bad = [b"no JSON"] * len(ENVELOPES)
    tolerance = Tolerance("table", "db.dead", at_most=10**9)
    found = sink.take(Run(ONE, Evolution(create=True), tolerance=tolerance), TABLE, bad, ENVELOPES)
    assert found.error is None
    assert sum(found.rows["db.dead"].values()) == len(ENVELOPES)
