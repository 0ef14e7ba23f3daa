"""A schema may describe more than fits into memory: its records are bad, at once, and cost little."""

from __future__ import annotations

import json
import math
import time
import tracemalloc
from typing import Any
from unittest.mock import patch

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from calving.converters import schema_bounds
from calving.converters.interface import Converter, converter
from calving.model.record_path import Limits
from harness.registry import SchemaRegistry, framed, serialized
from tests.converters.decoding import decode
from tests.converters.hostile import Hostile, hostile

SECONDS, BYTES = 0.2, 50_000_000
"""Bounds on the first record of a schema: seconds of CPU, of the fastest of several tries, because a busy machine makes
all of them slow but seldom each.
"""
TRIES = 10


def made(registry: SchemaRegistry, schema: Hostile) -> tuple[Converter, bytes]:
    """A converter, and a record of the schema."""
    if schema.converter == "connect":
        return converter(
            "json", {"schemas.enable": "true"}, is_key=False
        ), b'{"schema":%s,"payload":{}}' % schema.text.encode()
    number = registry.register("s", schema.text, schema.kind)
    options = {"schema.registry.url": registry.url}
    return converter(schema.converter, options, is_key=False), framed(
        number, b"\0{}" if schema.kind == "PROTOBUF" else b"{}"
    )


@pytest.mark.parametrize("name", hostile())
def test_a_record_of_a_hostile_schema_is_bad_at_once(registry: SchemaRegistry, name: str) -> None:
    schema = hostile()[name]
    fastest = math.inf
    for _ in range(TRIES):
        reader, value = made(registry, schema)
        began = time.process_time()
        found = decode(reader, [value, value])
        fastest = min(fastest, time.process_time() - began)
        assert schema.refused in found.bad[0] and found.bad[0] == found.bad[1]
        assert len(found.bad[0]) < 2_100
        if fastest < SECONDS:
            return
    assert fastest < SECONDS


@pytest.mark.parametrize(
    "name",
    [
        "avro records 22",
        "avro enum of many fields",
        "json-schema references 22",
        "protobuf messages 22",
        "connect wide",
        "avro map of records",
        "avro namespace",
        "json-schema default",
        "json-schema same branches",
        "json-schema same conditions",
        "json-schema tree of branches",
        "protobuf messages unused",
    ],
)
def test_a_record_of_a_hostile_schema_takes_little_memory(registry: SchemaRegistry, name: str) -> None:
    reader, value = made(registry, hostile()[name])
    tracemalloc.start()
    try:
        assert decode(reader, [value]).bad
        assert tracemalloc.get_traced_memory()[1] < BYTES
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", ["AVRO", "JSON", "PROTOBUF"])
def test_a_record_whose_schema_refers_to_a_long_chain_of_others_is_bad(registry: SchemaRegistry, kind: str) -> None:
    number, references = 0, list[dict[str, Any]]()
    for i in range(60):
        message = FileDescriptorProto(name=f"f{i}")
        message.message_type.add(name=f"R{i}").field.add(name="a", number=1, type=5, label=1)
        text = {
            "AVRO": json.dumps({"type": "record", "name": f"r{i}", "fields": [{"name": "a", "type": "int"}]}),
            "JSON": json.dumps({"type": "object", "properties": {"a": {"type": "integer"}}}),
            "PROTOBUF": serialized(message),
        }[kind]
        number = registry.register(f"s{i}", text, kind, references)
        references = [{"name": f"f{i}", "subject": f"s{i}", "version": 1}]
    name = {"AVRO": "avro", "JSON": "json-schema", "PROTOBUF": "protobuf"}[kind]
    reader = converter(name, {"schema.registry.url": registry.url}, is_key=False)
    assert "more than 50 within each other" in decode(reader, [framed(number, b"\0\0")]).bad[0]


@pytest.mark.parametrize("name", ["avro wide", "json-schema default", "protobuf wide", "connect wide"])
def test_a_refused_schema_is_refused_again_without_another_try(registry: SchemaRegistry, name: str) -> None:
    reader, value = made(registry, hostile()[name])
    first = decode(reader, [value])
    with patch.object(schema_bounds.Extent, "__init__", side_effect=AssertionError("the schema is read again")):
        assert decode(reader, [value] * 1_000).bad == dict.fromkeys(range(1000), first.bad[0])


def test_an_enum_of_many_symbols_is_read_once_for_all_fields_of_its_type(registry: SchemaRegistry) -> None:
    symbols = [f"s{i}" for i in range(40_000)]
    fields = [{"name": "f0", "type": {"type": "enum", "name": "E", "symbols": symbols}}]
    fields += [{"name": f"f{i}", "type": "E"} for i in range(1, 4_000)]
    file = FileDescriptorProto(name="e.proto", syntax="proto3")
    names = file.enum_type.add(name="E")
    for number, name in enumerate(symbols):
        names.value.add(name=name, number=number)
    message = file.message_type.add(name="M")
    for number in range(1, 4_000):
        message.field.add(name=f"f{number}", number=number, type=14, label=1, type_name=".E")
    for name, kind, text, body in (
        ("avro", "AVRO", json.dumps({"type": "record", "name": "R", "fields": fields}), bytes(4_000)),
        ("protobuf", "PROTOBUF", serialized(file), b"\0"),
    ):
        reader = converter(name, {"schema.registry.url": registry.url}, is_key=False)
        began = time.process_time()
        assert not decode(reader, [framed(registry.register(name, text, kind), body)]).bad
        assert time.process_time() - began < 2.0


def test_a_value_that_many_branches_have_to_look_at_is_bad(registry: SchemaRegistry) -> None:
    branches = [{"type": "array", "items": {"type": "integer"}}] * 500
    number = registry.register("s", json.dumps({"properties": {"a": {"oneOf": branches}}}), "JSON")
    options, value = {"schema.registry.url": registry.url}, framed(number, b'{"a":[%s0]}' % (b"0," * 2_000))
    reader = converter("json-schema", options, is_key=False, limits=Limits(cells=100_000))
    assert "iceberg.limits.cells" in decode(reader, [value]).bad[0]
    assert not decode(reader, [framed(number, b'{"a":[0]}')]).bad


def test_a_long_list_of_values_is_read_once_for_all_properties_that_refer_to_it(registry: SchemaRegistry) -> None:
    letter = {"enum": [f"letter {n}" for n in range(20_000)]}
    rows = {f"row {n}": {"type": "object", "properties": {"a": {"$ref": "#/$defs/letter"}}} for n in range(2_000)}
    number = registry.register(
        "s", json.dumps({"type": "object", "properties": rows, "$defs": {"letter": letter}}), "JSON"
    )
    reader = converter("json-schema", {"schema.registry.url": registry.url}, is_key=False)
    began = time.process_time()
    assert not decode(reader, [framed(number, b"{}")]).bad
    assert time.process_time() - began < 2.0


def test_ids_within_ids_take_little_memory(registry: SchemaRegistry) -> None:
    schema: dict[str, Any] = {"$ref": "nowhere"}
    for n in range(300):
        schema = {"$id": f"{n}{'a' * 900}/", "properties": {"a": schema}}
    number = registry.register("s", json.dumps({"properties": {"b": {"$ref": "nowhere"}}, "$defs": schema}), "JSON")
    reader = converter("json-schema", {"schema.registry.url": registry.url}, is_key=False)
    tracemalloc.start()
    try:
        assert decode(reader, [framed(number, b"{}")]).bad
        assert tracemalloc.get_traced_memory()[1] < BYTES // 2
    finally:
        tracemalloc.stop()
