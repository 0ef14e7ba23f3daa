"""Records, and schemas that are valid in themselves, that would stop a sink, hold it up, or lose values."""

from __future__ import annotations

import json
import time
import tracemalloc
from io import BytesIO
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2

from calving.converters.interface import converter
from calving.converters.native import SWITCH
from calving.model.dead_letters import Stage
from calving.model.record_path import Limits
from calving.records.cells import Cells
from calving.records.values import RecordError
from harness.registry import SchemaRegistry, framed, serialized
from tests.converters.decoding import decode
from tests.converters.hostile import F

Json = Any


def envelope(schema: Json, payload: Json) -> bytes:
    return json.dumps({"schema": schema, "payload": payload}).encode()


def connect(limits: Limits | None = None) -> Any:
    return converter("json", {"schemas.enable": "true"}, is_key=False, limits=limits)


@pytest.fixture(params=["1", "0"], ids=["with Rust", "without"], autouse=True)
def native(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, request.param)


def test_a_schema_with_two_fields_of_one_name_makes_bad_records() -> None:
    field = {"field": "a", "type": "boolean", "optional": True}
    value = envelope({"type": "struct", "fields": [field, field]}, {"a": True})
    found = decode(connect(), [value] * 4)
    assert all("two fields have the name 'a'" in reason for reason in found.bad.values())
    assert len(found.bad) == 4


def test_decimals_that_no_table_can_have_make_bad_records(registry: SchemaRegistry) -> None:
    """Oracle's NUMBER without a scale, as Kafka Connect's source for JDBC registers it."""
    reason = "a decimal with 127 digits after the point"
    name, scale = "org.apache.kafka.connect.data.Decimal", {"scale": "127"}
    column = {"field": "a", "type": "bytes", "name": name, "parameters": scale}
    assert reason in decode(connect(), [envelope({"type": "struct", "fields": [column]}, {"a": "BNI="})]).bad[0]
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 127}
    avro = {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]}
    number = {"type": "number", "connect.type": "bytes", "title": name, "connect.parameters": scale}
    for format, schema in (("avro", avro), ("json-schema", {"type": "object", "properties": {"a": number}})):
        id = registry.register(format, json.dumps(schema), "JSON" if format == "json-schema" else "AVRO")
        made = converter(format, {"schema.registry.url": registry.url}, is_key=False)
        assert reason in decode(made, [framed(id, b"\x04\x04\xd2")]).bad[0]


def test_an_any_is_read_whatever_was_read_before(registry: SchemaRegistry) -> None:
    """A type that is not Protobuf's own keeps its bytes."""
    from google.protobuf import any_pb2, wrappers_pb2
    from google.type import money_pb2

    file = descriptor_pb2.FileDescriptorProto(name="v", package="h", syntax="proto3")
    file.dependency.append("google/protobuf/any.proto")
    file.message_type.add(name="V").field.add(
        name="a", number=1, type=F.TYPE_MESSAGE, type_name=".google.protobuf.Any", label=F.LABEL_OPTIONAL
    )
    number = registry.register("any", serialized(file), "PROTOBUF")
    made = converter("protobuf", {"schema.registry.url": registry.url}, is_key=False)
    money, text, empty = any_pb2.Any(), any_pb2.Any(), any_pb2.Any()
    money.Pack(money_pb2.Money(units=1))
    text.Pack(wrappers_pb2.StringValue(value="x"))
    bodies = [each.SerializeToString() for each in (money, text, empty)]
    found = decode(made, [framed(number, b"\0\x0a" + bytes([len(body)]) + body) for body in bodies])
    assert not found.bad
    assert [value["a"] for value in found.values.values()] == [
        {"@type": "type.googleapis.com/google.type.Money", "value": "EAE="},
        {"@type": "type.googleapis.com/google.protobuf.StringValue", "value": "x"},
        {},
    ]


def nested_connect(levels: int) -> bytes:
    schema: Json = {"type": "int32", "optional": False}
    payload: Json = "x"
    for _ in range(levels):
        schema = {"type": "struct", "fields": [{**schema, "field": "a"}], "optional": True}
        payload = {"a": payload}
    return envelope(schema, payload)


def test_a_misfit_deep_in_structs_is_found_in_one_pass(registry: SchemaRegistry) -> None:
    """Each level that reads its fields again to name the wrong one would double the time."""
    levels = 28
    schema: Json = {"type": "integer"}
    payload: Json = "x"
    for _ in range(levels):
        schema, payload = {"type": "object", "properties": {"a": schema}}, {"a": payload}
    number = registry.register("s", json.dumps(schema), "JSON")
    began = time.process_time()
    for made, value in (
        (
            converter("json-schema", {"schema.registry.url": registry.url}, is_key=False),
            framed(number, json.dumps(payload).encode()),
        ),
        (connect(), nested_connect(levels)),
    ):
        (reason,) = decode(made, [value]).bad.values()
        assert ".".join(["a"] * levels) in reason
    assert time.process_time() - began < 2


def test_a_misfit_deep_in_records_of_avro_is_found_in_one_pass() -> None:
    levels = 28
    schema: Json = {"type": "int", "logicalType": "time-millis"}
    for level in range(levels):
        schema = {"type": "record", "name": f"R{level}", "fields": [{"name": "a", "type": schema}]}
    made = converter("avro", {"schema": json.dumps(schema)}, is_key=False)
    began = time.process_time()
    assert list(decode(made, [b"\x01"]).bad) == [0]
    assert time.process_time() - began < 2


def test_a_reason_with_half_a_pair_of_surrogates_can_be_written() -> None:
    error = RecordError(0, Stage.VALUE_CONVERTER, "ValueError", "'\ud800' is no type")
    assert error.reason == "'\\ud800' is no type"


@pytest.mark.parametrize("marked", ["my.calving.branch", "calving.branch"])
def test_no_schema_passes_for_one_whose_unions_are_wrapped_already(marked: str) -> None:
    first = {"type": "record", "name": marked, "fields": [{"name": "x", "type": "int"}], "calving.branch": True}
    second = {"type": "record", "name": "B", "fields": [{"name": "x", "type": "int"}]}
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "f", "type": first},
            {"name": "u", "type": [marked, second]},
            {"name": "v", "type": [first | {"name": "C"}, second | {"name": "D"}]},
        ],
    }
    body = BytesIO()
    parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))
    fastavro.schemaless_writer(body, parsed, {"f": {"x": 1}, "u": ("B", {"x": 2}), "v": ("C", {"x": 3})})
    made = converter("avro", {"schema": json.dumps(schema)}, is_key=False)
    row = decode(made, [body.getvalue()]).values[0]
    assert ({"x": 2} in row["u"].values(), {"x": 3} in row["v"].values()) == (True, True)


@pytest.mark.parametrize("size", [-1, "8", None, 1.5])
def test_a_fixed_type_without_a_length_makes_bad_records(size: Any, registry: SchemaRegistry) -> None:
    items = {"type": "fixed", "name": "X", "size": size}
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "array", "items": items}}]}
    number = registry.register("s", json.dumps(schema), "AVRO")
    made = converter("avro", {"schema.registry.url": registry.url}, is_key=False)
    began = time.process_time()
    assert list(decode(made, [framed(number, b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f")]).bad) == [0]
    assert time.process_time() - began < 1


@pytest.mark.parametrize("kind", ["AVRO", "PROTOBUF"])
def test_a_symbol_that_a_byte_names_is_short(kind: str, registry: SchemaRegistry) -> None:
    text = json.dumps(
        {
            "type": "record",
            "name": "R",
            "fields": [{"name": "a", "type": {"type": "enum", "name": "E", "symbols": ["x" * 256]}}],
        }
    )
    if kind == "PROTOBUF":
        file = descriptor_pb2.FileDescriptorProto(name="e.proto", package="e", syntax="proto3")
        file.enum_type.add(name="E").value.add(name="x" * 256, number=0)
        file.message_type.add(name="M").field.add(name="a", number=1, type=F.TYPE_ENUM, type_name=".e.E", label=1)
        text = serialized(file)
    number = registry.register("s", text, kind)
    made = converter(kind.lower(), {"schema.registry.url": registry.url}, is_key=False)
    assert "a symbol of an enum has 256 characters, more than 255" in decode(made, [framed(number, b"\0\0")]).bad[0]


def test_a_default_counts_each_time_that_it_takes_the_place_of_a_null() -> None:
    text = {"type": "string", "optional": True, "default": "x" * 80_000}
    items = {"type": "struct", "fields": [{**text, "field": "t"}]}
    schema = {"type": "struct", "fields": [{"field": "v", "type": "array", "items": items}]}
    made = connect(Limits(cells=100_000))
    assert not decode(made, [envelope(schema, {"v": [{}] * 9})]).bad
    assert "iceberg.limits.cells = 100000" in decode(made, [envelope(schema, {"v": [{}] * 11})]).bad[0]


def test_a_default_of_wide_elements_counts_their_columns() -> None:
    columns = [{"field": f"f{i}", "type": "int64", "optional": True} for i in range(200)]
    wide = {"type": "array", "items": {"type": "struct", "optional": True, "fields": columns}, "optional": True}
    items = {"type": "struct", "fields": [{**wide, "default": [{}] * 50, "field": "d"}]}
    schema = {"type": "struct", "fields": [{"field": "v", "type": "array", "items": items}]}
    made = connect(Limits(cells=100_000))
    assert not decode(made, [envelope(schema, {"v": [{}] * 8})]).bad
    assert "iceberg.limits.cells = 100000" in decode(made, [envelope(schema, {"v": [{}] * 12})]).bad[0]


def test_two_parts_of_all_of_may_refer_to_the_same_schema(registry: SchemaRegistry) -> None:
    base = {"type": "object", "properties": {"x": {"type": "integer"}}}
    both = {name: {"allOf": [{"$ref": "#/$defs/base"}, {"properties": {name: {"type": "integer"}}}]} for name in "ab"}
    schema = {"$defs": {"base": base, **both}, "allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}]}
    number = registry.register("s", json.dumps(schema), "JSON")
    made = converter("json-schema", {"schema.registry.url": registry.url}, is_key=False)
    found = decode(made, [framed(number, b'{"x":1,"a":2,"b":3}')])
    assert {name: value for name, value in found.values[0].items() if name in "xab"} == {"x": 1, "a": 2, "b": 3}


def test_a_number_of_protobuf_that_does_not_end_is_left_to_the_parser() -> None:
    from calving.converters.protobuf_bytes import FieldCells, count

    began = time.process_time()
    count(b"\xff" * 900_000, {1: FieldCells(200, {})}, Cells(5_000_000))
    assert time.process_time() - began < 0.5


@pytest.mark.parametrize("kind", ["array", "map"])
def test_records_of_nulls_are_counted_before_objects_are_made_of_them(kind: str) -> None:
    inner = [{"type": "record", "name": f"X{i}", "fields": [{"name": "n", "type": "null"}]} for i in range(8)]
    fields = [{"name": f"e{i}", "type": one} for i, one in enumerate(["boolean", *inner])]
    element = {"type": "record", "name": "E", "fields": fields}
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": {"type": kind, "items": element, "values": element}}],
    }
    reader = converter("avro", {"schema": json.dumps(schema)}, is_key=False)
    body = {"array": b"\xc0\x9a\x0c" + bytes(100_000) + b"\0", "map": b"\xc0\x9a\x0c" + bytes(200_000) + b"\0"}[kind]
    tracemalloc.start()
    try:
        assert "iceberg.limits.cells" in decode(reader, [body]).bad[0]
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()
    few = {"array": b"\x04" + bytes(2) + b"\0", "map": b"\x04" + b"\x02k\0\x02l\0" + b"\0"}[kind]
    assert not decode(reader, [few]).bad
