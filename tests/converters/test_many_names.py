"""What has many names finds each of them at once: a record cannot make a decoder go through all of them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2

from calving.converters.interface import converter
from calving.converters.native import Field, absence, json_decoder
from harness.registry import SchemaRegistry, framed, serialized
from tests.converters.decoding import decode
from tests.converters.hostile import F

pytestmark = pytest.mark.skipif(absence() is not None, reason="the decoder in Rust is not installed")
SECONDS = 1.0
"""Twenty times as many as each takes on an idle core."""


@contextmanager
def quick() -> Iterator[None]:
    began = time.process_time()
    yield
    assert time.process_time() - began < SECONDS


def test_the_names_of_a_large_enum_are_found_at_once(registry: SchemaRegistry) -> None:
    file = descriptor_pb2.FileDescriptorProto(name="n.proto", package="n", syntax="proto3")
    enum = file.enum_type.add(name="E")
    enum.value.add(name="Z", number=0)
    for i in range(40_000):
        enum.value.add(name=f"A{i}", number=i + 1)
    file.message_type.add(name="M").field.add(
        name="a", number=1, type=F.TYPE_ENUM, label=F.LABEL_REPEATED, type_name=".n.E"
    )
    number = registry.register("s", serialized(file), "PROTOBUF")
    reader = converter("protobuf", {"schema.registry.url": registry.url}, is_key=False)
    many = 200_000
    assert not decode(reader, [framed(number, b"\0")]).bad
    with quick():
        (part,) = reader.decode([framed(number, b"\0\x0a\xc0\x9a\x0c" + b"\1" * many)], None).values
    assert isinstance(part.data, pa.StructArray)
    assert part.data.field("a").to_pylist()[0] == ["A0"] * many


@pytest.mark.parametrize("others", [b'"x1234":0', b'"F4899":1,"F0000":1'], ids=["unknown", "in other letters"])
def test_fields_of_an_object_with_many_columns_are_found_at_once(others: bytes) -> None:
    schema = {
        "type": "struct",
        "fields": [{"field": f"f{i:04}", "type": "int32", "optional": True} for i in range(4_900)],
    }
    head = b'{"schema":' + json.dumps(schema).encode() + b',"payload":{'
    reader = converter("json", {"schemas.enable": "true"}, is_key=False)
    assert decode(reader, [head + b"}}"]).values[0]["f0001"] is None
    with quick():
        (part,) = reader.decode([head + b",".join([others] * 90_000) + b',"f4899":7,"f0001":5}}'], None).values
    row = part.data[0].as_py()
    assert (row["f4899"], row["f0001"], row["f0000"]) == (7, 5, None)


def test_a_column_of_many_is_found_by_its_name_in_other_letters() -> None:
    fields = [Field((f"f{i:04}",), "long") for i in range(100)]
    decoder = json_decoder(fields, closed=True, fold=True, nesting=32, cells=5_000_000)
    rows, refused, _ = decoder.read([b'{"F0099":1,"f0050":2,"g":3}', '{"É":1}'.encode(), b'{"f0001":1,"F0001":2}'])
    assert refused == [1, 2]
    assert {name: value for name, value in rows[0].as_py().items() if value is not None} == {"f0099": 1, "f0050": 2}
