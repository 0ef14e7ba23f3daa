"""Every converter keeps the contract of converters."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from calving.converters.interface import CONVERTERS
from calving.testing import ConverterContract, ConverterSpec
from harness.registry import SchemaRegistry, avro, framed, serialized
from tests.converters.test_envelope import DATA, envelope
from tests.converters.test_json_schema import schema_of
from tests.converters.test_protobuf import IMPORTS, class_of, file_of, rich

Given = tuple[ConverterSpec, Sequence[bytes], Sequence[bytes]]
"""The converter, values, and those that decode to null."""

OBJECTS: list[Any] = [
    {"id": 1, "text": "a"},
    {"id": 2, "text": "é😀", "more": {"x": 1.5, "y": None}},
    {"id": 2**62, "text": None},
    {"text": "order", "id": 3},
    {"id": 4.0, "tags": [1, 2]},
    {"id": 5, "tags": ["a", 1, None]},
    {"id": 10**30, "d": 0.1},
    {},
]


def lines(*values: Any) -> list[bytes]:
    return [json.dumps(value).encode() for value in values]


def of_json(_: SchemaRegistry) -> Given:
    bare = (b"1", b'"text"', b"[]", b"-0.0", b"1e300", b'{"d":0.10000000000000000001}')
    return ConverterSpec("json"), [*lines(*OBJECTS), *bare], [b"null"]


def of_connect(_: SchemaRegistry) -> Given:
    fields: list[dict[str, Any]] = [
        {"field": "id", "type": "int64"},
        {"field": "text", "type": "string", "optional": True},
        {"field": "at", "type": "int64", "name": DATA + "Timestamp", "optional": True},
        {"field": "x", "type": "float", "default": 1.5},
    ]
    payloads = [{"id": i, "text": f"text {i}", "at": 1_704_164_645_678 + i, "x": i / 4} for i in range(5)]
    values = [envelope(fields, payload) for payload in (*payloads, {"id": -(2**63)}, {"id": 1, "x": "NaN"})]
    other = envelope([{"field": "id", "type": "string"}], {"id": "another schema"})
    spec = ConverterSpec("org.apache.kafka.connect.json.JsonConverter")
    nothing = lines({"schema": {"type": "string", "optional": True}, "payload": None})
    return spec, [*values, other], nothing


def of_avro(registry: SchemaRegistry) -> Given:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "id", "type": "int"},
            {"name": "v", "type": ["null", "long", "string"]},
            {"name": "tags", "type": {"type": "array", "items": "double"}},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        ],
    }
    number, bare = registry.register("t-value", json.dumps(schema)), registry.register("u-value", '"long"')
    values = [
        avro(number, schema, {"id": i, "v": v, "tags": [0.5] * i, "at": 1_704_164_645_678})
        for i, v in enumerate((None, 2**40, "text", "", -1))
    ]
    nothing = registry.register("n-value", '["null", "long"]')
    spec = ConverterSpec("avro", {"schema.registry.url": registry.url})
    return spec, [*values, avro(bare, "long", 7)], [framed(nothing, b"\x00")]


def of_protobuf(registry: SchemaRegistry) -> Given:
    file = file_of(rich, *IMPORTS)
    number, message = registry.register("t-value", serialized(file), "PROTOBUF"), class_of(file, "t.E")
    given: list[dict[str, Any]] = [
        {},
        {"id": 7, "text": "é", "raw": b"\xff", "big": 2**64 - 1},
        {"color": 1, "tags": ["x", ""], "attrs": {"k": 5}},
        {"b": "chosen"},
        {"a": 3, "inner": {"x": float("nan")}},
    ]
    values = [framed(number, b"\x00" + message(**fields).SerializeToString()) for fields in given]
    return ConverterSpec("protobuf", {"schema.registry.url": registry.url}), values, []


def of_json_schema(registry: SchemaRegistry) -> Given:
    schema = schema_of(
        ("id",),
        id={"type": "integer"},
        text={"type": "string"},
        x={"type": "number", "connect.type": "float32"},
        free={},
    )
    number = registry.register("t-value", json.dumps(schema), "JSON")
    given = [{"id": 1}, {"id": 2, "text": "é", "x": 1.5}, {"id": 3, "free": [1, {"a": None}]}, {"id": 4, "other": 1}]
    values = [framed(number, value) for value in lines(*given)]
    return ConverterSpec("json-schema", {"schema.registry.url": registry.url}), values, []


def packed(name: str, form: str, *numbers: float) -> Callable[[SchemaRegistry], Given]:
    return lambda _: (ConverterSpec(name), [struct.pack(form, number) for number in numbers], [])


GIVEN: dict[str, Callable[[SchemaRegistry], Given]] = {
    "json": of_json,
    "the envelope": of_connect,
    "avro": of_avro,
    "protobuf": of_protobuf,
    "json-schema": of_json_schema,
    "string": lambda _: (ConverterSpec("string"), [b"", b"a", "é😀".encode()], []),
    "bytes": lambda _: (ConverterSpec("bytes"), [b"", b"a", b"\xff\x00"], []),
    "short": packed("short", ">h", 0, -1, 2**15 - 1),
    "integer": packed("integer", ">i", 0, -1, 2**31 - 1),
    "long": packed("long", ">q", 0, -1, 2**63 - 1),
    "float": packed("float", ">f", 0.0, -0.0, 1.5, float("nan"), float("inf")),
    "double": packed("double", ">d", 0.0, -0.0, 1.5, float("nan"), float("inf")),
    "boolean": packed("boolean", ">b", 0, 1),
}


def test_every_converter_is_among_them() -> None:
    assert GIVEN.keys() - {"the envelope"} == CONVERTERS.own.keys()


class TestOurs(ConverterContract):
    @pytest.fixture(params=GIVEN)
    def given(self, request: pytest.FixtureRequest, registry: SchemaRegistry) -> Given:
        return GIVEN[request.param](registry)

    @pytest.fixture
    def spec(self, given: Given) -> ConverterSpec:
        return given[0]

    @pytest.fixture
    def values(self, given: Given) -> Sequence[bytes]:
        return given[1]

    @pytest.fixture
    def nulls(self, given: Given) -> Sequence[bytes]:
        return given[2]
