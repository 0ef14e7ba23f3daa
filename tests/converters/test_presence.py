"""Which fields values with a schema lack, where their absence matters, as docs/reference/types.md has it."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2

from calving.converters.interface import Converter, converter
from calving.converters.native import SWITCH
from calving.records.fields import Projection
from harness.registry import SchemaRegistry, framed, serialized
from tests.converters.test_envelope import envelope
from tests.converters.test_protobuf import class_of, file_of

PRESENCE = Projection(presence=frozenset({"a", "x"}))
F = descriptor_pb2.FieldDescriptorProto


def found(made: Converter, values: list[bytes], projection: Projection | None = PRESENCE) -> dict[int, Any]:
    """The fields that each value has, by its place."""
    fields: dict[int, Any] = {}
    for part in made.decode(values, projection).values:
        assert isinstance(part.data, pa.Array)
        fields |= dict(zip(part.index, part.data.to_pylist(), strict=True))
    return fields


def _json_schema(registry: SchemaRegistry, records: list[Any]) -> tuple[Converter, list[bytes]]:
    inner = {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}}}
    properties = {
        "a": {"type": ["null", "integer"]},
        "c": {"type": "integer"},
        "d": {"type": "integer", "default": 3},
        "s": inner,
    }
    number = registry.register("t-value", json.dumps({"type": "object", "properties": properties}), "JSON")
    made = converter("json-schema", {"schema.registry.url": registry.url}, is_key=False)
    return made, [framed(number, json.dumps(record).encode()) for record in records]


def test_a_property_that_an_object_lacks_is_missing_and_a_null_is_not(registry: SchemaRegistry) -> None:
    records: list[Any] = [{"s": {"y": 1}, "d": 4}, {"a": None, "s": {"x": 2}}, {"a": 1, "c": 2}]
    assert found(*_json_schema(registry, records)) == {
        0: {"c": None, "d": 4, "s": {"y": 1}},
        1: {"a": None, "c": None, "d": 3, "s": {"x": 2, "y": None}},
        2: {"a": 1, "c": 2, "d": 3, "s": None},
    }


def test_without_a_question_objects_of_one_schema_stay_one_column(registry: SchemaRegistry) -> None:
    made, values = _json_schema(registry, [{"c": 1}, {"a": 1}])
    assert len(made.decode(values, Projection()).values) == 1


@pytest.mark.parametrize("native", ["1", "0"])
def test_a_field_with_presence_and_no_value_is_missing_in_protobuf(
    registry: SchemaRegistry, native: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SWITCH, native)

    def build(file: Any) -> None:
        message = file.message_type.add(name="E")
        message.oneof_decl.add(name="_a")
        message.field.add(name="a", number=1, type=F.TYPE_INT64, label=1, oneof_index=0, proto3_optional=True)
        message.field.add(name="x", number=2, type=F.TYPE_INT64, label=1)
        message.field.add(name="c", number=3, type=F.TYPE_MESSAGE, label=1, type_name=".t.E.C")
        message.nested_type.add(name="C").field.add(name="y", number=1, type=F.TYPE_INT64, label=1)

    file = file_of(build)
    number = registry.register("t-value", serialized(file), "PROTOBUF")
    made = converter("protobuf", {"schema.registry.url": registry.url}, is_key=False)
    of = class_of(file, "t.E")
    bodies = [of(a=1), of(x=2), of(a=0, c={"y": 3})]
    assert found(made, [framed(number, b"\x00" + body.SerializeToString()) for body in bodies]) == {
        0: {"a": 1, "x": 0, "c": None},
        1: {"x": 2, "c": None},
        2: {"a": 0, "x": 0, "c": {"y": 3}},
    }


@pytest.mark.parametrize("native", ["1", "0"])
def test_a_field_of_the_schema_is_there_in_a_connect_envelope(native: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, native)
    fields = [{"field": "a", "type": "int64", "optional": True}, {"field": "b", "type": "int64", "optional": True}]
    made = converter("json", {"schemas.enable": "true"}, is_key=False)
    values = [envelope(fields, {"b": 1}), envelope(fields, {"a": None}), envelope(fields[1:], {"b": 2})]
    assert found(made, values) == {0: {"a": None, "b": 1}, 1: {"a": None, "b": None}, 2: {"b": 2}}
