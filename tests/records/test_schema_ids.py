"""Records whose producer writes the ids of schemas into headers."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, NestedField, StringType

from calving.model.record_path import (
    ConverterSpec,
    RecordPath,
    RouteRule,
    Routing,
    TopicConverters,
    TransformSpec,
)
from calving.tasks.pipeline import Pipeline
from calving.tasks.selection import Timings
from calving.tasks.spec import TaskSpec
from harness.blocks import RecordEnvelope
from tests.fuzz.encoding import schema_id
from tests.fuzz.sink import Run, Sink, Target

TEXT = '{"type":"record","name":"r","fields":[{"name":"a","type":"int"}]}'
FRAMED = struct.pack(">bI", 0, schema_id(TEXT)) + b"\2"
IN_HEADER = b"\1" + bytes(16)
ONE = Routing((RouteRule("db.t"),))
COLUMNS = NestedField(1, "a", IntegerType(), required=False), NestedField(2, "k", StringType(), required=False)
TABLE = [Target("db.t", Schema(*COLUMNS))]
AVRO, JSON = ConverterSpec("avro", {"schema.registry.url": "http://localhost:1"}), ConverterSpec("json")


def enveloped(header: str, key: bytes = b"key", value: bytes | None = IN_HEADER) -> RecordEnvelope:
    return RecordEnvelope(key, headers=[(header, value)])


@pytest.fixture
def sink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sink]:
    made = Sink(tmp_path_factory.mktemp("sink") / "warehouse")
    yield made
    made.close()


def test_a_value_whose_schema_id_is_in_a_header_is_not_decoded_with_the_id_that_it_seems_to_begin_with(
    sink: Sink,
) -> None:
    envelopes = [
        enveloped("__value_schema_id"),
        enveloped("__key_schema_id"),
        enveloped("__value_schema_id", value=None),
    ]
    found = sink.take(Run(ONE, converters=sink.use("avro", [TEXT])), TABLE, [FRAMED] * 3, envelopes)
    assert found.dead == {0: "VALUE_CONVERTER"}
    assert "the id of its schema is in the header __value_schema_id" in found.reasons[0]
    assert sum(found.rows["db.t"].values()) == 2


def test_a_key_whose_schema_id_is_in_a_header_makes_its_record_bad_where_keys_are_decoded(sink: Sink) -> None:
    key = sink.use("avro", [TEXT])[""].value
    converters = {"": TopicConverters(key=key, value=JSON)}
    steps = (TransformSpec("key", "org.apache.kafka.connect.transforms.HoistField$Key", {"field": "k"}),)
    envelopes = [enveloped("__key_schema_id", FRAMED), enveloped("__value_schema_id", FRAMED)]
    whole = sink.take(Run(ONE, converters=converters, transforms=steps), TABLE, [b'{"a":1}'] * 2, envelopes)
    assert whole.dead == {0: "KEY_CONVERTER"}
    assert sink.take(Run(ONE, converters=converters), TABLE, [b'{"a":1}'] * 2, envelopes).dead == {}


@pytest.mark.parametrize("spec", [JSON, ConverterSpec("avro", {"schema": TEXT})], ids=["json", "a fixed schema"])
def test_a_header_with_a_schema_id_means_nothing_to_a_converter_without_a_registry(
    sink: Sink, spec: ConverterSpec
) -> None:
    raw = b'{"a":1}' if spec == JSON else b"\2"
    run = Run(ONE, converters={"": TopicConverters(value=spec)})
    found = sink.take(run, TABLE, [raw], [enveloped("__value_schema_id")])
    assert [*found.rows["db.t"]] == [("a: 1", "k: None")]


@pytest.mark.parametrize(("value", "wanted"), [(AVRO, True), (JSON, False)])
def test_headers_are_read_where_they_may_have_a_schema_id(value: ConverterSpec, wanted: bool) -> None:
    path = RecordPath({}, ONE, converters={"": TopicConverters(value=value)})
    assert Pipeline(TaskSpec(0, (), path, {}, {}), Timings()).needs_headers is wanted
