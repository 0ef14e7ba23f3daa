"""What converters keep of schemas has a bound, and schemas that were refused keep no values."""

from __future__ import annotations

import gc
import json
import weakref
from dataclasses import dataclass
from typing import Any

import pytest
from google.protobuf import descriptor_pb2

from calving.converters.interface import converter
from calving.converters.protobuf import ProtobufConverter
from calving.converters.schema_bounds import SchemaCache
from calving.converters.schemas import BySchema
from harness.registry import SchemaRegistry, framed, serialized
from tests.converters.decoding import decode
from tests.converters.hostile import F


@dataclass
class Thing:
    size: int


def test_what_was_used_longest_ago_goes_first() -> None:
    things = SchemaCache[str, Thing](100)
    for name in "abc":
        things.put(name, Thing(30))
    assert things.get("a") == Thing(30)
    things.put("d", Thing(30))
    assert [name for name in "abcd" if things.get(name) is None] == ["b"]
    things.put("e", Thing(1_000))
    assert [name for name in "abcde" if things.get(name)] == ["e"]


def test_the_error_of_a_schema_keeps_nothing_of_its_block() -> None:
    class Block:
        pass

    def make(key: int) -> Thing:
        raise KeyError("a schema without a type")

    schemas, block = BySchema(make), Block()
    alive = weakref.ref(block)

    def ask(_: Block) -> None:
        with pytest.raises(KeyError, match="without a type"):
            schemas.of(1)

    for _ in range(2):
        ask(block)
    del block
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("form", ["avro", "json-schema", "connect", "protobuf"])
def test_a_converter_drops_schemas_beyond_its_memory(
    registry: SchemaRegistry, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    put = SchemaCache.put

    def counted(self: SchemaCache[object, Thing], key: object, value: Thing) -> None:
        put(self, key, value)
        made.append(self._size)

    monkeypatch.setattr(SchemaCache.__init__, "__defaults__", (300_000,))
    monkeypatch.setattr(SchemaCache, "put", counted)
    values, options = [], {"schema.registry.url": registry.url}
    for k in range(8):
        names = [f"f{k}x{i}" for i in range(40)]
        match form:
            case "avro":
                fields = [{"name": name, "type": ["null", "int"]} for name in names]
                text = json.dumps({"type": "record", "name": "R", "fields": fields})
                values.append(framed(registry.register("s", text, "AVRO"), b"\0" * 40))
            case "json-schema":
                text = json.dumps({"type": "object", "properties": {name: {"type": "integer"} for name in names}})
                values.append(framed(registry.register("s", text, "JSON"), b"{}"))
            case "connect":
                listed = [{"field": name, "type": "int32", "optional": True} for name in names]
                values.append(json.dumps({"schema": {"type": "struct", "fields": listed}, "payload": {}}).encode())
            case "protobuf":
                file = descriptor_pb2.FileDescriptorProto(name="k.proto", package="k", syntax="proto3")
                message = file.message_type.add(name="M")
                for number, name in enumerate(names, 1):
                    message.field.add(name=name, number=number, type=F.TYPE_INT32, label=F.LABEL_OPTIONAL)
                values.append(framed(registry.register("s", serialized(file), "PROTOBUF"), b"\0"))
    reader = converter(
        "json" if form == "connect" else form,
        {"schemas.enable": "true"} if form == "connect" else options,
        is_key=False,
    )
    for _ in range(2):
        for value in values:
            assert not decode(reader, [value]).bad
    assert len(made) > len(values) or form == "connect"  # its spellings keep their schemas, too
    assert max(made) <= 300_000


def test_the_files_of_a_refused_schema_are_read_once(registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    file = descriptor_pb2.FileDescriptorProto(name="k.proto", package="k", syntax="proto3", dependency=["none.proto"])
    file.message_type.add(name="M")
    number = registry.register("s", serialized(file), "PROTOBUF")
    reader = converter("protobuf", {"schema.registry.url": registry.url}, is_key=False)
    tries: list[int] = []
    add = ProtobufConverter._add

    def counted(self: ProtobufConverter, *given: Any) -> int:
        tries.append(1)
        return add(self, *given)

    monkeypatch.setattr(ProtobufConverter, "_add", counted)
    values = [framed(number, bytes([2, 2 * index])) for index in range(20)]
    assert len(decode(reader, values).bad) == 20
    assert len(tries) == 1
